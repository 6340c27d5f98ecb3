"""Counters of commands that Python runs, of errors, rates and peaks, in addition to the engine's own."""

from __future__ import annotations

import logging
import os
import resource
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verbena.kv.server.slowlog import LatencyMonitor, SlowLog

if TYPE_CHECKING:
    from verbena import _native

BUCKETS = 40  # bucket n counts calls of at least 2^(n-1) and less than 2^n ns
HTTP_WARNING_S = 60.0  # between warnings
_SAMPLES = 16
log = logging.getLogger("verbena.kv")


@dataclass
class CommandStats:
    calls: int = 0
    ns: int = 0
    rejected: int = 0
    failed: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, ns: int) -> None:
        self.calls += 1
        self.ns += ns
        self.buckets[min(ns.bit_length(), BUCKETS - 1)] += 1


def percentile(buckets: list[int], percent: float) -> float:
    """Returns the upper bound, in nanoseconds, of the bucket that contains the percentile."""
    wanted = sum(buckets) * percent / 100
    seen = 0
    for exponent, count in enumerate(buckets):
        seen += count
        if count and seen >= wanted:
            return float(1 << exponent)
    return 0.0


class Rate:
    """How fast a counter grows, over the last samples."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    def sample(self, now_s: float, value: int) -> None:
        self._samples.append((now_s, value))

    @property
    def per_second(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return max(0, last - first) / (last_s - first_s) if last_s > first_s else 0.0


class Stats:
    """What a server counts and measures in Python; the engine has counters of its own."""

    def __init__(self, engine: _native.kv.Engine) -> None:
        self._engine = engine
        self.started = time.time()
        self.run_id = secrets.token_hex(20)
        self.slowlog = SlowLog()
        self.latency = LatencyMonitor()
        self.commands: dict[str, CommandStats] = {}
        self.errors: dict[str, int] = {}
        self.peak_bytes = 0
        self.loop_user_s = self.loop_sys_s = 0.0
        self.peak_time = time.time()
        self.ops, self.bytes_in, self.bytes_out = Rate(), Rate(), Rate()
        self._http_requests = 0  # those that a warning has reported
        self._http_warned_s = -HTTP_WARNING_S

    def of(self, name: str) -> CommandStats:
        found = self.commands.get(name)
        if found is None:
            found = self.commands[name] = CommandStats()
        return found

    def failed(self, text: str) -> None:
        """Counts an error reply by its code."""
        code = text.partition(" ")[0]
        if len(self.errors) < 128 or code in self.errors:
            self.errors[code] = self.errors.get(code, 0) + 1

    def tick(self) -> None:
        now, all_ = time.monotonic(), self._engine.counters()
        used = resource.getrusage(resource.RUSAGE_THREAD)  # of the event loop, which calls this
        self.loop_user_s, self.loop_sys_s = used.ru_utime, used.ru_stime
        self.ops.sample(now, all_["commands"])
        self.bytes_in.sample(now, all_["bytes_in"])
        self.bytes_out.sample(now, all_["bytes_out"])
        if all_["http_requests"] > self._http_requests and now - self._http_warned_s > HTTP_WARNING_S:
            self._http_warned_s = now
            log.warning(
                "%d connections sent HTTP and were closed: a web page may try to reach this store",
                all_["http_requests"] - self._http_requests,
            )
            self._http_requests = all_["http_requests"]
        if all_["used_bytes"] > self.peak_bytes:
            self.peak_bytes, self.peak_time = all_["used_bytes"], time.time()

    def reset(self) -> None:
        self._engine.reset_counters()
        self._http_requests = 0
        self.commands.clear()
        self.errors.clear()
        self.peak_bytes, self.peak_time = self._engine.counters()["used_bytes"], time.time()
        self.ops, self.bytes_in, self.bytes_out = Rate(), Rate(), Rate()

    def all_commands(self) -> dict[str, CommandStats]:
        """Returns the counters of commands in Python and in native code, except those never called."""
        found = dict(self.commands)
        for name, (calls, ns, rejected, failed, buckets) in self._engine.command_counters().items():
            if calls or rejected:
                there = found.get(name, CommandStats())
                found[name] = CommandStats(
                    calls + there.calls, ns + there.ns, rejected + there.rejected, failed + there.failed,
                    [a + b for a, b in zip(buckets, there.buckets, strict=True)],
                )  # fmt: skip
        return found

    def all_errors(self) -> dict[str, int]:
        found = dict(self.errors)
        for code, count in self._engine.error_counters().items():
            found[code] = found.get(code, 0) + count
        return found


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
