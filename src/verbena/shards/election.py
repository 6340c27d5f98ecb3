"""Who takes a silent primary's place: the most advanced of its replicas that are there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verbena.shards.cluster_map import ClusterMap


@dataclass(frozen=True)
class Standing:
    """What a replica says by its lease when its primary's has ended, and it follows nobody any more: how far
    it is in which history. Of two histories the one of the later term counts: a primary begins one, with an
    offset of its own, whenever it starts to lead. Without a history its copy is not whole."""

    primary: str
    term: tuple[int, int] = (0, 0)
    history: str = ""
    offset: int = 0

    def encode(self) -> str:
        return f"{self.primary} {self.term[0]}.{self.term[1]} {self.history or '-'} {self.offset}"

    @classmethod
    def decode(cls, word: str) -> Standing | None:
        """None: it is no such word."""
        try:
            primary, term, history, offset = word.split(" ")
            first, second = term.split(".")
            return cls(primary, (int(first), int(second)), history.strip("-"), int(offset))
        except ValueError:
            return None


def successor(map: ClusterMap, primary: str, said: Mapping[str, str]) -> str | None:
    """`said`: what each leaseholder says. None: the primary is there, nobody can take its place, or a replica
    that is there has not said how far it is."""
    if primary in said:
        return None
    there = {
        replica: Standing.decode(said[replica]) for replica in map.replicas_of(primary) if replica in said
    }
    standing = {id: found for id, found in there.items() if found is not None and found.primary == primary}
    if len(standing) < len(there):
        return None
    whole = [id for id, found in standing.items() if found.history]
    return min(whole, key=lambda id: (_negated(standing[id].term), -standing[id].offset, id), default=None)


def _negated(term: tuple[int, int]) -> tuple[int, int]:
    return -term[0], -term[1]
