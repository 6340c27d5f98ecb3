"""The access log: one line per request, in common log format plus user agent and duration in seconds."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from aiohttp import web

from verbena._files import private


class AccessLog:
    """Appends to a file, or to standard output for "-"; an empty name disables the log. To rotate, move the
    file away and call `reopen()`."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._stream: TextIO | None = None
        self.reopen()

    def reopen(self) -> None:
        self.close()
        if self._file:
            if self._file == "-":
                self._stream = sys.stdout
            else:
                self._stream = open(self._file, "a", buffering=1, opener=private)  # noqa: SIM115

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
    """Escapes quotes and unprintable characters, so that a client cannot forge log lines."""
    if text.isprintable() and '"' not in text:
        return text
    return "".join(c if c.isprintable() and c != '"' else f"\\x{ord(c):02x}" for c in text)
