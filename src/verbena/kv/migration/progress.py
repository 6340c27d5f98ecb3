"""How far one move is: its state, and the counters that status reports show."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from verbena.kv.migration.copy_path import CopyPath
from verbena.shards.migration import BaseCopy, CatchUp, Done, Facts, Moved, RolledBack, State


class Aborted(Exception):
    """The cluster map marks the move as aborting."""


@dataclass
class Progress:
    """Written by the source, read by status()."""

    state: State
    facts: Facts
    path: CopyPath
    aborted: str = ""  # the reason; empty: the move continues
    wire: str = ""
    fraction: float = 0.0  # of the base copy
    copy_s: float = 0.0  # duration of the base copy
    pause_parts: dict[str, float] = field(default_factory=dict)  # parts of the write pause, in seconds

    def acknowledged(self, nbytes: int, pieces: int, *, by_rdma: bool, wire: str) -> None:
        """The target has applied `pieces` more pieces."""
        if not pieces:
            return
        self.wire = wire or self.wire
        self.path.acknowledged(nbytes, pieces, by_rdma=by_rdma)
        if isinstance(self.state, BaseCopy):
            self.state = self.state.acknowledge(nbytes)

    def check_aborted(self) -> None:
        if self.aborted:
            raise Aborted(self.aborted)

    def describe(self, state: State) -> dict[str, Any]:
        """Returns the fields of a status report, with the move at `state`."""
        facts, path = self.facts, self.path
        fields: dict[str, Any] = {
            "id": facts.migration,
            "slots": str(facts.slots),
            "source": facts.source,
            "target": facts.target,
            "attempt": facts.attempt,
            "phase": state.phase.name.lower(),
            "transport": path.state.value,
            "wire": self.wire,
            "bytes_transferred": path.rdma.bytes_transferred,
            "sends_completed": path.rdma.sends_completed,
            "fallback_bytes": path.fallback.bytes_transferred,
            "fallback_sends": path.fallback.sends_completed,
            "copy_s": round(self.copy_s, 6),
            "at": time.time(),
        }
        if isinstance(state, BaseCopy):
            fields["acknowledged"] = state.acknowledged
            fields["fraction"] = self.fraction
        if isinstance(state, CatchUp):
            fields["behind"] = state.behind
        if isinstance(state, Moved | Done | RolledBack):
            fields["pause_ms"] = round(state.pause_s * 1000, 3)
            fields["pause_parts_ms"] = {
                name: round(seconds * 1000, 3) for name, seconds in self.pause_parts.items()
            }
        if isinstance(state, RolledBack):
            fields["why"] = state.why
        return fields
