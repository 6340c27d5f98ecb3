"""Loads several servers in turn with one client and reports rates and times, for `verbena kv bench`."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verbena.cli import text
from verbena.cli.measure.kv_bench import TESTS
from verbena.cli.measure.stats import Summary
from verbena.cli.measure.stores import KEY, Load, Store, has_redis_server, redis_store, verbena_store
from verbena.cli.progress import Progress

ROUND_S = 0.1


@dataclass
class Outcome:
    """The result of one test on one server."""

    test: str
    store: str
    samples: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    requests: int = 0

    @property
    def rate(self) -> float:
        ordered = sorted(self.rates)
        return ordered[len(ordered) // 2]

    def as_json(self) -> dict[str, Any]:
        times = {
            f"{name}_ns": value
            for name, value in Summary.of(self.samples).as_json().items()
            if name != "count"
        }
        return {
            "test": self.test,
            "server": self.store,
            "requests": self.requests,
            "per_second": self.rate,
            **times,
        }


def run(options: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        stores = [
            Store(f"{host}:{port}", host, port, password=options.password) for host, port in options.servers
        ]
        if not stores:
            stores = [stack.enter_context(verbena_store())]
            if has_redis_server():
                stores.append(stack.enter_context(redis_store()))
        outcomes: list[Outcome] = []
        try:
            with Progress("kv bench") as progress:
                for index, name in enumerate(options.tests):

                    def show(fraction: float, index: int = index, name: str = name) -> None:
                        progress.update((index + fraction) / len(options.tests), note=name)

                    outcomes += _measure(name, stores, options, show)
        finally:
            if options.servers:
                for store in stores:
                    _clean(store, options)
    if options.json:
        print(
            json.dumps({"options": _settings(options), "results": [o.as_json() for o in outcomes]}, indent=2)
        )
    else:
        print(_report(options, outcomes, len(stores)))
    return 0


def _measure(
    name: str, stores: list[Store], options: argparse.Namespace, progress: Callable[[float], None]
) -> list[Outcome]:
    value = b"x" * options.size
    with contextlib.ExitStack() as stack:
        if name in ("get", "mget"):  # these need existing keys
            for store in stores:
                depth = max(1, min(64, (1 << 20) // options.size))
                with Load(store, "SET", KEY, value, keys=options.keys, depth=depth, in_order=True) as fill:
                    fill.run(-(-options.keys // depth))
        loads = [
            stack.enter_context(
                Load(
                    store,
                    *TESTS[name].words(KEY, value),
                    keys=options.keys,
                    clients=options.clients,
                    depth=options.pipeline,
                )
            )
            for store in stores
        ]
        outcomes = [Outcome(name, store.name) for store in stores]
        counts = [_calibrate(load, options) for load in loads]
        most = options.requests or float("inf")
        start, budget = time.monotonic(), options.seconds * len(stores)
        while (elapsed := time.monotonic() - start) < budget or not outcomes[0].rates:
            progress(elapsed / budget)
            for load, outcome, count in zip(loads, outcomes, counts, strict=True):
                batches = int(min(count, -(-(most - outcome.requests) // options.pipeline)))
                samples, result = load.run(batches)
                outcome.samples += samples
                outcome.rates.append(result.done / result.elapsed_ns * 1e9)
                outcome.requests += result.done
            if min(outcome.requests for outcome in outcomes) >= most:
                break
    return outcomes


def _calibrate(load: Load, options: argparse.Namespace) -> int:
    """Returns how many batches fill one round; also warms up."""
    batches: int = options.clients
    if options.requests:
        wanted: int = options.requests // options.pipeline
        return max(1, min(batches, wanted))
    while True:
        _, result = load.run(batches)
        if result.elapsed_ns > ROUND_S * 1e9 / 4 or batches > 1 << 22:
            return max(1, int(batches * ROUND_S * 1e9 / result.elapsed_ns))
        batches *= 4


def _clean(store: Store, options: argparse.Namespace) -> None:
    store.remove_keys(options.keys, suffixes=("", ":n") if "incr" in options.tests else ("",))


def _report(options: argparse.Namespace, outcomes: list[Outcome], servers: int) -> str:
    head = f"{options.clients} clients, pipeline {options.pipeline}, "
    head += f"values of {text.size(options.size)}, {options.keys:,} keys"
    rows = [["test", "server", "requests/s", "P50", "P99", "P99.9", "ratio"]]
    for index, outcome in enumerate(outcomes):
        first = outcomes[index - index % servers]
        summary = dict(Summary.of(outcome.samples).columns())
        rows.append(
            [
                outcome.test,
                outcome.store,
                text.rate(outcome.rate),
                *(text.duration(summary[name]) for name in ("p50", "p99", "p99.9")),
                "" if outcome is first else f"{first.rate / outcome.rate:.2f}",
            ]
        )
    lines = [head, "", text.table(rows)]
    if servers > 1:
        lines.append(
            f"ratio: requests/s of {outcomes[0].store} relative to the other server; higher is better"
        )
    return "\n".join(lines)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    names = ("clients", "pipeline", "size", "keys", "seconds", "requests")
    return {name: getattr(options, name) for name in names}
