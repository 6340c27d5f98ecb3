"""Leases that choose one node to fetch a blob from upstream; the other nodes take it from that one.
The granting node is the first in a hash order of blob and nodes, so nodes with the same view agree on it.
If views differ or a grant is lost, the only cost is a second fetch from upstream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

LIFETIME_S = 30.0
"""A holder that still needs its lease must renew it within this time."""


def order(subject: str, nodes: Iterable[str]) -> list[str]:
    """Returns the nodes in their order of responsibility for `subject` (rendezvous hashing)."""
    return sorted(nodes, key=lambda node: hashlib.sha256(f"{subject} {node}".encode()).digest())


@dataclass
class Leases:
    """The leases that this node grants. The caller passes the time in."""

    def __post_init__(self) -> None:
        self._held: dict[str, tuple[str, float]] = {}

    def ask(self, subject: str, node: str, now: float) -> str:
        """Requests the lease for `node`; returns its holder: `node` if the lease was free, expired or already
        its own."""
        holder, until = self._held.get(subject, (node, 0.0))
        if holder != node and now < until:
            return holder
        self._held[subject] = (node, now + LIFETIME_S)
        if len(self._held) > 10_000:
            self._held = {key: value for key, value in self._held.items() if value[1] > now}
        return node

    def release(self, subject: str, node: str) -> None:
        if self._held.get(subject, ("", 0.0))[0] == node:
            del self._held[subject]

    def drop(self, node: str) -> None:
        """Frees all leases of a node that is gone."""
        self._held = {key: value for key, value in self._held.items() if value[0] != node}
