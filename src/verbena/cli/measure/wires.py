"""Measures a wire between two processes beside its raw baseline, for `verbena bench`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verbena import verbs
from verbena.cli import text
from verbena.cli.measure import baselines, environment, plot, probes, tcp
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import Probe
from verbena.cli.measure.rounds import Budget, Series, interleave
from verbena.cli.progress import Progress

RATIO_NOTES = {
    "latency": "of the medians; lower is better",
    "rate": "higher is better",
    "bandwidth": "higher is better",
}


@dataclass(frozen=True)
class Outcome:
    """The result for one size: measurement, baseline and their ratio."""

    size: int
    subject: Series
    baseline: Series
    baseline_name: str

    @property
    def ratio(self) -> float:
        return self.subject.median / self.baseline.median

    def as_json(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "subject": self.subject.summary().as_json(),
            "baseline": {"name": self.baseline_name, **self.baseline.summary().as_json()},
            "ratio": float(f"{self.ratio:.4g}"),
        }


def run(options: argparse.Namespace) -> int:
    if options.plot:
        plot.require()
    if options.pin:
        # Before the device is opened, so that the threads it starts inherit the affinity.
        os.sched_setaffinity(0, {options.pin[0]})
    # Fail here with the reason, not in the other process.
    verbs.open_device(options.provider).close()

    budget = Budget(options.iterations, options.seconds)
    outcomes = []
    with Peer(options.provider, cores=options.pin and [options.pin[1]]) as peer:
        for size in options.size:
            with Progress(f"{options.what} {text.size(size)}") as progress:
                outcomes.append(_measure(peer, options, size, budget, progress.update))
        peers = f"two {'processes' if peer.kind == 'process' else 'threads of one process'}"

    if options.plot:
        _plot(options, outcomes)
    if options.json:
        print(json.dumps(_document(options, outcomes, peers), indent=2))
    else:
        print(_report(options, outcomes, peers))
    return 0


def _measure(
    peer: Peer,
    options: argparse.Namespace,
    size: int,
    budget: Budget,
    progress: Callable[[float], None],
) -> Outcome:
    with contextlib.ExitStack() as stack:
        subject = stack.enter_context(_subject(peer, options, size))
        baseline = _baseline(peer, options, size)
        stack.enter_context(baseline)
        bound, measured = interleave([baseline, subject], budget, progress=progress)
        return Outcome(size, measured, bound, baseline.name)


Baseline = baselines.RingLatency | baselines.RingRate | baselines.Copy | tcp.TcpLatency | tcp.TcpStream


def _baseline(peer: Peer, options: argparse.Namespace, size: int) -> Baseline:
    over_tcp = options.provider.partition(":")[0] == "iwarp"
    if options.what == "latency":
        return (tcp.TcpLatency if over_tcp else baselines.RingLatency)(peer, size, batch=options.batch)
    if options.what == "rate":
        return tcp.TcpStream(peer, size, scale=1) if over_tcp else baselines.RingRate(peer, size)
    outwards = options.op != "read"
    return (tcp.TcpStream if over_tcp else baselines.Copy)(peer, size, towards_peer=outwards)


def _subject(peer: Peer, options: argparse.Namespace, size: int) -> Probe:
    if options.what == "latency":
        return probes.latency(peer, options.provider, options.op, options.mode, size, batch=options.batch)
    make = probes.rate if options.what == "rate" else probes.bandwidth
    return make(peer, options.provider, options.op, options.mode, size)


def _report(options: argparse.Namespace, outcomes: list[Outcome], peers: str) -> str:
    words = {"latency": text.duration, "rate": text.rate, "bandwidth": text.bandwidth}[options.what]
    lines = [
        f"{options.provider} {options.what}: {options.op.upper()}, {options.mode}, {peers}{_pinned(options)}"
    ]
    for outcome in outcomes:
        subject, baseline = outcome.subject.summary(), outcome.baseline.summary()
        header = [text.size(outcome.size), *(name for name, _ in subject.columns())]
        rows = [
            header,
            [options.provider, *(words(value) for _, value in subject.columns())],
            [outcome.baseline_name, *(words(value) for _, value in baseline.columns())],
        ]
        lines += ["", text.table(rows)]
        lines.append(f"ratio {outcome.ratio:.2f} ({RATIO_NOTES[options.what]})")
    return "\n".join(lines)


def _document(options: argparse.Namespace, outcomes: list[Outcome], peers: str) -> dict[str, Any]:
    return {
        "what": options.what,
        "unit": {"latency": "ns", "rate": "operations/s", "bandwidth": "bytes/s"}[options.what],
        "provider": options.provider,
        "operation": options.op,
        "mode": options.mode,
        "between": peers,
        "pinned_to": options.pin,
        "operations_per_sample": options.batch,
        "results": [outcome.as_json() for outcome in outcomes],
        "environment": environment.describe(),
    }


def _plot(options: argparse.Namespace, outcomes: list[Outcome]) -> None:
    title = f"{options.provider} {options.what}: {options.op.upper()}, {options.mode}"
    first = outcomes[0]
    if options.what == "latency":
        plot.histogram(
            options.plot,
            title=f"{title}, {text.size(first.size)}",
            subject=first.subject.samples,
            baseline=first.baseline.samples,
            baseline_name=first.baseline_name,
        )
        return
    plot.curve(
        options.plot,
        title=title,
        sizes=[outcome.size for outcome in outcomes],
        subject=[outcome.subject.median for outcome in outcomes],
        baseline=[outcome.baseline.median for outcome in outcomes],
        baseline_name=first.baseline_name,
        unit="B/s" if options.what == "bandwidth" else "ops/s",
    )


def _pinned(options: argparse.Namespace) -> str:
    return f", pinned to cores {options.pin[0]} and {options.pin[1]}" if options.pin else ""
