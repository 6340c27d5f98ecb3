"""One line for each request, in the common log format with the user agent and the seconds it took."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from aiohttp import web


class AccessLog:
    """Writes to a file that may be rotated by moving it away and SIGHUP, or to standard output for "-"."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._stream: TextIO | None = None
        self.reopen()

    def reopen(self) -> None:
        self.close()
        if self._file:
            self._stream = sys.stdout if self._file == "-" else open(self._file, "a", buffering=1)  # noqa: SIM115

    def write(self, request: web.BaseRequest, user: str, status: int, length: int, seconds: float) -> None:
        if self._stream is None:
            return
        when = time.strftime("%d/%b/%Y:%H:%M:%S %z")
        line = f"{request.method} {request.raw_path} HTTP/{request.version.major}.{request.version.minor}"
        agent = request.headers.get("User-Agent", "-")
        self._stream.write(
            f'{request.remote or "-"} - {_plain(user) or "-"} [{when}] "{_plain(line)}" {status} {length}'
            f' "{_plain(agent)}" {seconds:.6f}\n'
        )

    def close(self) -> None:
        if self._stream is not None and self._stream is not sys.stdout:
            self._stream.close()
        self._stream = None


def _plain(text: str) -> str:
    """A client must not write lines of its own."""
    if text.isprintable() and '"' not in text:
        return text
    return "".join(c if c.isprintable() and c != '"' else f"\\x{ord(c):02x}" for c in text)
