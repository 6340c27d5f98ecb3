"""TLS 1.3 over TCP through Python's ssl: the baseline of QUIC. Run as a program, it is the server, which
echoes 64 bytes or receives 256 MiB, as the client requests."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

SMALL = 64
BULK = 256 << 20
CHUNK = 1 << 20


def _take(stream: ssl.SSLSocket, room: memoryview) -> bool:
    """Fills `room`; returns False at the end of the stream."""
    done = 0
    while done < len(room):
        n = stream.recv_into(room[done:])
        if n == 0:
            return False
        done += n
    return True


class TlsPeer:
    """A connection to a server process."""

    def __init__(self, certificate: str, key: str, authority: str) -> None:
        command = [sys.executable, str(Path(__file__)), certificate, key]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        context = ssl.create_default_context(cafile=authority)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        plain = socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._room = memoryview(bytearray(CHUNK))

    def round_trip_ns(self, count: int) -> float:
        """Returns the mean of `count` round trips of 64 bytes."""
        message, room = bytes(SMALL), self._room[:SMALL]
        begun = time.perf_counter_ns()
        for _ in range(count):
            self._stream.sendall(message)
            _take(self._stream, room)
        return (time.perf_counter_ns() - begun) / count

    def bulk_bytes_per_s(self) -> float:
        """Sends 256 MiB until the server confirms them; returns bytes per second."""
        chunk = bytes(CHUNK)
        self._stream.sendall(b"B" + bytes(SMALL - 1))
        _take(self._stream, self._room[:SMALL])
        begun = time.perf_counter_ns()
        for _ in range(BULK // CHUNK):
            self._stream.sendall(chunk)
        _take(self._stream, self._room[:SMALL])
        return BULK / ((time.perf_counter_ns() - begun) / 1e9)

    def __enter__(self) -> TlsPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._process.wait(10)
        if self._process.stdout:
            self._process.stdout.close()


def main(certificate: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        plain, _ = listener.accept()
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    room = memoryview(bytearray(CHUNK))
    with context.wrap_socket(plain, server_side=True) as stream:
        while _take(stream, room[:SMALL]):
            is_bulk = room[0] == ord("B")
            stream.sendall(room[:SMALL])
            if not is_bulk:
                continue
            for _ in range(BULK // CHUNK):
                _take(stream, room)
            room[:SMALL] = bytes(SMALL)
            stream.sendall(room[:SMALL])


if __name__ == "__main__":
    main(*sys.argv[1:])
