"""How often one client may ask: a bucket of tokens for each, that fills again with time."""

from __future__ import annotations

from collections import OrderedDict

MOST_CLIENTS = 10_000


class Rates:
    """`per_second` on average, twice as many at once. Clients not seen for long are forgotten first."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._most = 2.0 * per_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str, now: float) -> float:
        """0 if the client may go on, else after how many seconds it may."""
        level, then = self._buckets.pop(client, (self._most, now))
        level = min(self._most, level + (now - then) * self._per_second)
        allowed = level >= 1.0
        self._buckets[client] = (level - 1.0 if allowed else level, now)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - level) / self._per_second
