"""`verbena registry` as its own process, for real clients and for signals."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from verbena.registry import digests
from verbena.registry.digests import Digest


class Process:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], port: int, banner: str) -> None:
        self.process = process
        self.port = port
        self.banner = banner

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            spelled = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, spelled)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def push_blob(self, repository: str, content: bytes) -> Digest:
        digest = digests.of(content)
        _, headers, _ = self.request("POST", f"/v2/{repository}/blobs/uploads/", b"")
        status, _, body = self.request("PUT", f"{headers['Location']}?digest={digest}", content)
        assert status == 201, body
        return digest

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=30)
        return self.process.returncode


@contextlib.contextmanager
def registry_process(folder: Path, *arguments: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "verbena", "registry", "--port", "0", "--folder", str(folder)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("VERBENA_")}
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, text=True, env=environment, cwd=folder.parent
    )
    try:
        assert process.stdout is not None
        lines = []
        while line := process.stdout.readline():
            lines.append(line)
            if line.startswith("  folder"):
                break
        found = re.search(r"https?://\S+:(\d+)", "".join(lines))
        assert found, lines
        yield Process(process, int(found[1]), "".join(lines))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
