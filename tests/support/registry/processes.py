"""Registry nodes as processes, optionally in their own network namespaces, which tests kill and stop.
Benchmarks use them too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

MAIN = Path(__file__).with_name("node_main.py")


class NodeProcess:
    """One node. ask() sends a command and waits; begin() only sends, and answer() waits for each."""

    def __init__(self, folder: Path, *, prefix: Sequence[str] = (), **options: Any) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [*prefix, sys.executable, str(MAIN), json.dumps({"folder": str(folder), **options})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.address = self.answer()["address"]

    def begin(self, do: str, **fields: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the node has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        self.begin(do, **fields)
        return self.answer()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stops the process with SIGSTOP: it neither answers nor ends."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Processes:
    """All node processes of a test; they end with it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.all: list[NodeProcess] = []
        self._options = options

    def add(self, **options: Any) -> NodeProcess:
        """Starts a node that knows those before it."""
        peers = [node.address for node in self.all]
        folder = options.pop("folder", self.folder / f"node{len(self.all)}")
        node = NodeProcess(folder, **{"peers": peers, **self._options, **options})
        self.all.append(node)
        return node

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.all:
            node.close()
