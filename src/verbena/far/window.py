"""Reads and writes a remote region by offset: short accesses as single READs or WRITEs, long ones as bulk
transfers. Counts accesses and bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from verbena.transport import RemoteRegion, Session

# In a bulk transfer the peer's program takes part, because it compares checksums. Over shm, a short READ or
# WRITE is a local copy: up to this length, several of them take less time than waking up the peer.
_SHM_BULK_FROM_BYTES = 64 << 10


class Window:
    """Thread-safe, as sessions are."""

    def __init__(self, session: Session, remote: RemoteRegion) -> None:
        self.session = session
        self.remote = remote
        self._short = session.node.settings.recv_buffer_size
        self._lock = threading.Lock()
        self._counters = {"wire_reads": 0, "wire_read_bytes": 0, "wire_writes": 0, "wire_write_bytes": 0}

    def read(self, offset: int, into: memoryview) -> None:
        """Fills `into`. Raises the errors of Session.read()."""
        if not into.nbytes:
            return
        remote = self.remote[offset : offset + into.nbytes]
        if into.nbytes > self._bulk_above():
            self.session.sync.get(remote, into)
        else:
            for part in self._short_parts(into.nbytes):
                into[part] = self.session.sync.read(remote[part])
        self._count("wire_read", into.nbytes)

    def write(self, offset: int, data: memoryview) -> None:
        """Returns when the bytes are in the peer's memory. Raises the errors of Session.write()."""
        if not data.nbytes:
            return
        remote = self.remote[offset : offset + data.nbytes]
        if data.nbytes > self._bulk_above():
            self.session.sync.put(data, remote)
        else:
            for part in self._short_parts(data.nbytes):
                self.session.sync.write(remote[part], data[part])
        self._count("wire_write", data.nbytes)

    def counters(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counters)

    def _bulk_above(self) -> int:
        return max(self._short, _SHM_BULK_FROM_BYTES) if self.session.wire == "shm" else self._short

    def _short_parts(self, length: int) -> Iterator[slice]:
        return (slice(start, min(start + self._short, length)) for start in range(0, length, self._short))

    def _count(self, what: str, length: int) -> None:
        with self._lock:
            self._counters[f"{what}s"] += 1
            self._counters[f"{what}_bytes"] += length
