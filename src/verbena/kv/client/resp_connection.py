"""A plain RESP connection over TCP, TLS or a Unix socket, for the command line. Programs should use redis-py,
valkey-py or the clients of verbena.kv."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from verbena._closing import Closing
from verbena.errors import setup_error


class ErrorReply(str):
    """An error reply."""

    __slots__ = ()


class PushReply(list[Any]):
    """A push message of RESP3, which is not a reply."""


class MapReply(dict[Any, Any]):
    """A map of RESP3."""


def pack(*arguments: bytes | str) -> bytes:
    """Returns the bytes of a command."""
    out = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        data = argument.encode("utf-8", "surrogateescape") if isinstance(argument, str) else argument
        out.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(out)


class RespSocket(Closing):
    """RESP over a connected socket. Blocking; one thread at a time. `call("GET", "a")` gives the reply: str
    for simple strings, bytes for bulk strings, ErrorReply for errors."""

    def __init__(self, connected: socket.socket, *, where: str) -> None:
        self.socket = connected
        self.where = where
        self.file = connected.makefile("rb")

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def send(self, *arguments: bytes | str) -> None:
        self.socket.sendall(pack(*arguments))

    def call(self, *arguments: bytes | str) -> Any:
        self.send(*arguments)
        return self.read()

    def read(self) -> Any:
        """Returns the next reply or push. EOFError: the server has closed the connection."""
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode("utf-8", "replace")
        if kind == b"-":
            return ErrorReply(rest.decode("utf-8", "replace"))
        if kind in (b":", b"("):
            return int(rest)
        if kind in (b"$", b"=", b"!"):
            return self._bulk(kind, int(rest))
        if kind in (b"*", b"~", b">"):
            count = int(rest)
            if count < 0:
                return None
            items = [self.read() for _ in range(count)]
            return PushReply(items) if kind == b">" else items
        if kind == b"%":
            return MapReply((_hashable(self.read()), self.read()) for _ in range(int(rest)))
        if kind == b"_":
            return None
        if kind == b",":
            return float(rest)
        if kind == b"#":
            return rest == b"t"
        raise setup_error("bad_message", operation="read a reply", peer=self.where, detail=repr(line[:40]))

    def _bulk(self, kind: bytes, length: int) -> Any:
        if length < 0:
            return None
        data = self.file.read(length + 2)
        if len(data) != length + 2:
            raise EOFError
        text = data[:-2]
        if kind == b"=":
            return text[4:]  # its format comes first: "txt:"
        return ErrorReply(text.decode("utf-8", "replace")) if kind == b"!" else text


class RespConnection(RespSocket):
    """A connection over TCP, TLS or a Unix socket."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 6379,
        *,
        path: str = "",
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        timeout_s: float | None = None,
    ) -> None:
        where = path or f"{host}:{port}"
        try:
            if path:
                connected = socket.socket(socket.AF_UNIX)
                connected.connect(path)
            else:
                connected = socket.create_connection((host, port), timeout=timeout_s)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                connected = tls.wrap_socket(connected, server_hostname=server_name or host)
        except OSError as error:
            raise setup_error(
                "unreachable", operation="connect", peer=where, detail=str(error), errno=error.errno
            ) from error
        super().__init__(connected, where=where)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
