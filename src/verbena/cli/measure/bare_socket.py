"""A bare TCP socket over loopback: what the iwarp wire is measured beside."""

from __future__ import annotations

import socket

from verbena._native import bench


def tune(bare: socket.socket) -> None:
    """What the wire gives its own sockets within a host: no delay, and no pacing. BBR paces, which is slow on
    a loopback: beside a stream that goes by it the wire would look better than it is."""
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if bare.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).startswith(b"bbr"):
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


class BareSocket:
    """The accepting end of a bare TCP connection over loopback."""

    def __init__(self, message_bytes: int) -> None:
        self._message_bytes = message_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._socket: socket.socket | None = None
        self.address = self._listener.getsockname()

    def accept(self) -> None:
        self._socket, _ = self._listener.accept()
        tune(self._socket)
        self.pair = bench.TcpPair(self._socket.fileno(), message_bytes=self._message_bytes)

    def close(self) -> None:
        self._listener.close()
        if self._socket is not None:
            self._socket.close()
