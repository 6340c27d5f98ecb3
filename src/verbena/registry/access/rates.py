"""Request rate limits: one token bucket per client."""

from __future__ import annotations

from collections import OrderedDict

MAX_CLIENTS = 10_000


class Rates:
    """Allows `per_second` requests on average, in bursts of up to twice that number. Past MAX_CLIENTS
    clients, the one that was idle longest is dropped."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._most = 2.0 * per_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str, now: float) -> float:
        """Counts one request of `client`. Returns 0 if it is allowed, else the seconds until the next one
        would be."""
        level, then = self._buckets.pop(client, (self._most, now))
        level = min(self._most, level + (now - then) * self._per_second)
        allowed = level >= 1.0
        self._buckets[client] = (level - 1.0 if allowed else level, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - level) / self._per_second
