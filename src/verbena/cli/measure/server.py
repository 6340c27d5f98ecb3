"""The second process of a measurement: executes requests from a pipe, until its input ends. Requests ({"do":
name, ...}) and responses are lines of JSON. A request that runs beside a loop of the first process is
answered twice: when it starts and when it is done."""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import signal
import sys
import zlib
from collections.abc import Iterator
from typing import Any, TextIO

from verbena import verbs
from verbena._native import bench
from verbena.cli.measure.bare_socket import BareSocket
from verbena.cli.measure.link import TIMEOUT_S, Link, Shape, check, view
from verbena.errors import VerbenaError

Answer = dict[str, Any]


class Server:
    """The peer's state between requests. Each do_ method yields its responses."""

    def __init__(self, context: verbs.Context | None = None) -> None:
        self._context = context
        self._link: Link | None = None
        self._ring: bench.RingPair | None = None
        self._mapping: mmap.mmap | None = None
        self._tcp: BareSocket | None = None

    def serve(self, requests: TextIO, answers: TextIO) -> None:
        try:
            for line in requests:
                request = json.loads(line)
                try:
                    for answer in getattr(self, f"do_{request.pop('do')}")(**request):
                        _write(answers, answer)
                except VerbenaError as error:
                    _write(answers, {"error": str(error), "code": error.code})
        finally:
            self._close()
            if self._tcp is not None:
                self._tcp.close()

    def do_open(self, **shape: Any) -> Iterator[Answer]:
        """Listens, reports the address, and accepts one connection."""
        self._close()
        self._link = link = Link(Shape(**shape), context=self._context)
        listener = link.context.listen("")
        try:
            yield {"address": listener.address, "window": link.window.remote.to_bytes().hex()}
            request = listener.accept_blocking(timeout_s=TIMEOUT_S)
            request.accept_blocking(link.qp)
            link.ready()
            yield {"connected": True}
        finally:
            listener.close()

    def do_close(self) -> Iterator[Answer]:
        self._close()
        yield {"closed": True}

    def do_pong(self, rounds: int) -> Iterator[Answer]:
        """The responding end of a SEND ping-pong, in the link's mode."""
        link = self._opened()
        yield {"ready": True}
        if link.shape.mode == "native":
            check(bench.pong(*link.native, link.mailbox, rounds), "answer pings")
        elif link.shape.mode == "python":
            _pong(link, rounds)
        else:
            asyncio.run(_pong_async(link, rounds))
        yield {"done": rounds}

    def do_receive(self, messages: int) -> Iterator[Answer]:
        """The receiving end of one-way SENDs."""
        link = self._opened()
        yield {"ready": True}
        if link.shape.mode == "native":
            check(bench.receive_rate(*link.native, link.mailbox, messages), "receive messages")
        else:
            received = 0
            while received < messages:
                for completion in link.recv_cq.wait_blocking(timeout_s=TIMEOUT_S):
                    completion.raise_for_status(operation="receive a message")
                    link.repost(completion.wr_id)
                    received += 1
        yield {"done": messages}

    def do_map_ring(self, fd: int, payload_bytes: int, slots: int) -> Iterator[Answer]:
        self._ring = None
        self._mapping = mmap.mmap(fd, os.fstat(fd).st_size)
        self._ring = bench.RingPair(self._mapping, payload_bytes=payload_bytes, slots=slots, side=1)
        yield {"mapped": True}

    def do_ring_pong(self, rounds: int) -> Iterator[Answer]:
        assert self._ring is not None
        yield {"ready": True}
        yield {"done": self._ring.pong(rounds)}

    def do_ring_consume(self, messages: int) -> Iterator[Answer]:
        assert self._ring is not None
        yield {"ready": True}
        yield {"done": self._ring.consume(messages)}

    def do_tcp_open(self, message_bytes: int) -> Iterator[Answer]:
        """Listens for a bare TCP connection; closes the previous one."""
        if self._tcp is not None:
            self._tcp.close()
        self._tcp = BareSocket(message_bytes)
        yield {"address": self._tcp.address}

    def do_tcp_accept(self) -> Iterator[Answer]:
        assert self._tcp is not None
        self._tcp.accept()
        yield {"accepted": True}

    def do_tcp_pong(self, rounds: int) -> Iterator[Answer]:
        yield from self._bare("pong", rounds)

    def do_tcp_produce(self, messages: int) -> Iterator[Answer]:
        yield from self._bare("produce", messages)

    def do_tcp_consume(self, messages: int) -> Iterator[Answer]:
        yield from self._bare("consume", messages)

    def _bare(self, loop: str, count: int) -> Iterator[Answer]:
        assert self._tcp is not None
        yield {"ready": True}
        yield {"done": getattr(self._tcp.pair, loop)(count)}

    def do_touch(self, fd: int) -> Iterator[Answer]:
        """Writes every page of a shared file, so that this process allocates its pages, as for a peer's
        memory."""
        size = os.fstat(fd).st_size
        with mmap.mmap(fd, size) as mapping:
            mapping[:] = b"\x5a" * size
        yield {"touched": size}

    def do_fill(self) -> Iterator[Answer]:
        """Fills the window with 0.0, 1.0, 2.0 …, through numpy if it is installed."""
        window = self._opened().window
        try:
            import numpy as np

            array = np.frombuffer(view(window), dtype=np.float64)
            array[:] = np.arange(array.size)
            kind = f"numpy array of {array.size:,} float64"
        except ImportError:
            doubles = view(window).cast("d")
            for index in range(len(doubles)):
                doubles[index] = float(index)
            kind = f"buffer of {len(doubles):,} doubles"
        yield {"filled": len(window), "kind": kind, "crc32": zlib.crc32(view(window))}

    def do_digest(self) -> Iterator[Answer]:
        """Reports the checksum of this process's window."""
        yield {"crc32": zlib.crc32(view(self._opened().window))}

    def _opened(self) -> Link:
        assert self._link is not None, "asked to work before being opened"
        return self._link

    def _close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None


def _pong(link: Link, rounds: int) -> None:
    answer = link.slot(0)
    answered = 0
    while answered < rounds:
        for completion in link.recv_cq.wait_blocking(max=1, timeout_s=TIMEOUT_S):
            completion.raise_for_status(operation="receive a ping")
            link.qp.sync.send(answer)
            link.repost(completion.wr_id)
            answered += 1


async def _pong_async(link: Link, rounds: int) -> None:
    answer = link.slot(0)
    answered = 0
    while answered < rounds:
        for completion in await link.recv_cq.wait(max=1, timeout_s=TIMEOUT_S):
            completion.raise_for_status(operation="receive a ping")
            await link.qp.send(answer)
            link.repost(completion.wr_id)
            answered += 1


def _write(answers: TextIO, answer: Answer) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def main() -> None:
    # Ctrl-C reaches the whole process group; this process ends when the first one closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(core) for core in sys.argv[1].split(",")})
    with contextlib.suppress(BrokenPipeError):
        Server().serve(sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
