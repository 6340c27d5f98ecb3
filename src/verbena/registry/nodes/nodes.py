"""`Nodes`: this node's exchange with other nodes. As the registry's source it looks for missing content at
peers, then upstream; a lease makes one node fetch from upstream for all. Each blob has at most one fetch."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import time
from collections.abc import Coroutine
from typing import Any

from verbena import transport
from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.incoming import IncomingBlob
from verbena.registry.manifests import Manifest
from verbena.registry.nodes import lease, messages
from verbena.registry.nodes.fetch import Fetch, FetchFailed
from verbena.registry.nodes.finding import Finder
from verbena.registry.nodes.peer import Peer, PeerFailed
from verbena.registry.nodes.replication import Replication
from verbena.registry.nodes.serving import Holding, Source
from verbena.registry.nodes.settings import NodesSettings
from verbena.registry.nodes.upstreams import Upstreams
from verbena.registry.nodes.window import Window
from verbena.registry.service import Registry
from verbena.transport import Handler, Listener, Node, Request

FIRST_CONNECT_S = 5.0
"""How long the first request waits for peers that are being dialled."""
LEASE_RETRY_S = 0.1


class Nodes:
    """Created by `open()`; `close()` it before its registry. `node` is the transport node of all its
    sessions."""

    def __init__(self, registry: Registry, settings: NodesSettings, node: Node) -> None:
        self.registry, self.settings, self.node = registry, settings, node
        self.id = secrets.token_hex(8)
        self.peers = [Peer(address) for address in settings.peers]
        self.inbound: dict[str, Peer] = {}
        """Nodes that dialled this one, by id; one that this node dials as well is also in `peers`."""
        self.fetches: dict[Digest, Fetch] = {}
        self.fetched = 0
        self.failed = 0
        self.leases = lease.Leases()
        self.upstreams = Upstreams(settings.upstreams, registry, settings.tag_lifetime_s)
        self.window = Window(node, settings.window_bytes)
        self.source = Source(
            registry,
            node,
            memory_bytes=settings.source_bytes,
            partial=self._partial,
            changed=lambda digest: self.fetches[digest].changed if digest in self.fetches else None,
        )
        self.finder = Finder(self)
        self.replication = Replication(
            self.usable_peers, replicas=settings.replicas, synchronous=settings.replicate_synchronously
        )
        self.listener: Listener | None = None
        self._starting: dict[Digest, asyncio.Task[Fetch | None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(
        cls,
        registry: Registry,
        settings: NodesSettings,
        *,
        transport_settings: transport.Settings | None = None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> Nodes:
        """Listens, starts to dial the peers, and becomes the registry's source. Raises the errors of
        listening."""
        node = await asyncio.to_thread(Node, transport_settings or transport.Settings(), by_loop=True)
        try:
            nodes = cls(registry, settings, node)
            await nodes.upstreams.open()
            if settings.listen:
                nodes.listener = await transport.listen(
                    settings.listen, handlers=nodes.handlers, node=node, tls=server_tls, config=node.settings
                )
        except BaseException:
            await asyncio.to_thread(node.close)
            raise
        for peer in nodes.peers:
            nodes._spawn(
                peer.keep_connected(
                    node, nodes.handlers, node_id=nodes.id, tls=client_tls, changed=nodes._peer_changed
                )
            )
        registry.source = nodes
        registry.listeners.append(nodes.replication)
        return nodes

    async def close(self) -> None:
        """Ends fetches (clients that follow one are disconnected), replication and sessions."""
        if self.registry.source is self:
            self.registry.source = None
            self.registry.listeners.remove(self.replication)
        await self.replication.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.listener is not None:
            await self.listener.close()
        await asyncio.to_thread(self.source.close)
        await asyncio.to_thread(self.node.close)

    @property
    def address(self) -> str:
        return self.listener.address if self.listener is not None else ""

    def usable_peers(self) -> list[Peer]:
        """The peers that can be called now, each once."""
        by_id = {peer.id: peer for peer in self.inbound.values() if peer.usable}
        by_id |= {peer.id: peer for peer in self.peers if peer.usable}
        return list(by_id.values())

    def metric_values(self) -> list[tuple[str, str, float]]:
        """Returns (metric, label, value) tuples for metrics."""
        peers = [peer for peer in self.peers if not peer.is_self]
        known = {peer.id for peer in peers}
        peers += [peer for peer in self.inbound.values() if peer.id not in known]
        found: list[tuple[str, str, float]] = [
            ("sent", "", self.source.sent_bytes),
            ("fetches", "stored", self.fetched),
            ("fetches", "failed", self.failed),
            ("fetching", "", len(self.fetches)),
            ("replicas", "stored", self.replication.done),
            ("replicas", "failed", self.replication.failed),
        ]
        if self.upstreams:
            found.append(("received", "upstream", self.upstreams.received_bytes))
        for peer in peers:
            found.append(("received", peer.address, peer.received_bytes))
            found.append(("corrupt_blobs", peer.address, peer.corrupt_blobs))
            found.append(("stalls", peer.address, peer.stalls))
            found.append(("up", peer.address, float(peer.usable)))
        return found

    # The interface `Source` of the registry.

    async def blob(self, repository: str, digest: Digest) -> IncomingBlob | None:
        fetch = await self.fetch(repository, digest)
        if fetch is None:
            return None
        if fetch.repairing:
            with contextlib.suppress(FetchFailed):
                await asyncio.shield(fetch.whole)
        return fetch.incoming

    async def fetch(self, repository: str, digest: Digest) -> Fetch | None:
        """Returns the fetch of this blob, started if there is none yet; None if no source has it for this
        repository."""
        fetch = self.fetches.get(digest)
        if fetch is not None and repository in fetch.repositories:
            return fetch
        if fetch is not None:  # access to one repository gives no access to another
            if not await self.finder.has(repository, digest):
                return None
            fetch.repositories.add(repository)
            return fetch
        starting = self._starting.get(digest)
        if starting is None:
            starting = self._starting[digest] = self._spawn(self._begin(repository, digest))
            starting.add_done_callback(lambda _: self._starting.pop(digest, None))
        begun = await asyncio.shield(starting)
        if begun is None or repository in begun.repositories:
            return begun
        return await self.fetch(repository, digest)

    async def manifest(self, repository: str, reference: str) -> Manifest | None:
        """Fetches and stores a manifest: by digest from peers first, by tag from upstream first, because tags
        move. None if no source has it."""
        by_digest = digests.is_digest(reference)
        found = None
        if not by_digest:
            found = await self.upstreams.manifest(repository, reference)
        if found is None and (by_digest or self.registry.metadata.manifest(repository, reference) is None):
            found = await self.finder.manifest(repository, reference)
        if found is None and by_digest:
            found = await self.upstreams.manifest(repository, reference)
        if found is not None:
            await self.registry.adopt_manifest(repository, found, tag="" if by_digest else reference)
        return found

    def is_stale(self, repository: str, tag: str) -> bool:
        return not digests.is_digest(tag) and self.upstreams.is_stale(repository, tag)

    # Starting a fetch.

    async def _begin(self, repository: str, digest: Digest) -> Fetch | None:
        await self._wait_for_peers()
        fetch = await self.finder.start(repository, digest)
        if fetch is None and await self._wait_for_links():
            fetch = await self.finder.start(repository, digest)
        if fetch is None and self.upstreams:
            fetch = await self._from_upstream(repository, digest)
        return fetch

    async def _from_upstream(self, repository: str, digest: Digest) -> Fetch | None:
        """With the lease, fetches from upstream; without it, waits until the holder of the lease has
        something to share. None if upstream does not have the blob."""
        subject = str(digest)
        while not await self._lease(subject):
            await asyncio.sleep(LEASE_RETRY_S)
            fetch = await self.finder.start(repository, digest)
            if fetch is not None:
                return fetch
        body = await self.upstreams.blob(repository, digest)
        if body is None:
            await self._release(subject)
            return None
        fetch = self.new_fetch(repository, digest, body.size)
        fetch.feed_from(body)
        self.run_fetch(fetch, subject)
        return fetch

    def new_fetch(self, repository: str, digest: Digest, size: int) -> Fetch:
        fetch = Fetch(
            *(self.registry, self.window, self.settings),
            repository=repository,
            digest=digest,
            size=size,
            node_id=self.id,
        )
        self.fetches[digest] = fetch
        fetch.find_more = self.finder.find_more
        fetch.query_fetchers = self.finder.query_fetchers
        if self.upstreams:
            fetch.upstream = lambda start: self.upstreams.blob(repository, digest, start)
        return fetch

    def run_fetch(self, fetch: Fetch, subject: str = "") -> None:
        """Starts the fetch as a task; releases the lease `subject`, if given, when it ends."""

        async def run() -> None:
            try:
                await fetch.run()
            finally:
                self.fetches.pop(fetch.digest, None)
                self.upstreams.received_bytes += fetch.transfer.received.get("upstream", 0)
                ok = fetch.whole.done() and not fetch.whole.cancelled() and fetch.whole.exception() is None
                self.fetched += ok
                self.failed += not ok
                if subject:
                    await self._release(subject)

        self._spawn(run())

    async def _wait_for_peers(self) -> None:
        """Waits for peers whose first connection attempt has not ended, up to FIRST_CONNECT_S."""
        await _wait_all([peer.tried.wait() for peer in self.peers if not peer.tried.is_set()])

    async def _wait_for_links(self) -> bool:
        """Waits for peers whose link has broken, up to FIRST_CONNECT_S; returns whether there were any."""
        broken = [
            peer.wait_linked() for peer in (*self.peers, *self.inbound.values()) if peer.is_reconnecting
        ]
        await _wait_all(broken)
        return bool(broken)

    async def _lease(self, subject: str) -> bool:
        for peer in self._grantors(subject):
            if peer is None:
                return self.leases.ask(subject, self.id, time.monotonic()) == self.id
            try:
                answer = await peer.call(messages.LEASE, subject=subject, node_id=self.id)
                return answer.get("holder") == self.id
            except PeerFailed:
                continue
        return True

    async def _release(self, subject: str) -> None:
        self.leases.release(subject, self.id)
        for peer in self._grantors(subject):
            if peer is None:
                return
            with contextlib.suppress(PeerFailed):
                await peer.call(messages.RELEASE, subject=subject, node_id=self.id)
                return

    def _grantors(self, subject: str) -> list[Peer | None]:
        by_id: dict[str, Peer | None] = {self.id: None}
        by_id |= {peer.id: peer for peer in self.usable_peers()}
        return [by_id[name] for name in lease.order(subject, by_id)]

    # Handlers of calls from peers.

    @property
    def handlers(self) -> dict[str, Handler]:
        return {
            messages.HELLO: self._hello,
            messages.FIND: self.source.find,
            messages.FOLLOW: self.source.follow,
            messages.SEND: self.source.send,
            messages.SUMS: self.source.sums,
            messages.MANIFEST: self._manifest,
            messages.LEASE: self._grant,
            messages.RELEASE: self._take_release,
            messages.REPLICATE: self._replicate,
        }

    def _hello(self, request: Request) -> bytes:
        caller = messages.take_text(messages.decode(request.payload), "node_id", 64)
        if caller != self.id and caller:
            peer = Peer(request.session.peer)
            peer.id, peer.session = caller, request.session
            self.inbound[caller] = peer
            self._spawn(self._watch_inbound(peer))
        return messages.encode(id=self.id)

    async def _watch_inbound(self, peer: Peer) -> None:
        await peer.watch(self._peer_changed)
        if self.inbound.get(peer.id) is peer:
            del self.inbound[peer.id]
        if not any(other.id == peer.id for other in self.usable_peers()):
            self.leases.drop(peer.id)

    def _manifest(self, request: Request) -> bytes:
        fields = messages.decode(request.payload)
        repository = messages.take_repository(fields)
        found = self.registry.metadata.manifest(repository, messages.take_text(fields, "reference"))
        if found is None:
            return messages.encode(found=False)
        text = found.content.decode("utf-8", "surrogateescape")
        return messages.encode(
            found=True, digest=str(found.digest), media_type=found.media_type, content=text
        )

    def _grant(self, request: Request) -> bytes:
        fields = messages.decode(request.payload)
        node = messages.take_text(fields, "node_id", 64)
        holder = self.leases.ask(messages.take_text(fields, "subject"), node, time.monotonic())
        return messages.encode(holder=holder)

    def _take_release(self, request: Request) -> bytes:
        fields = messages.decode(request.payload)
        self.leases.release(messages.take_text(fields, "subject"), messages.take_text(fields, "node_id", 64))
        return messages.encode()

    async def _replicate(self, request: Request) -> bytes:
        """Stores a copy of a blob or manifest at a peer's request; responds when it is on disk or has
        failed."""
        fields = messages.decode(request.payload)
        repository, digest = messages.take_repository(fields), messages.take_digest(fields)
        if messages.take_text(fields, "kind") == "manifest":
            tag = messages.take_text(fields, "tag")
            found = await self.finder.manifest(repository, str(digest))
            if found is not None:
                await self.registry.adopt_manifest(repository, found, tag=tag)
            return messages.encode(stored=found is not None)
        if await self.registry.local_blob(repository, digest) is not None:
            return messages.encode(stored=True)
        fetch = await self.fetch(repository, digest)
        if fetch is None:
            return messages.encode(stored=False)
        try:
            await asyncio.shield(fetch.whole)
        except FetchFailed:
            return messages.encode(stored=False)
        return messages.encode(stored=True)

    def _partial(self, repository: str, digest: Digest) -> Holding | None:
        fetch = self.fetches.get(digest)
        return fetch.holding if fetch is not None and repository in fetch.repositories else None

    def _peer_changed(self, peer: Peer) -> None:
        for fetch in self.fetches.values():
            fetch.peer_changed(peer)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _wait_all(waiting: list[Coroutine[Any, Any, Any]]) -> None:
    """Waits for all coroutines, up to FIRST_CONNECT_S."""
    if waiting:
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(asyncio.gather(*waiting), FIRST_CONNECT_S)
