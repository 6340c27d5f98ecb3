"""A store as its own `verbena serve` process."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import redis


@dataclass
class Store:
    """A running `verbena serve`."""

    process: subprocess.Popen[str]
    banner: str
    port: int
    errors: list[str] = field(default_factory=list)

    def client(self, **options: object) -> redis.Redis:
        return redis.Redis(port=self.port, **{"socket_timeout": 20, **options})  # type: ignore[arg-type]

    def cli(self, *words: str, stdin: str | None = None) -> str:
        """Runs redis-cli with these arguments and returns its output."""
        tool = shutil.which("redis-cli")
        if tool is None:
            pytest.skip("redis-cli is not here (Debian: redis-tools)")
        done = subprocess.run(
            [tool, "-p", str(self.port), *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        return done.stdout + done.stderr

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ends the process with a signal and returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(40)


StartStore = Callable[..., Store]


@contextlib.contextmanager
def running(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[Store]:
    command = [sys.executable, "-m", "verbena", "serve", *arguments]
    if not any(word in ("--kv-port", "--port", "--config") for word in arguments):
        command += ["--kv-port", "0"]
    if not any("sessions" in word or "session-listen" in word for word in arguments):
        command += ["--no-kv-sessions"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[str] = []
    errors: list[str] = []
    drain = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
    drain.start()
    for line in process.stdout:
        lines.append(line)
        # the last line; without TCP there is none for redis-cli
        if line.startswith("try: ") or ("unix" in line and "  redis  " not in "".join(lines)):
            break
    banner = "".join(lines)
    match = re.search(r"redis +\S+:([0-9]+)$", banner, re.M)
    store = Store(process, banner, int(match[1]) if match else 0, errors)
    try:
        assert lines, "".join(errors)
        yield store
    finally:
        process.terminate()
        try:
            process.wait(40)
        finally:
            process.kill()
            drain.join()
            process.stdout.close()
            process.stderr.close()
    assert not [line for line in errors if "Traceback" in line or "Error" in line], "".join(errors)
