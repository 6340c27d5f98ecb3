"""Queries all peers at once for content. The first peer that has a blob starts its fetch; others join as they
respond. One random peer gets a window slot, so that a short blob arrives with its response."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.manifests import Manifest
from verbena.registry.nodes import messages
from verbena.registry.nodes.fetch import Fetch
from verbena.registry.nodes.peer import Peer, PeerFailed
from verbena.registry.nodes.settings import PIECE

if TYPE_CHECKING:
    from verbena.registry.nodes.nodes import Nodes

FIND_TIMEOUT_S = 10.0
QUERY_INTERVAL_S = 0.1

Asked = tuple[Peer, dict[str, Any] | None, Fetch | None]
"""The queried peer, its response, and the fetch that started with the blob in that response."""


class Finder:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def has(self, repository: str, digest: Digest) -> bool:
        """Whether any peer or upstream registry reports that this repository has the blob."""
        for peer in self._nodes.usable_peers():
            if await self._ask(peer, repository, digest) is not None:
                return True
        body = await self._nodes.upstreams.blob(repository, digest) if self._nodes.upstreams else None
        if body is not None:
            body.close()
        return body is not None

    async def holds(self, peer: Peer, repository: str, digest: Digest) -> tuple[bool, int] | None:
        """Returns whether a peer has the whole blob, and how many bytes; None if it has nothing. Does not
        announce this node as a fetcher."""
        answer = await self._ask(peer, repository, digest, requester="")
        if answer is None:
            return None
        if answer.get("whole") is True:
            return True, answer["size"]
        return False, min(answer["size"], messages.take_pieces(answer, "held").bit_count() * PIECE)

    async def start(self, repository: str, digest: Digest) -> Fetch | None:
        """Starts a fetch from the peers that have the blob or parts of it; None if no peer has."""
        peers = self._nodes.usable_peers()
        if not peers:
            return None
        random.shuffle(peers)
        fetch: Fetch | None = None
        first = asyncio.ensure_future(self._ask_for_all(peers[0], repository, digest))
        asked = {
            first,
            *(asyncio.ensure_future(self._ask_one(peer, repository, digest)) for peer in peers[1:]),
        }
        while asked and fetch is None:
            done, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                fetch = self._take(fetch, repository, digest, *task.result())
        if asked and fetch is not None:
            self._nodes._spawn(self._join_rest(fetch, asked))
        return fetch

    async def find_more(self, fetch: Fetch) -> None:
        """Queries all usable peers again, for a fetch that has stopped making progress."""
        repository = min(fetch.repositories)
        for peer in self._nodes.usable_peers():
            answer = await self._ask(peer, repository, fetch.digest)
            if answer is not None:
                _join(fetch, peer, answer)

    def query_fetchers(self, fetch: Fetch, fetchers: frozenset[str]) -> None:
        """Queries usable nodes that reportedly fetch the same blob, each at most every QUERY_INTERVAL_S."""
        now = time.monotonic()
        for peer in self._nodes.usable_peers():
            if peer.id in fetchers and peer.id not in fetch.peers:
                fetch.plan.fetchers.add(peer.id)
                if now - fetch.queried_at.get(peer.id, 0.0) > QUERY_INTERVAL_S:
                    fetch.queried_at[peer.id] = now
                    self._nodes._spawn(self._meet(fetch, peer))

    async def _meet(self, fetch: Fetch, peer: Peer) -> None:
        answer = await self._ask(peer, min(fetch.repositories), fetch.digest)
        if answer is not None and not fetch.plan.done:
            _join(fetch, peer, answer)

    async def manifest(self, repository: str, reference: str) -> Manifest | None:
        for peer in self._nodes.usable_peers():
            try:
                answer = await peer.call(
                    messages.MANIFEST, FIND_TIMEOUT_S, repository=repository, reference=reference
                )
                if answer.get("found") is True:
                    return _manifest(answer, reference)
            except (PeerFailed, messages.BadMessage):
                continue
        return None

    async def _ask(
        self, peer: Peer, repository: str, digest: Digest, window: str = "", *, requester: str | None = None
    ) -> dict[str, Any] | None:
        """Returns a peer's response about a blob, or None if it has nothing of it or the call fails."""
        try:
            answer = await peer.call(
                messages.FIND,
                FIND_TIMEOUT_S,
                repository=repository,
                digest=str(digest),
                window=window,
                node_id=self._nodes.id if requester is None else requester,
            )
            if answer.get("found") is True:
                messages.take_integer(answer, "size")
                messages.take_pieces(answer, "held")
                return answer
        except (PeerFailed, messages.BadMessage):
            pass
        return None

    async def _ask_one(self, peer: Peer, repository: str, digest: Digest) -> Asked:
        return peer, await self._ask(peer, repository, digest), None

    async def _ask_for_all(self, peer: Peer, repository: str, digest: Digest) -> Asked:
        """Lends the peer a free window slot, if there is one, so that a blob of one piece arrives with the
        response."""
        window = self._nodes.window
        if not window.free or peer.session is None:
            return await self._ask_one(peer, repository, digest)
        async with window.slot() as slot:
            answer = await self._ask(peer, repository, digest, slot.lend(peer.session))
            await slot.take_back()
            if answer is None or answer.get("sent") is not True or not 0 < answer["size"] <= PIECE:
                return peer, answer, None
            fetch = self._nodes.fetches.get(digest)
            if fetch is None:
                fetch = self._nodes.new_fetch(repository, digest, answer["size"])
                await fetch.store_inline(peer, slot.memory)
                self._nodes.run_fetch(fetch)
            return peer, answer, fetch

    def _take(
        self,
        fetch: Fetch | None,
        repository: str,
        digest: Digest,
        peer: Peer,
        answer: dict[str, Any] | None,
        inline_fetch: Fetch | None,
    ) -> Fetch | None:
        if answer is None:
            return fetch
        if inline_fetch is not None:
            return inline_fetch
        fetch = fetch or self._nodes.fetches.get(digest)
        if fetch is None:
            fetch = self._nodes.new_fetch(repository, digest, answer["size"])
            _join(fetch, peer, answer)
            self._nodes.run_fetch(fetch)
        else:
            _join(fetch, peer, answer)
        return fetch

    async def _join_rest(self, fetch: Fetch, asked: set[asyncio.Task[Asked]]) -> None:
        for task in asyncio.as_completed(asked):
            peer, answer, _ = await task
            if answer is not None and not fetch.plan.done:
                _join(fetch, peer, answer)


def _join(fetch: Fetch, peer: Peer, answer: dict[str, Any]) -> None:
    if fetch.size == answer["size"]:
        fetch.join(peer, answer)


def _manifest(answer: dict[str, Any], reference: str) -> Manifest | None:
    content = messages.take_text(answer, "content", 8 << 20).encode("utf-8", "surrogateescape")
    digest = messages.take_digest(answer)
    if digests.of(content, digest.algorithm) != digest:
        raise messages.BadMessage("the manifest has another digest")
    if digests.is_digest(reference) and str(digest) != reference:
        raise messages.BadMessage("the manifest is not the requested one")
    return Manifest(digest, messages.take_text(answer, "media_type"), content)
