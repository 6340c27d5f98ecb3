"""The table of a listener's published regions, and the methods by which sessions use it. A right is decided
again at every request, and ends with the session, with the name, or when its rule no longer grants it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from verbena.errors import setup_error
from verbena.transport import control
from verbena.transport.memory.region import Region
from verbena.transport.named import messages
from verbena.transport.named.messages import REGION, REGIONS, WATCH, parse_request
from verbena.transport.named.publication import Publication
from verbena.transport.named.rules import Rule
from verbena.transport.offload import in_thread
from verbena.verbs import Access

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport.node import Node
    from verbena.transport.session import Handler, Request, Session

MAX_WATCHES = 64  # of one session
_MAX_HINTS = 20  # names in an error


class _Failure(Exception):
    """A reply other than a result: a code of messages.FAILURES and a detail."""


class Publisher:
    """Any thread may publish; the methods run on the listener's event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lock = threading.Lock()
        self._by_name: dict[str, Publication] = {}
        self._watches: Counter[int] = Counter()  # by session
        self._versions = itertools.count(1)
        self._closed = False

    def publish(self, name: str, array: Buffer | Region, access: Access, allow: Rule) -> Publication:
        publication = Publication(
            self._node,
            name,
            array,
            access=access,
            allow=allow,
            next_version=lambda: next(self._versions),
            on_close=self._remove,
        )
        with self._lock:
            if self._closed:
                raise setup_error("closed", operation="publish", detail="the listener was closed")
            if self._forget not in self._node._on_session_end:
                self._node._on_session_end.append(self._forget)
            former = self._by_name.get(name)
            self._by_name[name] = publication
        if former is not None:
            former.end()  # after the name has its new meaning, for those that wait for a change
        return publication

    def unpublish(self, name: str) -> None:
        with self._lock:
            publication = self._by_name.pop(name, None)
        if publication is None:
            raise setup_error("no_such_region", operation="unpublish", detail=f"{name!r:.60}")
        publication.end()

    def close(self) -> None:
        """Ends all names. Idempotent."""
        with self._lock:
            self._closed = True
            publications = list(self._by_name.values())
            self._by_name.clear()
        if self._forget in self._node._on_session_end:
            self._node._on_session_end.remove(self._forget)
        for publication in publications:
            publication.end()

    @property
    def methods(self) -> Mapping[str, Handler]:
        return {
            REGION: _answering(self._region),
            REGIONS: _answering(self._regions),
            WATCH: _answering(self._watch),
        }

    # The methods

    async def _region(self, request: Request) -> bytes:
        name, session = parse_request(REGION, request.payload).name, request.session
        while True:
            publication = await self._find(name, session)
            access = await self._access(publication, session)
            if not access:
                raise _Failure("region_not_permitted", f"{name!r} is not published for {session.principal}")
            remote = publication.lend(session.id, access)
            if remote is not None:  # otherwise it was replaced or unpublished meanwhile
                return messages.encode_region(remote, publication.form)

    async def _regions(self, request: Request) -> bytes:
        if request.payload:
            raise ValueError("there are no arguments")
        return messages.encode_names(await self._permitted(request.session))

    async def _watch(self, request: Request) -> bytes:
        wanted, session = parse_request(WATCH, request.payload), request.session
        if self._watches[session.id] >= MAX_WATCHES:
            raise _Failure("limit_exceeded", f"a session has {MAX_WATCHES} watches at most")
        self._watches[session.id] += 1
        try:
            while True:
                publication = await self._find(wanted.name, session)
                if not await self._access(publication, session):
                    detail = f"{wanted.name!r} is not published for {session.principal}"
                    raise _Failure("region_not_permitted", detail)
                with publication.waiting(wanted.version) as changed:
                    if changed is None and not publication.closed:
                        return messages.encode_version(publication.version)
                    if changed is not None:
                        await changed
        finally:
            self._watches[session.id] -= 1
            if not self._watches[session.id]:
                del self._watches[session.id]

    # Inside

    async def _find(self, name: str, session: Session) -> Publication:
        publication = self._by_name.get(name)
        if publication is not None:
            return publication
        known = ", ".join(await self._permitted(session, _MAX_HINTS)) or "none"
        raise _Failure("no_such_region", f"{name!r}; this session may use: {known}")

    async def _permitted(self, session: Session, limit: int | None = None) -> list[str]:
        with self._lock:
            publications = sorted(self._by_name.values(), key=lambda one: one.name)
        names: list[str] = []
        for publication in publications[:limit]:
            if await self._access(publication, session):
                names.append(publication.name)
        return names

    async def _access(self, publication: Publication, session: Session) -> Access:
        """Decides what the session may do. On the control thread, which must not wait, a program's rule runs
        in a thread."""
        principal = session.principal
        if publication.asks_program and asyncio.get_running_loop() is control.control_loop():
            access = await in_thread(lambda *, progress: publication.decide(principal))
        else:
            access = publication.decide(principal)
        if not access:
            publication.forget(session.id)
        return access

    def _remove(self, publication: Publication) -> None:
        with self._lock:
            if self._by_name.get(publication.name) is publication:
                del self._by_name[publication.name]

    def _forget(self, session_id: int) -> None:
        with self._lock:
            publications = list(self._by_name.values())
        for publication in publications:
            publication.forget(session_id)


def _answering(method: Callable[[Request], object]) -> Handler:
    async def handle(request: Request) -> bytes:
        try:
            return await method(request)  # type: ignore[misc, no-any-return]
        except _Failure as failure:
            return messages.encode_failure(*failure.args)

    return handle
