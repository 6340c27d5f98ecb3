"""Replicates pushes to N peers, before the client gets its response (synchronous) or after it. A peer is
notified and fetches the content as it does for its own clients: by RDMA WRITE into its window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from verbena.registry.errors import Refused
from verbena.registry.events import Event
from verbena.registry.nodes import lease, messages
from verbena.registry.nodes.peer import Peer, PeerFailed

TIMEOUT_S = 600.0


class Replication:
    """A listener of the registry's events. `peers` returns those that can be called now."""

    def __init__(self, peers: Callable[[], list[Peer]], *, replicas: int, synchronous: bool) -> None:
        self.done = 0
        self.failed = 0
        self.waiting = 0
        self._peers = peers
        self._replicas = replicas
        self._synchronous = synchronous
        self._tasks: set[asyncio.Task[int]] = set()

    async def __call__(self, event: Event) -> None:
        """Copies a push or mount. If synchronous, raises Refused (503) when too few peers stored it; the
        client may repeat the push."""
        if event.action not in ("push", "mount") or event.digest is None or not self._replicas:
            return
        task = asyncio.ensure_future(self._copy(event))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._synchronous and (copies := await asyncio.shield(task)) < self._replicas:
            message = f"stored on this node, but only on {copies} of {self._replicas} other nodes"
            raise Refused("TOOMANYREQUESTS", message, status=503, headers={"Retry-After": "1"})

    async def settle(self) -> None:
        """Waits for all copies in progress."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self.settle()

    async def _copy(self, event: Event) -> int:
        """Copies to the first N peers that accept it, in a hash order of the repository, so that one image's
        parts stay together. Returns the number of copies."""
        by_id = {peer.id: peer for peer in self._peers()}
        copies = 0
        self.waiting += 1
        try:
            rest = [by_id[node] for node in lease.order(event.repository, by_id)]
            while rest and copies < self._replicas:
                now, rest = rest[: self._replicas - copies], rest[self._replicas - copies :]
                copies += sum(await asyncio.gather(*(self._send_copy(peer, event) for peer in now)))
        finally:
            self.waiting -= 1
        self.done += copies
        self.failed += max(0, self._replicas - copies)
        return copies

    async def _send_copy(self, peer: Peer, event: Event) -> bool:
        try:
            answer = await peer.call(
                messages.REPLICATE,
                TIMEOUT_S,
                repository=event.repository,
                digest=str(event.digest),
                kind=event.kind,
                tag=event.tag,
            )
        except PeerFailed:
            return False
        return answer.get("stored") is True
