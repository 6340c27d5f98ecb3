"""The blocking operations of a session, for threads. Also encodes the request of an atomic, for these and for
the async operations."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena import _native
from verbena.errors import VerbenaError
from verbena.transport.owners import owner_of
from verbena.transport.region import RemoteRegion

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.session import Session

COMPARE_SWAP, FETCH_ADD = 5, 6  # as in enum ibv_wr_opcode
_ATOMIC = struct.Struct("<QQQQII")
_WORD = 2**64 - 1

Progress = Callable[[int], object]

method_number = functools.lru_cache(maxsize=4096)(_native.transport.method_number)


def atomic_payload(
    native: _native.transport.Session, remote: RemoteRegion, opcode: int, compare_add: int, swap: int
) -> bytes:
    """Checks that the region allows an atomic, and encodes the request."""
    native.check(remote, "atomic", 8)
    return _ATOMIC.pack(remote.key, remote.offset, compare_add & _WORD, swap & _WORD, opcode, 0)


class SyncOperations:
    """Blocking operations of a session. They poll without the GIL, then sleep."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._native = session._native

    def call(self, method: str, payload: Buffer = b"", *, timeout_s: float | None = None) -> bytes:
        """As Session.call()."""
        return self._call(method_number(method), payload, timeout_s)

    def read(self, remote: RemoteRegion, *, timeout_s: float | None = None) -> bytes:
        """As Session.read()."""
        try:
            found = self._native.read(remote, -1.0 if timeout_s is None else timeout_s)
        except VerbenaError as error:
            raise self._map(error) from None
        if found is not None:
            return found
        data = bytearray(remote.length)
        self.get(remote, data)
        return bytes(data)

    def write(self, remote: RemoteRegion, data: Buffer, *, timeout_s: float | None = None) -> None:
        """As Session.write()."""
        try:
            fits = self._native.write(remote, data, -1.0 if timeout_s is None else timeout_s)
        except VerbenaError as error:
            raise self._map(error) from None
        if not fits:
            self.put(data, remote)

    def compare_swap(self, remote: RemoteRegion, expected: int, desired: int) -> int:
        """As Session.compare_swap()."""
        return self._atomic(remote, COMPARE_SWAP, expected, desired)

    def fetch_add(self, remote: RemoteRegion, delta: int) -> int:
        """As Session.fetch_add()."""
        return self._atomic(remote, FETCH_ADD, delta, 0)

    def put(self, data: Buffer, remote: RemoteRegion, *, progress: Progress | None = None) -> None:
        """As Session.put()."""
        self._transfer(True, data, remote, progress)

    def get(self, remote: RemoteRegion, into: Buffer, *, progress: Progress | None = None) -> None:
        """As Session.get()."""
        self._transfer(False, into, remote, progress)

    def _atomic(self, remote: RemoteRegion, opcode: int, compare_add: int, swap: int) -> int:
        payload = atomic_payload(self._native, remote, opcode, compare_add, swap)
        return int.from_bytes(self._call(_native.transport.METHOD_ATOMIC, payload, None), "little")

    def _call(self, method: int, payload: Buffer, timeout_s: float | None) -> bytes:
        try:
            return self._native.call(method, payload, -1.0 if timeout_s is None else timeout_s)
        except VerbenaError as error:
            raise self._map(error) from None

    def _transfer(self, is_put: bool, data: Buffer, remote: RemoteRegion, progress: Progress | None) -> None:
        session, settings = self._session, self._session.node.settings
        view = memoryview(data).cast("B")
        try:
            self._native.transfer(
                is_put,
                view,
                remote,
                fragment_bytes=min(settings.max_send_size, settings.fragment_bytes),
                depth=settings.num_memory_regions,
                progress=progress,
                owner=owner_of(data) if session.wire in session.node.wires.keeping else None,
            )
        except VerbenaError as error:
            raise self._map(error) from None
        if progress is not None:
            progress(view.nbytes)

    def _map(self, error: VerbenaError) -> VerbenaError:
        """Replaces the native error of a failed session by the session's own error."""
        return self._session._session_error(error.operation) if error.code == "session_failed" else error
