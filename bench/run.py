"""Measures every figure that has a bound, and writes docs/reference/bench*.md and build/bench*.

    python -m bench.run [--only NAME]     (in the project's folder; `make bench` builds first)

Each question is a program of its own in this folder and runs in fresh processes. A figure and its baseline
are measured in turns in one run, so what counts is their ratio: the machine's own noise is about ±20 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import report
from bench.figure import HEADER, Figure, add_seconds, end_tidily
from verbena.cli import text
from verbena.cli.measure import environment
from verbena.cli.progress import Progress

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "reference"
DATA = ROOT / "build"

# The one list of questions: name, module of bench, arguments.
QUESTIONS = {
    "send-latency-pinned": ("verbs.send_latency", "--pin"),
    "send-latency": ("verbs.send_latency",),
    "small-reads": ("verbs.small_reads",),
    "copies": ("verbs.copies",),
    "wakeups": ("verbs.wakeups",),
    "leaks": ("verbs.leaks",),
    "iwarp-latency": ("wires.iwarp_latency",),
    "iwarp-streams": ("wires.iwarp_streams",),
    "iwarp-crowd": ("wires.iwarp_crowd",),
    "quic": ("wires.quic",),
    "sessions": ("transport.sessions",),
    "scale": ("transport.scale",),
    "peers": ("transport.peers",),  # NIXL and Mooncake, if BENCH_PEERS_PYTHON has them
    "fallback": ("transport.fallback",),
    "far-memory": ("far_memory",),
    "migration": ("kv.migration",),
    "registry": ("registry.server",),
    "registry-nodes": ("registry.nodes",),
    "kv": ("kv.store",),
    "kv-redis-py": ("kv.redis_py",),
    "leases": ("kv.leases",),
    "replication": ("kv.replication",),
}
# Questions with their own page; the others share bench.md. A page is written only if all its questions were
# run.
OWN_PAGES = {
    "kv": "bench-kv",
    "kv-redis-py": "bench-kv",
    "registry": "bench-registry",
    "registry-nodes": "bench-registry",
}

TITLES = {
    "bench": ("Figures", "make bench"),
    "bench-kv": ("The store's figures", "make bench ARGS='--only kv'"),
    "bench-registry": ("The registry's figures", "make bench ARGS='--only registry'"),
}
NOTES = {
    "bench": """\
A figure and its baseline run in turns between the same two processes; both are medians over rounds. Machines
are noisy (about ±20 %), ratios much less so. "Pinned" means that each process may use one core only, a
different one for each, set in the same way (`sched_setaffinity`) for Verbena, the bare ring and UCX;
"unpinned" leaves it to the scheduler. The round trips of the ring and of SEND carry 64 bytes, copied in and
out, both sides spinning. UCX's round trip is twice the half that `ucx_perftest` prints, over its `posix`
shared memory; beside iwarp, over its `tcp` on loopback.

The bare TCP socket of the iwarp figures is in TCP_NODELAY; its ping-pong spins on recv(2), its stream makes
blocking calls of 1 MiB. The transfers beside it sleep on their completion queue, too, and keep four requests
in flight. CPU seconds are those of both processes, in and out of the kernel.

One-sided transfers beside NIXL and Mooncake are blocking calls from Python, one at a time. Each system reuses
a buffer at either end; NIXL prepares its requests once and has no progress thread, because both ends poll.
Verbena's local buffer is a numpy array, the target's is from `node.allocate`. All have the bytes in place at
the end of a WRITE; only Verbena verifies those of long transfers, by CRC32C. In the ratio of speeds the best
peer counts. `BENCH_PEERS_PYTHON` names the interpreter of the peers.
""",
    "bench-kv": """\
`verbena serve` and the distribution's redis-server, both with their defaults, in memory only, on loopback of
one machine; medians over turns in which they alternate. "TCP" is redis-benchmark, with random keys among
100,000, in nine pairs of turns (three for its own limit); a ratio is the median of the pairs' ratios, with
the lowest and the highest in parentheses. It is one thread: when its processor is full, the rate is its own,
however fast the server is, and what a request costs the server says more. The shm figures are of one blocking
`kv.Client` in Python, timed in Python; beside them a blocking client in C++ over TCP, or redis-py where it
says so. `verbena kv bench` compares servers of your own.
""",
    "bench-registry": """\
`verbena registry` and the distribution's docker-registry, both with their defaults, on one disk and loopback
of one machine, in turns. Clients are curl and bare sockets, the same for both; CPU seconds are the server's
own. Between nodes: a blob fetched by the shm wire, verified and stored, beside curl into a file and sha256sum
from a docker-registry, which is what two such nodes would do; there CPU seconds are those of both ends.
""",
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
    parser.add_argument(
        "--report",
        type=Path,
        default=DATA / "bench-report.html",
        help="where to put the page of this run, its raw data beside it (default: build/bench-report.html)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the table, write no file")
    options = parser.parse_args()
    questions = [name for name in QUESTIONS if not options.only or name.startswith(tuple(options.only))]
    if not questions:
        parser.error(f"no question begins with {' or '.join(options.only)}")

    end_tidily()
    load = os.getloadavg()[0]  # before this run adds to it
    answers: dict[str, list[Figure]] = {}
    failed: list[str] = []
    with Progress("bench") as progress:
        for index, question in enumerate(questions):
            progress.update(index / len(questions), note=question)
            try:
                answers[question] = _ask(QUESTIONS[question], options.seconds)
            except subprocess.CalledProcessError as error:
                failed.append(f"{question}: {error.stderr.strip()}")
    figures = [figure for answer in answers.values() for figure in answer]
    if figures:
        print(text.table([HEADER, *(figure.cells for figure in figures)]))
    if not options.dry_run:
        for name in dict.fromkeys(["bench", *OWN_PAGES.values()]):
            asked = [question for question in QUESTIONS if OWN_PAGES.get(question, "bench") == name]
            if set(asked) <= set(answers):
                _write(name, [figure for question in asked for figure in answers[question]], load)
        report.write(options.report, answers, failed, {**environment.describe(), "load": load})
        print(f"report: {options.report}")
    for reason in failed:
        print(f"could not measure {reason}", file=sys.stderr)
    return int(bool(failed) or any(figure.passed is False for figure in figures))


def _ask(question: tuple[str, ...], seconds: float) -> list[Figure]:
    module, *arguments = question
    command = [sys.executable, "-m", f"bench.{module}", "--json", "--seconds", str(seconds), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            output, errors = process.communicate()
        except BaseException:
            process.terminate()  # lets it stop its own servers
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output, errors)
    return [Figure(**line) for line in json.loads(output)]


def _write(name: str, figures: list[Figure], load: float) -> None:
    where = {**environment.describe(), "load": load}
    DATA.mkdir(parents=True, exist_ok=True)
    document = {"environment": where, "figures": [vars(figure) for figure in figures]}
    (DATA / f"{name}.json").write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / f"{name}.md").write_text(_page(name, figures, where))


def _page(name: str, figures: list[Figure], where: dict[str, Any]) -> str:
    machine, versions = where["machine"], where["versions"]
    rows = [HEADER, ["---"] * len(HEADER), *(figure.cells for figure in figures)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    title, command = TITLES[name]
    return f"""\
# {title}

Written by `{command}`; do not edit. {machine["cpu"]}, {machine["cores"]} cores, Linux {versions["kernel"]},
Python {versions["python"]}, commit {where["commit"] or "none"}. Load before: {where["load"]:.1f}.

{table}

{NOTES[name]}"""


if __name__ == "__main__":
    sys.exit(main())
