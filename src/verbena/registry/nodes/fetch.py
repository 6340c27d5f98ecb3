"""The fetch of one blob, from all peers that have it or from upstream, shared by all clients that request it.
Workers write and hash pieces as they arrive; the blob is stored only after its whole digest was verified."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from verbena.errors import TimedOutError
from verbena.registry.digests import Digest
from verbena.registry.errors import Refused
from verbena.registry.nodes import messages, pieces, repair
from verbena.registry.nodes.peer import Peer, PeerFailed
from verbena.registry.nodes.pieces import Offer, Plan
from verbena.registry.nodes.serving import Holding
from verbena.registry.nodes.settings import PIECE, NodesSettings
from verbena.registry.nodes.upstream import Body, UpstreamFailed
from verbena.registry.nodes.window import Slot, Window
from verbena.registry.service import Registry

DEPTH = 3
"""Concurrent pieces per peer: one being sent, one being read, one being written here."""
MAX_KNOWN = 256
LOOK_S = 0.1
"""How often an idle worker checks for slow peers."""

OpenUpstream = Callable[[int], Awaitable[Body | None]]


class FetchFailed(Exception):
    """No source has the blob, or none has the right bytes."""


@dataclass
class Transfer:
    """Progress of a fetch, for the web page and metrics."""

    begun: float = field(default_factory=time.time)
    received: dict[str, int] = field(default_factory=dict)  # source → bytes
    wires: dict[str, str] = field(default_factory=dict)


class Fetch:
    """Created when the first response gives the size. Readers may follow `incoming` at once. `whole`
    completes when the blob is stored, or with FetchFailed."""

    def __init__(
        self,
        registry: Registry,
        window: Window,
        settings: NodesSettings,
        *,
        repository: str,
        digest: Digest,
        size: int,
        node_id: str,
    ) -> None:
        self.digest, self.size = digest, size
        self.repositories = {repository}
        self.registry, self.settings, self.node_id = registry, settings, node_id
        self.incoming = registry.blobs.incoming(algorithm=digest.algorithm, size=size)
        self.incoming.untrusted = True
        self.plan = Plan(size, progress_at=time.monotonic(), elsewhere_timeout_s=settings.piece_timeout_s)
        self.peers: dict[str, Peer] = {}
        self.transfer = Transfer()
        self.changed = asyncio.Event()
        """Set, and replaced by a new event, when a piece arrives or the set of peers changes."""
        self.whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Retrieves the exception, so that asyncio does not warn if no task awaits it.
        self.whole.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.upstream: OpenUpstream | None = None
        self.find_more: Callable[[Fetch], Awaitable[None]] | None = None
        self.query_fetchers: Callable[[Fetch, frozenset[str]], None] | None = None
        """Called with nodes that a peer lists as fetching the same blob."""
        self.queried_at: dict[str, float] = {}
        """When each of those nodes was last queried."""
        self.repairing = False
        self._window = window
        self._writing = 0
        self._is_receiving_from_upstream = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None

    # What other nodes see.

    @property
    def received(self) -> int:
        """The number of received bytes, wherever they are in the blob."""
        held = self.plan.held
        last = self.size - (pieces.count_of(self.size) - 1) * PIECE
        short = PIECE - last if self.size and held >> (pieces.count_of(self.size) - 1) & 1 else 0
        return held.bit_count() * PIECE - short

    @property
    def holding(self) -> Holding:
        """What this node can serve of the blob: the received pieces, not yet verified."""
        held = 0 if self.repairing else self.plan.held
        receiving = self._is_receiving_from_upstream or any(
            h.live and h.whole for h in self.plan.holders.values()
        )
        receiving = receiving or (self.plan.done and not self.repairing)  # being verified
        return Holding(self.size, held, False, receiving, self.incoming.fileno(), self.incoming)

    def join(self, peer: Peer, answer: dict[str, Any]) -> None:
        """Adds a peer whose response lists the blob or parts of it, and starts workers for it. Ignores a peer
        that reports another size or an invalid message."""
        if messages.take_integer(answer, "size") != self.size or not self._note(peer, answer):
            return
        if peer.id not in self.peers:
            self.peers[peer.id] = peer
            for _ in range(DEPTH if len(self.peers) < 3 else 1):
                self._spawn(self._work(peer))
            self._spawn(self._follow(peer))
        self._notify()

    def peer_changed(self, peer: Peer) -> None:
        if peer.id in self.peers or peer.id in self.plan.fetchers:
            self.plan.set_live(peer.id, peer.usable)
            self._notify()

    # The run of the fetch.

    async def run(self) -> None:
        """Runs until the blob is stored or the fetch has failed; the outcome is in `whole`."""
        try:
            await self._gather()
            if await self.incoming.digest(self.digest.algorithm) != self.digest:
                await self._repair()
            blob = await self.registry.adopt(self.incoming, min(self.repositories), self.digest)
            for repository in sorted(self.repositories)[1:]:
                await self.registry.link(repository, blob.digest)
            self.whole.set_result(None)
        except (FetchFailed, OSError, Refused) as error:
            await self._give_up(error)
        except BaseException:
            await self._give_up(FetchFailed("the node is shutting down"))
            raise
        finally:
            await self._stop()

    async def _give_up(self, error: Exception) -> None:
        await self._stop()
        self.registry.discard(self.incoming, error)
        if not self.whole.done():
            failed = error if isinstance(error, FetchFailed) else FetchFailed(str(error))
            self.whole.set_exception(failed)

    async def _gather(self) -> None:
        """Waits until every piece is in the file. Raises FetchFailed."""
        while not self.plan.done:
            self._check()
            now = time.monotonic()
            stuck = now - self.plan.progress_at > 2 * self.settings.piece_timeout_s
            if not self._is_receiving_from_upstream and (stuck or not self.plan.completable):
                await self._find_sources()
            await self._next_change(LOOK_S * 5)
        self._check()

    async def _find_sources(self) -> None:
        """No known peer has the missing pieces: queries more peers, then upstream. Raises FetchFailed."""
        if self.find_more is not None:
            await self.find_more(self)
        self.plan.progress_at = time.monotonic()
        if self.plan.completable or self.plan.done:
            return
        if self.upstream is None or not await self.feed(None):
            raise FetchFailed(f"no node has the missing pieces of {self.digest}")

    def feed_from(self, body: Body) -> None:
        """Feeds the fetch from an upstream response that has already begun."""
        self._is_receiving_from_upstream = True
        self._spawn(self._feed_first(body))

    async def _feed_first(self, body: Body) -> None:
        with contextlib.suppress(FetchFailed):  # _gather() then tries other sources
            await self.feed(body)

    async def feed(self, body: Body | None) -> bool:
        """Reads the missing pieces from upstream, in order. Returns False if upstream does not have the blob.
        Raises FetchFailed."""
        self._is_receiving_from_upstream = True
        self._notify()
        try:
            while not self.plan.done:
                missing = self.plan.missing
                first = (missing & -missing).bit_length() - 1
                if body is None:
                    assert self.upstream is not None
                    body = await self.upstream(first * PIECE)
                if body is None:
                    return False
                if body.size != self.size:
                    body.close()
                    raise FetchFailed(f"upstream reports {body.size} bytes, other nodes {self.size}")
                try:
                    await self._store_body(body, first)
                except UpstreamFailed as error:
                    if self.plan.missing == missing:  # no complete piece arrived
                        raise FetchFailed(str(error)) from error
                finally:
                    body.close()
                    body = None
            return True
        finally:
            self._is_receiving_from_upstream = False
            self._notify()

    async def _store_body(self, body: Body, first: int) -> None:
        """Stores the pieces of one response, up to one that is already here; reads the next piece while one
        is written. Raises UpstreamFailed."""
        turn = asyncio.Lock()
        rest: Iterator[int] = iter(range(first, pieces.count_of(self.size)))
        loop, workers = asyncio.get_running_loop(), self.registry.blobs.workers

        async def read(view: memoryview) -> None:
            got = await _finish_read(loop.run_in_executor(workers, body.readinto, view), body)
            if got != len(view):
                raise UpstreamFailed("the response is shorter than its length")

        async def lane() -> None:
            nonlocal rest
            while True:
                async with self._window.slot() as slot:
                    async with turn:
                        index = next(rest, -1)
                        if index < 0 or (self.plan.held | self._writing) >> index & 1:
                            rest = iter(())
                            return
                        start, length = pieces.bounds(index, self.size)
                        view = slot.memory[:length]
                        try:
                            await read(view)
                        except UpstreamFailed:
                            rest = iter(())  # the other lane stores its piece and ends
                            raise
                    offer = Offer("upstream", 1 << index, False, time.monotonic())
                    await self._store(offer, index, start, view)
                    self._count("upstream", length, "http")

        for ended in await asyncio.gather(lane(), lane(), return_exceptions=True):
            if ended is not None:
                raise ended

    async def _repair(self) -> None:
        """The digest is wrong, so a peer sent wrong bytes: fails the followers, then repairs the pieces from
        peers or fetches all from upstream. Raises FetchFailed."""
        self.repairing = True
        self.incoming.fail(FetchFailed("a peer sent wrong bytes"))
        await self._stop()
        path = self.incoming.path
        self.incoming = self.registry.blobs.incoming(
            path.name, algorithm=self.digest.algorithm, size=self.size
        )
        self.incoming.untrusted = True
        if await repair.repair(self, self._window):
            self.repairing = False
            return
        if self.upstream is not None:
            self.plan = Plan(self.size, progress_at=time.monotonic())
            if await self.feed(None):
                self.incoming.restart_hashing()
                if await self.incoming.digest(self.digest.algorithm) == self.digest:
                    self.repairing = False
                    return
        raise FetchFailed(f"no node has valid bytes of {self.digest}")

    # The worker of a peer: one piece at a time.

    async def _work(self, peer: Peer) -> None:
        while not self.plan.done and peer.id in self.plan.holders:
            async with self._window.slot() as slot:
                offer = self.plan.offer(peer.id, time.monotonic())
                if offer is not None and peer.session is not None:
                    await self._ask(peer, offer, slot)
                    continue
                if offer is not None:
                    self.plan.release(offer)
            await self._next_change(LOOK_S)

    async def _ask(self, peer: Peer, offer: Offer, slot: Slot) -> None:
        try:
            index = await self.request(peer, offer, slot)
        except PeerFailed as error:
            self.plan.release(offer)
            peer.stalls += isinstance(error.__cause__, TimedOutError)
            self.plan.forget(peer.id)  # for this blob only; `find_more` may add it again
            self._notify()
            return
        except BaseException:
            self.plan.release(offer)
            raise
        if index is None or self._writing >> index & 1 or self.plan.held >> index & 1:
            return
        start, length = pieces.bounds(index, self.size)
        try:
            await self._store(offer, index, start, slot.memory[:length])
        except OSError as error:
            self._broken = error  # a local error, such as a full disk, ends the whole fetch
            self._notify()
            return
        peer.received_bytes += length
        self._count(peer.name, length, (peer.session.wire if peer.session else None) or "")

    async def request(self, peer: Peer, offer: Offer, slot: Slot) -> int | None:
        """Requests one of the offer's pieces. On return the window slot is local again and holds the piece
        with the returned index; None if the peer sent none. Raises PeerFailed."""
        assert peer.session is not None
        known = self.plan.other_fetchers(peer.id)[:MAX_KNOWN]
        answer = await self._window_of(
            peer,
            slot,
            messages.SEND,
            pieces=f"{offer.pieces:x}",
            piece_bytes=PIECE,
            patient=offer.patient,
            known=known,
            node_id=self.node_id,
        )
        if answer.get("found") is not True or not self._note(peer, answer):
            self.plan.release(offer)
            self.plan.forget(peer.id)
            return None
        index = answer.get("piece")
        if (
            type(index) is not int
            or not 0 <= index < pieces.count_of(self.size)
            or not offer.pieces >> index & 1
        ):
            elsewhere = answer.get("elsewhere") is True
            self.plan.release(offer, elsewhere=elsewhere, refused=index is not None)
            return None
        return index

    async def _window_of(self, peer: Peer, slot: Slot, method: str, **fields: Any) -> dict[str, Any]:
        assert peer.session is not None
        window = slot.lend(peer.session)
        try:
            return await peer.call(
                method,
                self.settings.piece_timeout_s,
                repository=min(self.repositories),
                digest=str(self.digest),
                window=window,
                **fields,
            )
        finally:
            await slot.take_back()

    async def _store(self, offer: Offer, index: int, start: int, view: memoryview) -> None:
        self._writing |= 1 << index
        writing = asyncio.ensure_future(self.incoming.write_at(start, view))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # A worker thread still uses the slot and the file, so wait for it.
            await asyncio.gather(writing, return_exceptions=True)
            raise
        finally:
            self._writing &= ~(1 << index)
        self.plan.record_received(offer, index, time.monotonic())
        self._notify()

    async def store_inline(self, peer: Peer, memory: memoryview) -> None:
        """Stores a blob of one piece that came with the response to FIND."""
        offer = Offer(peer.id, 1, False, time.monotonic())
        self.peers[peer.id] = peer
        self.plan.note(peer.id, held=1, whole=True)
        await self._store(offer, 0, 0, memory[: self.size])
        peer.received_bytes += self.size
        self._count(peer.name, self.size, (peer.session.wire if peer.session else None) or "")

    async def _follow(self, peer: Peer) -> None:
        """Keeps the list of pieces up to date for a peer that is itself fetching the blob."""
        while not self.plan.done:
            holder = self.plan.holders.get(peer.id)
            if holder is None or holder.whole:
                return
            if not peer.live:
                await self._next_change(LOOK_S)
                continue
            try:
                answer = await peer.call(
                    messages.FOLLOW,
                    repository=min(self.repositories),
                    digest=str(self.digest),
                    known=holder.held.bit_count(),
                    receiving=holder.receiving,
                )
                if answer.get("found") is True and self._note(peer, answer):
                    self._notify()
                    continue
            except PeerFailed:
                pass
            self.plan.forget(peer.id)
            self._notify()

    def _note(self, peer: Peer, answer: dict[str, Any]) -> bool:
        try:
            held = messages.take_pieces(answer, "held")
            fetchers = messages.take_nodes(answer, "fetchers")
        except messages.BadMessage:
            return False
        if self.query_fetchers is not None and not fetchers <= self.peers.keys() | {self.node_id}:
            self.query_fetchers(self, fetchers)
        self.plan.note(
            peer.id, held=held, whole=answer.get("whole") is True, receiving=answer.get("receiving") is True
        )
        self.plan.set_live(peer.id, peer.usable)
        return True

    def _count(self, source: str, length: int, wire: str) -> None:
        transfer = self.transfer
        transfer.received[source] = transfer.received.get(source, 0) + length
        transfer.wires[source] = wire

    def _check(self) -> None:
        if self._broken is not None:
            raise FetchFailed(f"the blob cannot be stored: {self._broken}") from self._broken

    def _notify(self) -> None:
        bell, self.changed = self.changed, asyncio.Event()
        bell.set()

    async def _next_change(self, timeout_s: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(self.changed.wait(), timeout_s)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = self._broken or error
            self._notify()

    async def _stop(self) -> None:
        tasks: Iterable[asyncio.Task[None]] = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _finish_read(reading: asyncio.Future[int], body: Body) -> int:
    """Waits until the reading thread has ended, even when cancelled: only then may the slot be reused."""
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        body.abort()
        await asyncio.wait([reading])
        raise
