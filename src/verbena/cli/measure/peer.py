"""Handle for the second process of a measurement: starts it, sends requests, ends it. A provider with a wire
that cannot leave one context gets a thread with the same context instead; `Peer.kind` states which."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import Any, TextIO

from verbena import errors, verbs
from verbena.cli.measure.link import TIMEOUT_S, Link, Shape

# Providers whose wire cannot leave the context.
IN_PROCESS = frozenset({"fake"})
EXIT_S = 15.0


class Peer:
    """A second process that runs server.py, and a memory file shared with it for the raw baselines."""

    def __init__(self, provider: str, *, cores: Collection[int] | None = None) -> None:
        self.kind = "thread" if provider.partition(":")[0] in IN_PROCESS else "process"
        self.shared_fd = os.memfd_create("verbena-bench", os.MFD_CLOEXEC)
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._context = verbs.open_device(provider) if self.kind == "thread" else None
        if self.kind == "process":
            self._start_process(cores)
        else:
            self._start_thread()

    @property
    def pid(self) -> int:
        """The process in which the peer runs; this process if the peer is a thread."""
        return self._process.pid if self._process is not None else os.getpid()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Sends a request and returns its first response. Raises VerbenaError if the peer fails or has
        exited."""
        try:
            self._requests.write(json.dumps({"do": do, **arguments}) + "\n")
            self._requests.flush()
        except (BrokenPipeError, ValueError):
            raise self._died(do) from None
        return self._answer(do)

    @contextlib.contextmanager
    def busy(self, do: str, **arguments: Any) -> Iterator[None]:
        """The peer runs `do` while the body runs its counterpart. Raises VerbenaError if the peer does not
        complete all rounds."""
        self.ask(do, **arguments)
        yield
        wanted = next(iter(arguments.values()))
        done = self._answer(do).get("done")
        if done != wanted:
            detail = f"the peer stopped after {done} of {wanted}"
            raise errors.setup_error("connect_timeout", operation=do, detail=detail)

    def connect(self, shape: Shape) -> tuple[Link, verbs.RemoteMemory]:
        """Connects a new link and returns it with the peer's window. Closes the peer's previous link."""
        link = Link(shape, context=self._context)
        try:
            answer = self.ask("open", **shape.as_json())
            link.context.connect_blocking(link.qp, answer["address"], timeout_s=TIMEOUT_S)
            link.ready()
            self._answer("open")
        except BaseException:
            link.close()
            raise
        return link, verbs.RemoteMemory.from_bytes(bytes.fromhex(answer["window"]))

    def share(self, size_bytes: int) -> int:
        """Resizes the shared file, zeroed, and returns its descriptor."""
        os.ftruncate(self.shared_fd, 0)
        os.ftruncate(self.shared_fd, size_bytes)
        return self.shared_fd

    def close(self) -> None:
        """Ends the peer and waits for it; a process that does not exit within EXIT_S is killed."""
        with contextlib.suppress(OSError, ValueError):
            self._requests.close()
        if self._process is not None:
            try:
                self._process.wait(EXIT_S)
            except BaseException as error:
                self._process.kill()
                self._process.wait()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
        if self._thread is not None:
            self._thread.join(EXIT_S)
        if self._context is not None:
            self._context.close()
        with contextlib.suppress(OSError, ValueError):
            self._answers.close()
        if self.shared_fd >= 0:
            os.close(self.shared_fd)
            self.shared_fd = -1

    def kill(self) -> None:
        """Kills the peer's process at once; used when this process is being ended."""
        if self._process is not None:
            self._process.kill()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self.kill()
        self.close()

    def _start_process(self, cores: Collection[int] | None) -> None:
        command = [sys.executable, "-m", "verbena.cli.measure.server"]
        if cores:
            command.append(",".join(str(core) for core in cores))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[self.shared_fd]
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests: TextIO = self._process.stdin  # type: ignore[assignment]
        self._answers: TextIO = self._process.stdout  # type: ignore[assignment]

    def _start_thread(self) -> None:
        from verbena.cli.measure.server import Server

        request_read, request_write = os.pipe()
        answer_read, answer_write = os.pipe()
        self._requests = os.fdopen(request_write, "w")
        self._answers = os.fdopen(answer_read)
        server_in, server_out = os.fdopen(request_read), os.fdopen(answer_write, "w")

        def serve() -> None:
            with server_in, server_out:
                Server(self._context).serve(server_in, server_out)

        self._thread = threading.Thread(target=serve, name="verbena-peer", daemon=True)
        self._thread.start()

    def _answer(self, do: str) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise self._died(do)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise errors.error_class(answer["code"])(f"the peer: {answer['error']}", operation=do)
        return answer

    def _died(self, do: str) -> errors.VerbenaError:
        status = self._process.poll() if self._process is not None else None
        detail = f"exit status {status}" if status is not None else None
        return errors.setup_error("peer_died", operation=f"ask the peer to {do}", detail=detail)
