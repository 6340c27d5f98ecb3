"""A bare TCP socket over loopback: the baseline of the iwarp wire."""

from __future__ import annotations

import socket

from verbena._native import bench


def tune(bare: socket.socket) -> None:
    """Sets the options that the wire sets on its own sockets within a host: no delay, and no pacing. BBR
    paces and is slow on loopback, so a baseline with it would make the wire look better than it is."""
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
