"""Chooses which piece of a blob to request from which peer, without I/O. A node that fetches alone takes
pieces in order, so that clients can follow. Among nodes that fetch the same blob, pieces are chosen at
random, rare ones first, so that the nodes can exchange them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from verbena.registry.nodes.settings import PIECE

OFFERED = 8
"""The number of pieces among which a holder may choose the one that it has sent least often."""
SLOWEST = 4.0
"""A piece that takes this many times the usual time is requested from a second peer too."""
MIN_STEAL_S = 0.25


def count_of(size: int) -> int:
    """The number of pieces of a blob."""
    return -(-size // PIECE)


def mask_of(size: int) -> int:
    return (1 << count_of(size)) - 1


def bounds(index: int, size: int) -> tuple[int, int]:
    """Returns the offset and the length of a piece."""
    start = index * PIECE
    return start, min(PIECE, size - start)


def indexes(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def some_of(mask: int, most: int, rng: random.Random) -> list[int]:
    """Returns up to `most` set bits, starting at a random position: this is random enough, and its cost is
    bounded."""
    turn = rng.randrange(mask.bit_length())
    upper = mask >> turn << turn
    found: list[int] = []
    for rest in (upper, mask ^ upper):
        left = rest
        while left and len(found) < most:
            low = left & -left
            found.append(low.bit_length() - 1)
            left ^= low
    return found


@dataclass
class Holder:
    """What this node knows about one peer and this blob."""

    held: int = 0
    whole: bool = False
    receiving: bool = True
    """Whether the peer has the whole blob, or still receives the rest from a node that has it."""
    live: bool = True
    elsewhere: int = 0
    """Pieces that the peer has already sent to other fetchers that this node knows."""
    refused: int = 0
    """Pieces that were requested from the peer and that it did not send."""


@dataclass(eq=False)
class Offer:
    """A request to a holder for one of `pieces`; they are reserved for it until the request ends."""

    holder: str
    pieces: int
    patient: bool
    since: float
    stolen: bool = False


@dataclass
class Plan:
    """The plan for one blob. `held` has the received pieces; `offer()` chooses what to request from a holder
    next."""

    size: int
    elsewhere_timeout_s: float = 10.0
    """How long "other nodes have it" from a holder of the whole blob is accepted while no piece arrives."""
    rng: random.Random = field(default_factory=random.Random)
    held: int = 0
    progress_at: float = 0.0
    usual_s: float = 0.0
    holders: dict[str, Holder] = field(default_factory=dict)
    origin: dict[int, str] = field(default_factory=dict)
    """The sender of each piece; `unverified` has the pieces whose sender had not verified them."""
    unverified: int = 0
    offers: set[Offer] = field(default_factory=set)
    fetchers: set[str] = field(default_factory=set)
    """Live nodes that, according to a holder, fetch the same blob."""

    @property
    def all(self) -> int:
        return mask_of(self.size)

    @property
    def missing(self) -> int:
        return self.all & ~self.held

    @property
    def done(self) -> bool:
        return not self.missing

    def other_fetchers(self, but: str = "") -> list[str]:
        """Live nodes that fetch the same blob, except `but`."""
        reported = {name for name in self.fetchers if name not in self.holders}
        joined = {name for name, holder in self.holders.items() if holder.live and not holder.whole}
        return list((reported | joined) - {but})

    @property
    def completable(self) -> bool:
        """Whether a live peer has, or will have, the missing pieces."""
        return any(holder.live and (holder.whole or holder.receiving) for holder in self.holders.values())

    def note(self, name: str, *, held: int, whole: bool, receiving: bool = True) -> None:
        """Records what a peer reports to have."""
        holder = self.holders.setdefault(name, Holder())
        if whole and not holder.whole:
            holder.refused = 0
        holder.held, holder.whole, holder.receiving = (
            (self.all if whole else held & self.all),
            whole,
            receiving,
        )

    def set_live(self, name: str, live: bool) -> None:
        if name in self.holders:
            self.holders[name].live = live
        if not live:
            self.fetchers.discard(name)

    def forget(self, name: str) -> None:
        self.holders.pop(name, None)

    def offer(self, name: str, now: float) -> Offer | None:
        """Returns a request for this holder, and reserves its pieces; None if there is nothing to request
        now. The caller must end it with `record_received()` or `release()`."""
        holder = self.holders.get(name)
        if holder is None or not holder.live:
            return None
        reserved = 0
        for other in self.offers:
            reserved |= other.pieces
        useful = holder.held & self.missing & ~holder.refused
        other_fetchers = bool(self.other_fetchers(name))
        patient = other_fetchers and now - self.progress_at < self.elsewhere_timeout_s
        free = useful & ~reserved & ~(holder.elsewhere if patient else 0)
        if free:
            chosen = self._choose(free, several=other_fetchers) if other_fetchers else free & -free
            return self._add(Offer(name, chosen, patient, now))
        stolen = self._steal(name, useful & ~(holder.elsewhere if patient else 0), now)
        return self._add(Offer(name, stolen, patient, now, stolen=True)) if stolen else None

    def _add(self, offer: Offer) -> Offer:
        self.offers.add(offer)
        return offer

    def _choose(self, free: int, *, several: bool) -> int:
        drawn = some_of(free, 4 * OFFERED, self.rng)
        self.rng.shuffle(drawn)
        drawn.sort(key=self._rarity)
        most = OFFERED if several else 1
        # Leave enough pieces for the other holders.
        most = max(1, min(most, free.bit_count() // (2 * max(1, len(self.holders)))))
        chosen = 0
        for index in drawn[:most]:
            chosen |= 1 << index
        return chosen

    def _rarity(self, index: int) -> int:
        return sum(holder.held >> index & 1 for holder in self.holders.values() if holder.live)

    def _steal(self, name: str, useful: int, now: float) -> int:
        """Returns a piece that another peer is slow to send; each piece is requested from at most two
        peers."""
        limit = max(MIN_STEAL_S, SLOWEST * self.usual_s)
        twice = 0
        for offer in self.offers:
            if offer.stolen or offer.holder == name:
                twice |= offer.pieces
        slow = 0
        for offer in self.offers:
            holder = self.holders.get(offer.holder)
            if holder is None or not holder.live or now - offer.since > limit:
                slow |= offer.pieces
        found = useful & slow & ~twice
        return found & -found

    def record_received(self, offer: Offer, index: int, now: float) -> bool:
        """Records a received piece; returns whether it is new."""
        self.offers.discard(offer)
        took = now - offer.since
        self.usual_s = took if not self.usual_s else 0.8 * self.usual_s + 0.2 * took
        self.progress_at = now
        if self.held >> index & 1:
            return False
        self.held |= 1 << index
        self.origin[index] = offer.holder
        holder = self.holders.get(offer.holder)
        if holder is None or not holder.whole:
            self.unverified |= 1 << index
        return True

    def release(self, offer: Offer, *, elsewhere: bool = False, refused: bool = False) -> None:
        """Ends a request that brought no piece, so that its pieces may be requested from other peers."""
        self.offers.discard(offer)
        holder = self.holders.get(offer.holder)
        if holder is not None and elsewhere:
            holder.elsewhere |= offer.pieces
        if holder is not None and refused:
            holder.refused |= offer.pieces
