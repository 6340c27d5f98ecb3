"""How long is a session without a link when its wire breaks, and is anything lost or done twice?"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from pathlib import Path

from bench.figure import Figure, program

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "transport"))
from soak import Account, soak

PATIENCE_S = 600.0


def measure(options: argparse.Namespace) -> list[Figure]:
    figures = []
    share = options.breaks // 2
    for wire in ("shm", "iwarp"):
        account = asyncio.run(soak(PATIENCE_S, wire, seed=1, breaks=share))
        figures.append(_figure(wire, account))
    return figures


def _figure(wire: str, account: Account) -> Figure:
    resumed = sorted(account.resumed_ms)
    work = f"{account.calls} calls, {account.sums} additions, {account.transfers} transfers"
    return Figure(
        f"{wire}: {account.breaks} breaks at random under load",
        f"{len(account.wrong)} lost or doubled; back after {statistics.median(resumed):.1f} ms (median), "
        f"{resumed[-1]:.0f} ms (longest)",
        work,
        "–",
        "0 lost, 0 doubled, 0 hung",
        not account.wrong,
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--breaks", type=int, default=1000, help="in all (1000)")


if __name__ == "__main__":
    program(measure, description=__doc__ or "", arguments=arguments)
