"""One published region: its memory, the sessions that have it, and those that wait for a change."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from verbena import _native
from verbena._closing import Closing
from verbena.errors import setup_error
from verbena.transport.memory.buffers import contiguous_bytes
from verbena.transport.memory.form import Form, form_of
from verbena.transport.memory.region import Region, RemoteRegion
from verbena.transport.named.messages import is_region_name
from verbena.transport.named.rules import Rule, deciding
from verbena.verbs import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.node import Node


class Publication(Closing):
    """Memory that a listener offers under a name. Created by Listener.publish(). Any thread may use it.
    A context manager, which unpublishes."""

    def __init__(
        self,
        node: Node,
        name: str,
        array: Buffer | Region,
        *,
        access: Access,
        allow: Rule,
        next_version: Callable[[], int],
        on_close: Callable[[Publication], object],
    ) -> None:
        if not is_region_name(name):
            detail = f"{name!r:.60}: a name is 1 to 255 printable characters"
            raise setup_error("invalid_argument", operation="publish", detail=detail)
        memory: Buffer = memoryview(array) if isinstance(array, Region) else array
        writes = bool(access & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC))
        self.node = node
        self.name = name
        self.form: Form | None = form_of(memory, "publish")
        self.decide = deciding(allow, access)
        self.asks_program = callable(allow)
        self._memory = contiguous_bytes(memory, "publish", argument="array", writable=writes)
        self._keeps = array
        self._is_restricted = allow is not None
        self._next_version = next_version
        self._on_close = on_close
        self._lock = threading.Lock()
        self._lent: dict[Access, tuple[Region, _native.transport.Audience]] = {}  # by access
        self._members: dict[int, Access] = {}  # session → its access, if there is a rule
        self._waiting: set[asyncio.Future[None]] = set()  # for the next version
        self._closed = False
        self._version = next_version()

    @property
    def version(self) -> int:
        """A number that grows with every change."""
        return self._version

    @property
    def closed(self) -> bool:
        return self._closed

    def changed(self) -> int:
        """Notifies the sessions that watch this name, after its memory was changed. Returns the version."""
        self._check_process("changed")
        with self._lock:
            version = self._version = self._next_version()
            waiting, self._waiting = self._waiting, set()
        _wake(waiting)
        return version

    def close(self) -> None:
        """Ends the name and the access of all peers; returns when no access is in progress. Idempotent."""
        if self._inherited:
            return
        self._on_close(self)
        self.end()

    def __repr__(self) -> str:
        what = "closed" if self._closed else str(self.form or f"{self._memory.nbytes} bytes")
        return f"<Publication {self.name!r}: {what}, version {self._version}>"

    # For the publisher

    def lend(self, session_id: int, access: Access) -> RemoteRegion | None:
        """Returns the region with this access for a session; None if it was closed."""
        with self._lock:
            if self._closed:
                return None
            region, audience = self._lent.get(access) or self._expose(access)
            remote = region.remote
            if self._is_restricted:
                if self._members.get(session_id, access) != access:
                    self._end_membership(session_id)
                self._members[session_id] = access
                self.node._native.admit(audience, session_id)
        if self._is_restricted and session_id not in self.node._sessions:
            self.forget(session_id)  # it ended meanwhile
        return remote

    def forget(self, session_id: int) -> None:
        """Ends the access of one session, if it has any by a rule."""
        with self._lock:
            if session_id in self._members:
                self._end_membership(session_id)

    @contextlib.contextmanager
    def waiting(self, version: int) -> Iterator[asyncio.Future[None] | None]:
        """A future that ends with the next version; None if this version is not the current one. On the
        running loop."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            is_current = not self._closed and version == self._version
            if is_current:
                self._waiting.add(future)
        try:
            yield future if is_current else None
        finally:
            with self._lock:
                self._waiting.discard(future)

    def end(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            lent, self._lent = self._lent, {}
            waiting, self._waiting = self._waiting, set()
            self._members.clear()
        for region, _ in lent.values():
            region.close()
        self._keeps = self._memory = None  # type: ignore[assignment]
        _wake(waiting)

    # Inside

    def _expose(self, access: Access) -> tuple[Region, _native.transport.Audience]:
        audience = self.node._everybody
        if self._is_restricted:
            audience = _native.transport.Audience(of_everybody=False)
        lent = self._lent[access] = (self.node._expose(self._memory, access, audience), audience)
        return lent

    def _end_membership(self, session_id: int) -> None:
        _, audience = self._lent[self._members.pop(session_id)]
        self.node._native.revoke(audience, session_id)


def _wake(waiting: set[asyncio.Future[None]]) -> None:
    for future in waiting:
        with contextlib.suppress(RuntimeError):  # its loop was closed
            future.get_loop().call_soon_threadsafe(_finish, future)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
