"""Writes a node's messages and one-sided operations to a pcapng file for Wireshark.
Native code buffers packets (src/native/transport/capture/capture.h) in bounded memory and a thread here
writes them. If the disk is too slow, packets are dropped; the end of the file records how many."""

from __future__ import annotations

import os
import re
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from verbena import _native
from verbena._closing import Closing
from verbena.errors import setup_error

if TYPE_CHECKING:
    from verbena.transport.node import Node

LINKTYPE_USER0 = 147
# Precedes the message, or OPERATION and the beginning of the data of a WRITE or READ:
# version, direction (0 sent, 1 received), kind (0 message, 1 WRITE, 2 READ), 0, length, session, wire.
PSEUDO_HEADER = struct.Struct("<BBBBIQ8s")
OPERATION = struct.Struct("<QIBxxx")  # of a WRITE or READ: remote address, key, status; then data
MESSAGE_HEADER_BYTES = _native.transport.MESSAGE_HEADER_BYTES
ROOM_BYTES = 16 << 20
WRITE_EVERY_S = 0.1

_SECTION, _INTERFACE, _STATISTICS = 0x0A0D0D0A, 1, 5
_BYTE_ORDER = 0x1A2B3C4D


class CaptureFile(Closing):
    """A running capture, created by Node.capture(). A context manager. invalid_argument if the file cannot be
    created. If a write fails, the capture ends with the error in `failure`; sessions continue."""

    def __init__(self, node: Node, path: str | os.PathLike[str], *, headers_only: bool) -> None:
        self.path = Path(path)
        self.packets = 0  # captured so far, including dropped ones
        self.dropped = 0  # not in the file, since the buffer was full
        self.closed = False
        self.failure: OSError | None = None  # the write error that ended it
        self._node = node
        snap_bytes = MESSAGE_HEADER_BYTES if headers_only else 1 << 30
        self._captured = _native.transport.Capture(snap_bytes=snap_bytes, room_bytes=ROOM_BYTES)
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            detail = f"{self.path}: {error.strerror}"
            raise setup_error(
                "invalid_argument", operation="capture", detail=detail, errno=error.errno
            ) from error
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._file.write(_head(node.name, snap_bytes))
        self._lock = threading.Lock()
        self._stop = threading.Event()
        node._native.set_capture(self._captured)
        self._thread = threading.Thread(target=self._run, name="verbena-capture", daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Writes the packets captured so far to the file."""
        self._check_process("flush")
        with self._lock:
            if not self.closed:
                self._write()

    def close(self) -> None:
        """Ends the capture, writes the remaining packets and the statistics, closes the file. Idempotent."""
        if self._inherited:
            return
        with self._lock:
            if self.closed:
                return
            self._node._native.set_capture(None)
            self._write()
            self.closed = True
            self._append(_statistics(self.packets, self.dropped))
            self._file.close()
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __repr__(self) -> str:
        return f"<CaptureFile {self.path}: {self.packets} messages, {self.dropped} left out>"

    def _run(self) -> None:
        while not self._stop.wait(WRITE_EVERY_S):
            self.flush()

    def _write(self) -> None:
        blocks, self.packets, self.dropped = self._node._native.take_captured(self._captured)
        self._append(blocks)

    def _append(self, blocks: bytes) -> None:
        rest = memoryview(blocks)
        try:
            while rest and self.failure is None:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:  # such as a full disk
            self.failure = error
            self._node._native.set_capture(None)


def file_in(folder: str, node: str) -> Path:
    """Returns a unique path for a node's capture file in `folder`."""
    stem = re.sub(r"[^A-Za-z0-9._-]", "-", node)
    return Path(folder) / f"{stem}-{os.getpid()}-{time.time_ns()}.pcapng"


def _head(node: str, snap_bytes: int) -> bytes:
    section = struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1) + _options((4, b"verbena"))
    # Snap length zero: no limit. Option 9: timestamps in units of 10⁻⁹ s.
    snap = 0 if snap_bytes > 1 << 20 else snap_bytes + PSEUDO_HEADER.size
    interface = struct.pack("<HHI", LINKTYPE_USER0, 0, snap) + _options(
        (2, node.encode()), (3, b"session messages and one-sided work"), (9, b"\x09")
    )
    return _block(_SECTION, section) + _block(_INTERFACE, interface)


def _statistics(packets: int, dropped: int) -> bytes:
    high, low = divmod(time.time_ns(), 1 << 32)
    counts = _options((4, struct.pack("<Q", packets)), (5, struct.pack("<Q", dropped)))
    return _block(_STATISTICS, struct.pack("<III", 0, high, low) + counts)


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _options(*options: tuple[int, bytes]) -> bytes:
    written = (struct.pack("<HH", code, len(value)) + _padded(value) for code, value in options)
    return b"".join(written) + bytes(4)


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)
