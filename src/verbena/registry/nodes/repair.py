"""Repairs a fetch with all pieces but a wrong digest. Single pieces cannot be verified, so the file is made
equal to one peer's piece digests and hashed. If the result is right, the senders of the replaced pieces sent
wrong bytes; if not, this peer's digests are wrong and the next peer is tried."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from verbena.registry.nodes import messages, pieces
from verbena.registry.nodes.peer import Peer, PeerFailed
from verbena.registry.nodes.pieces import Offer
from verbena.registry.nodes.serving import piece_sums
from verbena.registry.nodes.window import Window

if TYPE_CHECKING:
    from verbena.registry.nodes.fetch import Fetch


async def repair(fetch: Fetch, window: Window) -> bool:
    """Tries every usable peer that has the whole blob; returns False if none has the right bytes. Peers that
    sent wrong bytes are counted and avoided."""
    if fetch.find_more is not None:
        await fetch.find_more(fetch)  # another peer may have the blob by now
    origin = dict(fetch.plan.origin)
    corrupt_senders: set[str] = set()
    suspected = dict.fromkeys(fetch.peers, 0)
    for name in origin.values():
        suspected[name] = suspected.get(name, 0) + 1
    # The peer that sent least is the best witness about the rest.
    for name in sorted(fetch.peers, key=lambda name: suspected[name]):
        peer = fetch.peers[name]
        if not peer.usable:
            continue
        try:
            replaced = await _match_claims(fetch, window, peer)
        except PeerFailed:
            continue
        if replaced is None:
            continue
        fetch.incoming.restart_hashing()
        if await fetch.incoming.digest(fetch.digest.algorithm) == fetch.digest:
            corrupt_senders |= _senders(fetch, origin, replaced)
            break
        corrupt_senders.add(name)
        origin |= dict.fromkeys(replaced, name)
    else:
        name = ""
    for sender in corrupt_senders & fetch.peers.keys():
        fetch.peers[sender].record_corruption(fetch.settings.avoid_s)
    return bool(name)


async def _match_claims(fetch: Fetch, window: Window, peer: Peer) -> list[int] | None:
    """Makes the file equal to what `peer` claims; returns the replaced pieces. None if the peer does not have
    the whole blob. Raises PeerFailed."""
    repository = min(fetch.repositories)
    answer = await peer.call(messages.SUMS, 60.0, repository=repository, digest=str(fetch.digest))
    sums = answer.get("sums")
    if answer.get("found") is not True or not isinstance(sums, list):
        return None
    if len(sums) != pieces.count_of(fetch.size):
        return None
    loop = asyncio.get_running_loop()
    ours = await loop.run_in_executor(fetch.registry.blobs.workers, piece_sums, fetch.incoming.path)
    replaced = [index for index, (own, claimed) in enumerate(zip(ours, sums, strict=False)) if own != claimed]
    fetch.plan.note(peer.id, held=0, whole=True)
    for index in replaced:
        async with window.slot() as slot:
            offer = Offer(peer.id, 1 << index, False, time.monotonic())
            if await fetch.request(peer, offer, slot) != index:
                raise PeerFailed(f"{peer.address} does not send the pieces that it lists")
            start, length = pieces.bounds(index, fetch.size)
            await fetch.incoming.write_at(start, slot.memory[:length])
            peer.received_bytes += length
    return replaced


def _senders(fetch: Fetch, origin: dict[int, str], replaced: list[int]) -> set[str]:
    """Returns the peers that sent these pieces as verified ones; forwarding unverified pieces does not
    count."""
    return {origin[index] for index in replaced if index in origin and not fetch.plan.unverified >> index & 1}
