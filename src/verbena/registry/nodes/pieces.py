"""Which piece of a blob is asked of whom, without I/O: who holds what, what is on its way, what is rare.
Alone, pieces are taken in order, so that clients can follow; among nodes that fetch the same blob they are
taken at random, rare ones first, so that the nodes have something to give each other."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from verbena.registry.nodes.settings import PIECE

OFFERED = 8
"""From how many pieces a holder may choose the one that it has given away least."""
SLOWEST = 4.0
"""A piece that takes so many times the usual is asked of another as well."""
SHORTEST_STEAL_S = 0.25


def count_of(size: int) -> int:
    """How many pieces a blob has."""
    return -(-size // PIECE)


def mask_of(size: int) -> int:
    return (1 << count_of(size)) - 1


def bounds(index: int, size: int) -> tuple[int, int]:
    """Where a piece begins, and its length."""
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
    """Up to `most` members, from a random one on: enough of a draw, at a price that does not grow."""
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
    """A peer, as far as this blob goes."""

    held: int = 0
    whole: bool = False
    fed: bool = True
    """Whether it has all, or is being given the rest by somebody who has."""
    live: bool = True
    elsewhere: int = 0
    """What it has passed on already, to nodes that we know."""
    refused: int = 0
    """What it was asked for in vain."""


@dataclass(eq=False)
class Offer:
    """What a holder is asked for: one of `pieces`, of which no other is asked meanwhile."""

    holder: str
    pieces: int
    patient: bool
    since: float
    stolen: bool = False


@dataclass
class Plan:
    """For one blob. `held` is what has arrived; `offer()` says what to ask a holder for next."""

    size: int
    patience_s: float = 10.0
    """How long a whole holder's "others have it" is believed without a piece arriving."""
    rng: random.Random = field(default_factory=random.Random)
    held: int = 0
    progress_at: float = 0.0
    usual_s: float = 0.0
    holders: dict[str, Holder] = field(default_factory=dict)
    origin: dict[int, str] = field(default_factory=dict)
    """Who sent a piece, and, in `hearsay`, whether that was a node that had not verified it."""
    hearsay: int = 0
    offers: set[Offer] = field(default_factory=set)
    crowd: set[str] = field(default_factory=set)
    """Live nodes of which a holder has said that they fetch the same blob."""

    @property
    def all(self) -> int:
        return mask_of(self.size)

    @property
    def missing(self) -> int:
        return self.all & ~self.held

    @property
    def done(self) -> bool:
        return not self.missing

    def fellows(self, but: str = "") -> list[str]:
        """Live nodes that fetch the same blob."""
        told = {name for name in self.crowd if name not in self.holders}
        joined = {name for name, holder in self.holders.items() if holder.live and not holder.whole}
        return list((told | joined) - {but})

    @property
    def hopeful(self) -> bool:
        """Whether somebody has, or will have, what is missing."""
        return any(holder.live and (holder.whole or holder.fed) for holder in self.holders.values())

    def note(self, name: str, *, held: int, whole: bool, fed: bool = True) -> None:
        """A peer has told what it has."""
        holder = self.holders.setdefault(name, Holder())
        if whole and not holder.whole:
            holder.refused = 0
        holder.held, holder.whole, holder.fed = (self.all if whole else held & self.all), whole, fed

    def alive(self, name: str, live: bool) -> None:
        if name in self.holders:
            self.holders[name].live = live
        if not live:
            self.crowd.discard(name)

    def forget(self, name: str) -> None:
        self.holders.pop(name, None)

    def offer(self, name: str, now: float) -> Offer | None:
        """What to ask this holder for; None: nothing at present."""
        holder = self.holders.get(name)
        if holder is None or not holder.live:
            return None
        reserved = 0
        for other in self.offers:
            reserved |= other.pieces
        useful = holder.held & self.missing & ~holder.refused
        fellows = bool(self.fellows(name))
        patient = fellows and now - self.progress_at < self.patience_s
        free = useful & ~reserved & ~(holder.elsewhere if patient else 0)
        if free:
            chosen = self._choose(free, several=fellows) if fellows else free & -free
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
        # Not so many that nothing is left for the other holders.
        most = max(1, min(most, free.bit_count() // (2 * max(1, len(self.holders)))))
        chosen = 0
        for index in drawn[:most]:
            chosen |= 1 << index
        return chosen

    def _rarity(self, index: int) -> int:
        return sum(holder.held >> index & 1 for holder in self.holders.values() if holder.live)

    def _steal(self, name: str, useful: int, now: float) -> int:
        """A piece that somebody else was asked for and is slow with; each is asked for twice at most."""
        limit = max(SHORTEST_STEAL_S, SLOWEST * self.usual_s)
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

    def landed(self, offer: Offer, index: int, now: float) -> bool:
        """A piece came; whether it is new."""
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
            self.hearsay |= 1 << index
        return True

    def returned(self, offer: Offer, *, elsewhere: bool = False, refused: bool = False) -> None:
        """Nothing came of it: others may be asked."""
        self.offers.discard(offer)
        holder = self.holders.get(offer.holder)
        if holder is not None and elsewhere:
            holder.elsewhere |= offer.pieces
        if holder is not None and refused:
            holder.refused |= offer.pieces
