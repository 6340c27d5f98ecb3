"""Measures every figure that has a bound, and writes docs/reference/bench.md and build/bench.json.

Each question is a program of its own beside this file and runs in fresh processes. A figure and its baseline
are measured in turns in one run, so what counts is their ratio: the machine's own noise is about ±20 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from figure import HEADER, Figure, add_seconds

from verbena.cli import text
from verbena.cli.measure import environment
from verbena.cli.progress import Progress

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "bench.md"
DATA = ROOT / "build" / "bench.json"

# The one list of questions: name, program and its arguments.
QUESTIONS = {
    "send-latency-pinned": ("send_latency.py", "--pin"),
    "send-latency": ("send_latency.py",),
    "small-reads": ("small_reads.py",),
    "copies": ("copies.py",),
    "wakeups": ("wakeups.py",),
    "leaks": ("leaks.py",),
    "iwarp-latency": ("iwarp_latency.py",),
    "iwarp-streams": ("iwarp_streams.py",),
    "iwarp-crowd": ("iwarp_crowd.py",),
    "quic": ("quic.py",),
    "sessions": ("sessions.py",),
    "fallback": ("fallback.py",),
    "far-memory": ("far_memory.py",),
    "registry": ("registry.py",),
    "registry-nodes": ("registry_nodes.py",),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_seconds(parser)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=f"questions whose name begins so; may be repeated ({', '.join(QUESTIONS)})",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the table, write no file")
    options = parser.parse_args()
    questions = [name for name in QUESTIONS if not options.only or name.startswith(tuple(options.only))]
    if not questions:
        parser.error(f"no question begins with {' or '.join(options.only)}")

    figures: list[Figure] = []
    failed: list[str] = []
    with Progress("bench") as progress:
        for index, question in enumerate(questions):
            progress.update(index / len(questions), note=question)
            try:
                figures += _ask(QUESTIONS[question], options.seconds)
            except subprocess.CalledProcessError as error:
                failed.append(f"{question}: {error.stderr.strip()}")
    if figures:
        print(text.table([HEADER, *(figure.cells for figure in figures)]))
    if not options.dry_run and not options.only and not failed:
        _write(figures)
    for reason in failed:
        print(f"could not measure {reason}", file=sys.stderr)
    return int(bool(failed) or any(figure.passed is False for figure in figures))


def _ask(command: tuple[str, ...], seconds: float) -> list[Figure]:
    program, *arguments = command
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).parent / program),
            "--json",
            "--seconds",
            str(seconds),
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return [Figure(**line) for line in json.loads(done.stdout)]


def _write(figures: list[Figure]) -> None:
    where = environment.describe()
    DATA.parent.mkdir(parents=True, exist_ok=True)
    document = {"environment": where, "figures": [vars(figure) for figure in figures]}
    DATA.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(_page(figures, where))


def _page(figures: list[Figure], where: dict[str, Any]) -> str:
    machine, versions = where["machine"], where["versions"]
    rows = [HEADER, ["---"] * len(HEADER), *(figure.cells for figure in figures)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"""\
# Figures

Written by `make bench`; do not edit. {machine["cpu"]}, {machine["cores"]} cores, Linux {versions["kernel"]},
Python {versions["python"]}, commit {where["commit"] or "none"}.

{table}

A figure and its baseline run in turns between the same two processes; both are medians over rounds. Machines
are noisy (about ±20 %), ratios much less so. "Pinned" means that each process may use one core only, a
different one for each, set in the same way (`sched_setaffinity`) for Verbena, the bare ring and UCX;
"unpinned" leaves it to the scheduler. The round trips of the ring and of SEND carry 64 bytes, copied in and
out, both sides spinning. UCX's round trip is twice the half that `ucx_perftest` prints, over its `posix`
shared memory; beside iwarp, over its `tcp` on loopback.

The bare TCP socket of the iwarp figures is in TCP_NODELAY; its ping-pong spins on recv(2), its stream makes
blocking calls of 1 MiB. The transfers beside it sleep on their completion queue, too, and keep four requests
in flight. CPU seconds are those of both processes, in and out of the kernel.
"""


if __name__ == "__main__":
    sys.exit(main())
