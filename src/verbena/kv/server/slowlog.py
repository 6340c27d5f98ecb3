"""Slow commands: the entries of SLOWLOG, and the events of LATENCY."""

from __future__ import annotations

import itertools
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.kv.server.clients import Client

_WORDS, _BYTES = 32, 128
_HISTORY = 160


@dataclass
class SlowLogEntry:
    number: int
    unix_s: int
    us: int
    argv: list[bytes]
    address: str
    name: str


class SlowLog:
    def __init__(self) -> None:
        self.threshold_us = 10_000  # negative: off
        self.max_entries = 128
        self.entries: deque[SlowLogEntry] = deque()
        self._numbers = itertools.count()

    def add(self, client: Client | None, argv: list[bytes], us: int, unix_s: int) -> None:
        address, name = (client.native.address, client.native.name) if client is not None else ("", "")
        self.entries.appendleft(SlowLogEntry(next(self._numbers), unix_s, us, truncated(argv), address, name))
        self.trim()

    def trim(self) -> None:
        while len(self.entries) > self.max_entries:
            self.entries.pop()


def truncated(argv: list[bytes]) -> list[bytes]:
    """Returns the arguments with long ones cut, so that a long command does not stay in memory."""
    out = []
    for word in argv[: _WORDS if len(argv) <= _WORDS else _WORDS - 1]:
        more = len(word) - _BYTES
        out.append(word if more <= 0 else word[:_BYTES] + b"... (%d more bytes)" % more)
    if len(argv) > _WORDS:
        out.append(b"... (%d more arguments)" % (len(argv) - _WORDS + 1))
    return out


class LatencyMonitor:
    """Latency spikes by event: (Unix seconds, ms), at most one per second."""

    def __init__(self) -> None:
        self.threshold_ms = 0  # 0: off
        self.events: dict[str, deque[tuple[int, int]]] = {}
        self.worst: dict[str, int] = {}

    def add(self, event: str, ms: int) -> None:
        if not self.threshold_ms or ms < self.threshold_ms:
            return
        now = int(time.time())
        samples = self.events.setdefault(event, deque(maxlen=_HISTORY))
        self.worst[event] = max(ms, self.worst.get(event, 0))
        if samples and samples[-1][0] == now:
            samples[-1] = (now, max(ms, samples[-1][1]))
        else:
            samples.append((now, ms))

    def reset(self, events: list[str]) -> int:
        chosen = [event for event in (events or list(self.events)) if event in self.events]
        for event in chosen:
            del self.events[event]
            self.worst.pop(event, None)
        return len(chosen)
