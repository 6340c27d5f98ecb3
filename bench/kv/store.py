"""How does the store compare with redis-server: by TCP, by RDMA on one host, in memory and in pauses?"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import redis

from bench.figure import Figure, program
from bench.host import stolen_ticks
from bench.kv import tcp
from bench.processes import resident_bytes
from verbena import kv
from verbena.cli import text
from verbena.cli.measure.stores import (
    DIGITS,
    KEY,
    PREFIX,
    Load,
    Store,
    has_redis_server,
    redis_store,
    verbena_store,
)

KEYS = 100_000
TURNS = 5
BATCH = 1000
SMALL = b"x" * 32
LOADED = 10_000_000
STEP = 500  # batches of 16; LOADED is a whole number of steps
PAUSE_NS = 10e6


def measure(options: argparse.Namespace) -> list[Figure]:
    if not has_redis_server() or tcp.REDIS_BENCHMARK is None:
        return [Figure("kv", "not measured", "redis-server or redis-benchmark is not installed", "–")]
    figures = []
    for part in (PARTS[name] for name in PARTS if not options.part or name in options.part):
        # Fresh servers for each part, because keys and exposed memory would affect the next one.
        with verbena_store() as ours, redis_store() as theirs:
            figures += part(ours, theirs, options.seconds)
    return figures


# One blocking client in Python, over RDMA


def _one_client(ours: Store, theirs: Store, seconds: float) -> list[Figure]:
    names = [f"{PREFIX}{number:0{DIGITS}}".encode() for number in range(KEYS)]
    keys = random.Random(1).choices(names, k=20_000)
    turn_s = seconds / TURNS / 2
    with (
        kv.Client(ours.sessions) as store,
        redis.Redis(port=theirs.port) as plain,
        Load(theirs, "SET", KEY, SMALL, keys=KEYS, depth=64, in_order=True) as fill,
        Load(theirs, "GET", KEY, keys=KEYS) as bare_get,
        Load(theirs, "SET", KEY, SMALL, keys=KEYS) as bare_set,
    ):
        fill.run(KEYS // 64 + 1)
        for start in range(0, KEYS, BATCH):
            store.mset(dict.fromkeys(names[start : start + BATCH], SMALL))
        tails: dict[str, list[float]] = {}
        rates: dict[str, list[float]] = {}

        def note(into: dict[str, list[float]], name: str, value: float) -> None:
            into.setdefault(name, []).append(value)

        for _ in range(TURNS):
            note(tails, "tcp get", _p99(bare_get.run(5000)[0]))
            note(tails, "get", _p99(_timed(store.get, keys)))
            note(tails, "tcp set", _p99(bare_set.run(5000)[0]))
            note(tails, "set", _p99(_timed(lambda key: store.set(key, SMALL), keys)))
            note(rates, "get", _rate(store.get, keys, turn_s))
            note(rates, "redis-py", _rate(plain.get, keys, turn_s))
            note(rates, "mget", _mget_rate(store, keys, turn_s))
        asked, read = store.stats().by_message, store.stats().one_sided
    rate = {name: statistics.median(values) for name, values in rates.items()}
    assert asked * 1000 < read, f"{asked} of {read} GETs were messages"
    return [
        _tail("kv shm GET from Python, P99", tails["get"], tails["tcp get"], 15),
        _tail("kv shm SET from Python, P99", tails["set"], tails["tcp set"], 10),
        Figure(
            "kv shm GET from Python",
            text.rate(rate["get"]),
            f"redis-py {text.rate(rate['redis-py'])}",
            f"{rate['get'] / rate['redis-py']:.1f}",
            "≥ 10",
            rate["get"] >= 10 * rate["redis-py"],
        ),
        Figure(
            f"kv shm GET from Python, {BATCH} keys in a batch",
            text.rate(rate["mget"]),
            f"one by one {text.rate(rate['get'])}",
            f"{rate['mget'] / rate['get']:.1f}",
            "≥ 3 M/s",
            rate["mget"] >= 3e6,
        ),
    ]


def _tail(name: str, own_ns: list[float], bare_ns: list[float], bound: int) -> Figure:
    """Compares neighbouring turns; the ratio is the median of their ratios."""
    ratios = sorted(bare / own for own, bare in zip(own_ns, bare_ns, strict=True))
    ratio = statistics.median(ratios)
    return Figure(
        name,
        text.duration(statistics.median(own_ns)),
        f"redis-server, TCP, client in C++ {text.duration(statistics.median(bare_ns))}",
        f"1/{ratio:.1f} (1/{ratios[0]:.1f} to 1/{ratios[-1]:.1f})",
        f"≤ 1/{bound}",
        ratio >= bound,
    )


def _timed(function: Callable[[bytes], object], keys: list[bytes]) -> array[float]:
    samples = array("d", bytes(8 * len(keys)))
    clock = time.perf_counter_ns
    for index, key in enumerate(keys):
        start = clock()
        function(key)
        samples[index] = clock() - start
    return samples


def _p99(samples: array[float]) -> float:
    return sorted(samples)[len(samples) * 99 // 100]


def _rate(function: Callable[[bytes], object], keys: list[bytes], seconds: float) -> float:
    done, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        for key in keys[:1000]:
            function(key)
        done += 1000
    return done / elapsed


def _mget_rate(store: kv.Client, keys: list[bytes], seconds: float) -> float:
    batches = [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]
    done, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        for batch in batches:
            store.mget(batch)
            done += len(batch)
    return done / elapsed


# Long values


def _long_values(ours: Store, theirs: Store, seconds: float) -> list[Figure]:
    figures = []
    with kv.Client(ours.sessions) as store:
        for size in (64 << 10, 1 << 20):
            value = np.random.default_rng(1).bytes(size)
            into = np.empty(size, np.uint8)
            store.set(KEY, value)
            theirs.call("SET", KEY, value)
            assert store.get_into(KEY, into) == size
            assert into.tobytes() == value
            count = max(64, int(seconds / TURNS / 2 * 1e9 / size))
            placed, objects, bare = [], [], []
            with Load(theirs, "GET", KEY, keys=1) as load:
                for _ in range(TURNS):
                    result = load.run(max(16, count // 4))[1]
                    bare.append(result.done * size / result.elapsed_ns * 1e9)
                    placed.append(size * _times(partial(store.get_into, KEY, into), count))
                    objects.append(size * _times(partial(store.get, KEY), count))
            source = np.frombuffer(value, np.uint8)
            memcpy = statistics.median(
                size * _times(partial(np.copyto, into, source), count) for _ in range(TURNS)
            )
            base = statistics.median(bare)
            figures.append(
                Figure(
                    f"memcpy of {text.size(size)}, for comparison",
                    text.bandwidth(memcpy),
                    f"get_into {text.bandwidth(statistics.median(placed))}",
                    f"{memcpy / statistics.median(placed):.1f}",
                )
            )
            for how, own, bound in (("get_into", placed, 5), ("get", objects, 0)):
                figures.append(
                    Figure(
                        f"kv shm GET {text.size(size)}, {how}",
                        text.bandwidth(statistics.median(own)),
                        f"redis-server, TCP, client in C++ {text.bandwidth(base)}",
                        f"{statistics.median(own) / base:.1f}",
                        f"≥ {bound}" if bound else "–",
                        statistics.median(own) >= bound * base if bound else None,
                    )
                )
    return figures


def _times(function: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function()
    return count / (time.perf_counter() - start)


# Memory, and pauses while it grows


@dataclass
class Loading:
    """The result of loading a store with keys: the rate, and the longest wait in each step of about 40 ms."""

    rate: float
    waits: list[float]
    undisturbed: list[float]  # steps without steal time

    @property
    def disturbed_part(self) -> float:
        return 1 - len(self.undisturbed) / len(self.waits)


def _load(store: Store) -> Loading:
    waits, undisturbed, elapsed_ns = [], [], 0
    with Load(store, "SET", KEY, b"xxxxxxxx", keys=LOADED, depth=16, in_order=True) as load:
        for _ in range(0, LOADED, 16 * STEP):
            before = stolen_ticks()
            samples, result = load.run(STEP)
            waits.append(max(samples))
            elapsed_ns += result.elapsed_ns
            if stolen_ticks() == before:
                undisturbed.append(waits[-1])
    assert store.call("DBSIZE") == LOADED
    # If every step had steal time, use all of them.
    return Loading(LOADED / elapsed_ns * 1e9, waits, undisturbed or waits)


def _memory(ours: Store, theirs: Store, _seconds: float) -> list[Figure]:
    per_key, loading = {}, {}
    with kv.Client(ours.sessions):  # from here on one-sided reads are possible: the costlier case
        for store in (ours, theirs):
            before = resident_bytes(store.pid)
            loading[store.name] = _load(store)
            per_key[store.name] = (resident_bytes(store.pid) - before) / LOADED
    own, base = per_key[ours.name], per_key[theirs.name]
    figures = [
        Figure(
            f"kv memory per key, {LOADED // 1_000_000} M keys of {len(KEY)} B, values of 8 B",
            f"{own:.0f} B",
            f"redis-server {base:.0f} B",
            f"{own / base:.2f}",
            "≤ 1.5",
            own <= 1.5 * base,
        )
    ]
    our_load, their_load = loading[ours.name], loading[theirs.name]
    what = f"kv longest wait while {LOADED // 1_000_000} M keys are loaded"
    ours_ns, theirs_ns = max(our_load.waits), max(their_load.waits)
    if not our_load.disturbed_part and not their_load.disturbed_part:
        figures.append(_longest_wait(what, ours_ns, theirs_ns))
    else:
        figures += [
            Figure(what, text.duration(ours_ns), f"redis-server {text.duration(theirs_ns)}", "–"),
            _longest_wait(
                f"{what}, without the steps during which the host took a processor away "
                f"({our_load.disturbed_part:.0%}; redis-server {their_load.disturbed_part:.0%})",
                max(our_load.undisturbed),
                max(their_load.undisturbed),
            ),
        ]
    return [
        *figures,
        Figure(
            "kv TCP SET of new keys, one client, pipeline 16",
            text.rate(our_load.rate),
            f"redis-server {text.rate(their_load.rate)}",
            f"{our_load.rate / their_load.rate:.2f}",
        ),
    ]


def _longest_wait(what: str, ours_ns: float, theirs_ns: float) -> Figure:
    return Figure(
        what,
        text.duration(ours_ns),
        f"redis-server {text.duration(theirs_ns)}",
        f"{ours_ns / theirs_ns:.2f}",
        f"≤ {text.duration(PAUSE_NS)}",
        ours_ns <= PAUSE_NS,
    )


# The one list of parts, by their names for --part.
PARTS: dict[str, Callable[[Store, Store, float], list[Figure]]] = {
    "tcp": tcp.measure,
    "one_client": _one_client,
    "long_values": _long_values,
    "memory": _memory,
}


def _parts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--part",
        action="append",
        choices=tuple(PARTS),
        help="only this part; may be repeated",
    )


if __name__ == "__main__":
    program(measure, description=__doc__ or "", arguments=_parts)
