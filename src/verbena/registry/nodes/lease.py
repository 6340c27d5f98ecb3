"""Who may ask upstream for a blob, so that one node does and the others take it from there.
The node that grants is the first by a hash of blob and node, so all who see the same nodes ask the same one.
Nothing is lost when they disagree or a grant is lost: the blob is then asked for twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

LIFETIME_S = 30.0
"""A holder that still needs it asks again before this is over."""


def order(subject: str, nodes: Iterable[str]) -> list[str]:
    """Nodes in the order in which they are responsible (rendezvous hashing)."""
    return sorted(nodes, key=lambda node: hashlib.sha256(f"{subject} {node}".encode()).digest())


@dataclass
class Leases:
    """Those that this node grants. Times are passed in."""

    def __post_init__(self) -> None:
        self._held: dict[str, tuple[str, float]] = {}

    def ask(self, subject: str, node: str, now: float) -> str:
        """Who has it now: `node` itself if it was free, or the one before it."""
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
        """The node is gone, and what it held is free."""
        self._held = {key: value for key, value in self._held.items() if value[0] != node}
