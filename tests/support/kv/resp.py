"""A plain RESP connection that reads one value at a time, so that tests see the exact replies."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any


class ErrorReply(str):
    """An error reply, distinct from a simple string."""

    __slots__ = ()


class Wire:
    """`wire("SET", "a", "1")` sends a command and returns its reply: str for simple strings, bytes for bulk
    strings."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=20)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, *words: str | bytes | int) -> None:
        self.socket.sendall(pack(*words))

    def __call__(self, *words: str | bytes | int) -> Any:
        self.send(*words)
        return self.read()

    def read(self) -> Any:
        """Reads the next value or push. EOFError: the peer has closed the connection."""
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return ErrorReply(rest.decode())
        if kind == b":":
            return int(rest)
        if kind in (b"$", b"="):
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        if kind in (b"*", b">", b"~"):
            return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        if kind == b"%":
            return {_hashable(self.read()): self.read() for _ in range(int(rest))}
        if kind == b"_":
            return None
        if kind == b",":
            return float(rest)
        if kind == b"#":
            return rest == b"t"
        if kind == b"(":
            return int(rest)
        raise AssertionError(f"not RESP: {line!r}")


def pack(*words: str | bytes | int) -> bytes:
    out = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(out)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
