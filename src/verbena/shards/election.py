"""Chooses the replica that replaces a primary without a lease: the most advanced one that holds a lease. No
I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verbena.shards.cluster_map import ClusterMap


@dataclass(frozen=True)
class Standing:
    """What a replica announces with its lease when its primary's lease has ended and it has stopped
    following: the history that it followed, and its offset there. A primary begins a new history, with
    offsets of its own, whenever it starts to lead; the history of the later term wins. An empty `history`:
    the replica's copy is incomplete."""

    primary: str
    term: tuple[int, int] = (0, 0)
    history: str = ""
    offset: int = 0

    def encode(self) -> str:
        return f"{self.primary} {self.term[0]}.{self.term[1]} {self.history or '-'} {self.offset}"

    @classmethod
    def decode(cls, text: str) -> Standing | None:
        """Returns None if the text is not an encoded standing."""
        try:
            primary, term, history, offset = text.split(" ")
            first, second = term.split(".")
            return cls(primary, (int(first), int(second)), history.strip("-"), int(offset))
        except ValueError:
            return None


def successor(map: ClusterMap, primary: str, announced: Mapping[str, str]) -> str | None:
    """Returns the id of the replica. `announced`: the text that each leaseholder has announced. None: the
    primary holds a lease, no replica is complete, or a replica that holds a lease has not announced its
    standing yet."""
    if primary in announced:
        return None
    present = {
        replica: Standing.decode(announced[replica])
        for replica in map.replicas_of(primary)
        if replica in announced
    }
    standing = {id: found for id, found in present.items() if found is not None and found.primary == primary}
    if len(standing) < len(present):
        return None
    whole = [id for id, found in standing.items() if found.history]
    return min(whole, key=lambda id: (_negated(standing[id].term), -standing[id].offset, id), default=None)


def _negated(term: tuple[int, int]) -> tuple[int, int]:
    return -term[0], -term[1]
