"""Decides by the first bytes of a TCP connection which protocol of the listening port it uses: the hello of a
session, or an iWARP link. Both can be inside TLS; then the ClientHello, which is not encrypted, decides: a
link offers exactly the ALPN protocol of the iwarp wire, and both of its ends refuse a connection without it.
There is no I/O here; accepting.py does it.

The decision only selects the end that serves the connection. That end checks everything itself, so a peer
gains nothing by bytes that are decided wrongly."""

from __future__ import annotations

import enum

MAX_BYTES = 16 * 1024  # a longer ClientHello is not one of an iwarp wire

_LINK_START = b"MPA ID Req Frame"  # RFC 5044, 7.1.1
_LINK_ALPN = b"verbena-iwarp/1"  # as in net/tls.h
_HANDSHAKE_RECORD = 22
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
_MAX_RECORDS = 16  # a wire sends one; bounds the work that a peer can cause with each byte
_CLIENT_HELLO = 1
_ALPN_EXTENSION = 16


class Protocol(enum.Enum):
    HELLO = "hello"  # also everything that is no protocol of this port: the hello rejects it
    LINK = "link"


def detect_protocol(data: bytes) -> Protocol | int:
    """Returns the protocol, or how many bytes, more than these, are needed to decide. The result for
    some bytes does not change when more follow."""
    data = data[:MAX_BYTES]
    if not data:
        return 1
    if data[0] == _HANDSHAKE_RECORD:
        return _detect_tls(data)
    if data[: len(_LINK_START)] != _LINK_START[: len(data)]:
        return Protocol.HELLO
    return Protocol.LINK if len(data) >= len(_LINK_START) else len(_LINK_START)


def _detect_tls(data: bytes) -> Protocol | int:
    """Joins the records of the ClientHello, which may be in several (RFC 8446, 5.1)."""
    message, at = b"", 0
    for _ in range(_MAX_RECORDS):
        header = data[at : at + _RECORD_HEADER]
        if header[:2] != b"\x16\x03"[: len(header)] or header[3:] == b"\0\0":
            return Protocol.HELLO
        if len(header) < _RECORD_HEADER:
            return _needs(at + _RECORD_HEADER)
        at += _RECORD_HEADER
        end = at + int.from_bytes(header[3:], "big")
        message += data[at:end]
        if message and message[0] != _CLIENT_HELLO:
            return Protocol.HELLO
        needed = _MESSAGE_HEADER
        if len(message) >= _MESSAGE_HEADER:
            needed += int.from_bytes(message[1:_MESSAGE_HEADER], "big")
            if len(message) >= needed:
                is_link = _alpn_of(message[_MESSAGE_HEADER:needed]) == [_LINK_ALPN]
                return Protocol.LINK if is_link else Protocol.HELLO
            if needed > MAX_BYTES:
                return Protocol.HELLO
        if len(data) < end:
            return _needs(min(end, len(data) + needed - len(message)))
        at = end
    return Protocol.HELLO


def _needs(size: int) -> Protocol | int:
    return size if size <= MAX_BYTES else Protocol.HELLO


def _alpn_of(client_hello: bytes) -> list[bytes]:
    """Returns the protocols that it offers; none if it is malformed: the TLS library rejects it then."""
    try:
        rest = _Reader(client_hello)
        rest.take(2 + 32)  # version, random
        for size_bytes in (1, 2, 1):  # session id, cipher suites, compression methods
            rest.vector(size_bytes)
        extensions = rest.vector(2)
        rest.end()
        found: list[bytes] | None = None
        while not extensions.empty:
            kind = int.from_bytes(extensions.take(2), "big")
            content = extensions.vector(2)
            if kind != _ALPN_EXTENSION:
                continue
            if found is not None:
                return []
            names = content.vector(2)
            content.end()
            found = []
            while not names.empty:
                found.append(names.vector(1).rest())
    except ValueError:
        return []
    return found or []


class _Reader:
    """Takes bytes from the front. ValueError if there are not enough."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def empty(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise ValueError("truncated")
        self._at += count
        return taken

    def vector(self, size_bytes: int) -> _Reader:
        """A vector of TLS: its length, in `size_bytes`, and that many bytes."""
        return _Reader(self.take(int.from_bytes(self.take(size_bytes), "big")))

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        if not self.empty:
            raise ValueError("bytes after the end")
