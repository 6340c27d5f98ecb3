"""`verbena bench`: measures latency, rate or bandwidth between two processes beside a raw baseline."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from verbena.cli import text
from verbena.cli.help.parser import Parser

EPILOG = """\
examples:
  verbena bench latency --size 64                         SEND round trips, C++ loop
  verbena bench rate --op write --size 64                 operations per second with a full queue
  verbena bench bandwidth --op read --size sweep --plot bandwidth.png
"""
NOTES = """\
more examples:
  verbena bench latency --op read --size 8 --mode python  blocking one-sided reads from Python
  verbena bench latency --plot latency.png                with a histogram
  verbena bench latency --pin 0,1 --json                  each process on its own core
  verbena bench bandwidth --provider iwarp:lo --op write  over TCP, against a bare TCP socket

The baseline runs between the same two processes, alternating every tenth of a second: a bare
shared-memory ring for latency and rate, memcpy between two shared mappings for bandwidth; for the iwarp
wire, a bare TCP socket. The latency of SEND is a round trip; that of the other operations is one operation.
"""

SWEEP = tuple(4**power for power in range(3, 13))  # 64 B to 16 MiB
OPERATIONS = ("send", "write", "read", "atomic")


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "bench",
        description="Measures a wire between two processes, beside the raw baseline in the same run.",
        epilog=EPILOG,
        notes=NOTES,
    )
    parser.add_argument("what", choices=("latency", "rate", "bandwidth"), help="what to measure")
    parser.add_argument(
        "--provider", default="shm", metavar="NAME", help="provider or provider:device (default: shm)"
    )
    parser.add_argument(
        "--size",
        type=_sizes,
        metavar="SIZES",
        help="bytes per operation: 64, 4K, a list 64,4K, or 'sweep'",
    )
    parser.add_argument("--op", choices=OPERATIONS, help="default: send; for bandwidth, read")
    parser.add_argument(
        "--mode",
        choices=("native", "python", "async"),
        default="native",
        help="C++, blocking Python or awaited Python (default: native)",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--iterations", type=_positive, metavar="N", help="operations per size")
    length.add_argument("--seconds", type=text.parse_seconds, metavar="S", help="time per size (default: 2)")
    batch = parser.add_argument(
        "--batch",
        type=_positive,
        default=1,
        metavar="N",
        help="operations per latency sample: above 1, finer than the clock but without tails (default: 1)",
    )
    pin = parser.add_argument(
        "--pin", type=_cores, metavar="A,B", help="pin this process to core A, the other to core B"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a plot (PNG): histogram or curve")
    parser.hide(batch, pin)
    parser.set_defaults(parser=parser)
    return parser


def run(options: argparse.Namespace) -> int:
    _complete(options)
    from verbena.cli.measure import wires

    return wires.run(options)


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
