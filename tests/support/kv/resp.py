"""Plain RESP connections that read one value at a time, so that tests see the exact replies."""

from __future__ import annotations

import socket
from typing import Any, TypeAlias

from verbena.kv.client import resp_connection
from verbena.kv.client.resp_connection import ErrorReply, RespSocket

__all__ = ["Connection", "ErrorReply", "RespConnection", "Word", "pack"]

Word: TypeAlias = "str | bytes | int | float"


def pack(*words: Word) -> bytes:
    """The bytes of a command."""
    return resp_connection.pack(*(word if isinstance(word, bytes) else str(word) for word in words))


class RespConnection(RespSocket):
    """`wire("SET", "a", "1")` sends a command and returns its reply: str for simple strings, bytes for bulk
    strings. Raises OSError if it cannot connect."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, timeout_s: float = 20.0) -> None:
        super().__init__(socket.create_connection((host, port), timeout=timeout_s), where=f"{host}:{port}")

    def send(self, *words: Word) -> None:
        self.socket.sendall(pack(*words))

    def __call__(self, *words: Word) -> Any:
        self.send(*words)
        return self.read()


class Connection(RespConnection):
    """A connection to a server that the test kills: its end is a ConnectionError."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, timeout_s: float = 60.0) -> None:
        super().__init__(port, host, timeout_s=timeout_s)

    def run(self, *words: Word) -> Any:
        self.send(*words)
        return self.receive()

    def receive(self) -> Any:
        """Returns the next reply; error replies are text."""
        try:
            return self.read()
        except EOFError:
            raise ConnectionError("the server is gone") from None
