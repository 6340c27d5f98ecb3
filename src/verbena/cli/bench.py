"""`verbena bench`: measures latency, rate or bandwidth between two processes beside a raw baseline."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verbena import verbs
from verbena.cli import text
from verbena.cli.measure import baselines, environment, plot, probes, tcp
from verbena.cli.measure.peer import Peer
from verbena.cli.measure.probes import Probe
from verbena.cli.measure.rounds import Budget, Series, interleave
from verbena.cli.progress import Progress

EPILOG = """\
examples:
  verbena bench latency --size 64                         SEND round trips, C++ loop
  verbena bench latency --op read --size 8 --mode python  blocking one-sided reads from Python
  verbena bench latency --plot latency.png                with a histogram
  verbena bench rate --op write --size 64                 operations per second with a full queue
  verbena bench bandwidth --op read --size sweep --plot bandwidth.png
  verbena bench latency --pin 0,1 --json                  each process on its own core
  verbena bench bandwidth --provider iwarp:lo --op write  over TCP, against a bare TCP socket

The baseline runs between the same two processes, alternating every tenth of a second: a bare shared-memory
ring for latency and rate, memcpy between two shared mappings for bandwidth; for the iwarp wire, a bare TCP
socket. The latency of SEND is a round trip; that of the other operations is one operation.
"""

SWEEP = tuple(4**power for power in range(3, 13))  # 64 B to 16 MiB
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


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "bench",
        help="measure latency, rate or bandwidth against a raw baseline",
        description="Measures a wire between two processes, beside the raw baseline in the same run.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("latency", "rate", "bandwidth"), help="what to measure")
    parser.add_argument("--provider", default="shm", help="provider or provider:device (default: shm)")
    parser.add_argument(
        "--size",
        type=_sizes,
        help="bytes per operation: 64, 4K, 1M, a list 64,4K,1M, or 'sweep' (default: 64; bandwidth: 1M)",
    )
    parser.add_argument(
        "--op", choices=tuple(probes.OPCODES), help="operation (default: send; bandwidth: read)"
    )
    parser.add_argument(
        "--mode",
        choices=("native", "python", "async"),
        default="native",
        help="a C++ loop, blocking Python calls or awaited Python calls (default: native)",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--iterations", type=_positive, help="operations per size")
    length.add_argument("--seconds", type=text.parse_seconds, help="time per size (default: 2)")
    parser.add_argument(
        "--batch",
        type=_positive,
        default=1,
        metavar="N",
        help="operations per latency sample: above 1, finer than the clock but without tails (default: 1)",
    )
    parser.add_argument(
        "--pin", type=_cores, metavar="A,B", help="pin this process to core A, the other to core B"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a plot (PNG): histogram or curve")
    parser.set_defaults(parser=parser)
    return parser


def run(options: argparse.Namespace) -> int:
    _complete(options)
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


def _complete(options: argparse.Namespace) -> None:
    """Fills defaults that depend on other options; exits with a usage error if options conflict."""
    options.op = options.op or ("read" if options.what == "bandwidth" else "send")
    if options.size is None:
        options.size = [8] if options.op == "atomic" else [1 << 20 if options.what == "bandwidth" else 64]
    if options.op == "atomic" and (options.what == "bandwidth" or options.size != [8]):
        options.parser.error("an atomic moves 8 bytes: measure its latency or rate, without --size")
    if options.batch > 1 and (options.what != "latency" or options.mode != "native"):
        options.parser.error("--batch is for the latency of native loops")
    if options.plot and options.what == "latency" and len(options.size) > 1:
        options.parser.error("a latency plot is a histogram of one size: give one --size")
    if options.pin and not set(options.pin) <= os.sched_getaffinity(0):
        usable = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
        options.parser.error(f"--pin: this process may use the cores {usable}")


def _pinned(options: argparse.Namespace) -> str:
    return f", pinned to cores {options.pin[0]} and {options.pin[1]}" if options.pin else ""


def _sizes(argument: str) -> list[int]:
    return list(SWEEP) if argument == "sweep" else [text.parse_size(part) for part in argument.split(",")]


def _positive(argument: str) -> int:
    if not argument.isdigit() or int(argument) == 0:
        raise argparse.ArgumentTypeError(f"'{argument}' is not a positive number")
    return int(argument)


def _cores(argument: str) -> tuple[int, int]:
    parts = argument.split(",")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"'{argument}' is not two cores: write 0,1")
    return int(parts[0]), int(parts[1])
