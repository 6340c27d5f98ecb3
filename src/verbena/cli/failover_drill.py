"""`verbena failover-drill`: breaks a wire on purpose and reports how its sessions recovered."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from verbena.cli import remote, text
from verbena.cli.help.parser import Parser
from verbena.cli.output.failure import print_failure
from verbena.cli.progress import Waiting
from verbena.errors import RemoteError

EPILOG = """\
examples:
  verbena failover-drill                                 two local processes with checked traffic
  verbena failover-drill node7:7471                      all sessions of a running node
  verbena failover-drill node7:7471 --wire ibv --rest 10s
  verbena failover-drill node7:7471 --session 5f3a…      one session: `verbena top` shows the ids

exit status: 0 every session is back on its wire, 1 one is not or the node refused, 2 wrong usage
"""
NOTES = """\
A running node takes part only if its [session] allow_drill is true, and only for authenticated peers.
Sessions continue on the next wire and return when the broken wire is usable again.
"""
MAX_WAIT_S = 4000.0
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "min": 60.0}


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "failover-drill",
        description="Breaks a wire of a running node on purpose and reports how its sessions recovered.",
        epilog=EPILOG,
        notes=NOTES,
    )
    parser.add_argument(
        "--wire", metavar="WIRE", help="break links on this wire: shm, ibv, iwarp (default: on any)"
    )
    parser.add_argument(
        "--rest",
        type=_parse_rest,
        default=5.0,
        metavar="TIME",
        help="how long the wire stays unusable: 500ms, 0 (default: 5s)",
    )
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--session", metavar="ID", help="break the link of this session only")
    scope.add_argument("--all", action="store_true", help="break the links of all sessions (default)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    remote.add_arguments(parser, optional="default: a drill between two local processes")
    parser.set_defaults(parser=parser)
    return parser


def run(options: argparse.Namespace) -> int:
    from verbena.transport.opening import WIRES

    options.wire = WIRES.get(options.wire, options.wire)
    if not options.address:
        if options.session:
            options.parser.error("--session needs the HOST:PORT of a running node")
        from verbena.cli.drill import standalone as drill_here

        return drill_here.run(options)
    with remote.open_session(options) as session:
        try:
            with Waiting("waiting until the sessions are back"):
                answer = remote.ask(
                    session,
                    "verbena.drill",
                    MAX_WAIT_S,
                    wire=options.wire,
                    rest_s=options.rest,
                    session=options.session,
                )
        except RemoteError as error:
            if options.json:
                print_failure(error, as_json=True)
            else:
                print(f"verbena: the node refused: {remote.refusal(error)}", file=sys.stderr)
            return 1
    drilled = answer["sessions"]
    if options.json:
        print(json.dumps(answer, indent=2))
    elif drilled:
        print(table(drilled))
        print(verdict(drilled))
    else:
        where = options.wire or "any wire"
        print(f"no link was broken: {answer['node']} has no other session on {where}")
    return 0 if drilled and all(one["ok"] for one in drilled) else 1


def table(drilled: Sequence[Mapping[str, Any]]) -> str:
    rows = [["SESSION", "broken wire", "recovered in", "on", "back in", "links", "state"]]
    for one in drilled:
        rows.append(
            [
                f"{_clean(one['peer_name'])} ({one['session']})",
                one["before"],
                _seconds(one["resumed_s"]),
                one["after"] or "–",
                _seconds(one["back_s"]),
                str(one["links"]),
                one["state"],
            ]
        )
    return text.table(rows)


def verdict(drilled: Sequence[Mapping[str, Any]]) -> str:
    lost = [one for one in drilled if one["resumed_s"] is None]
    away = [one for one in drilled if one["resumed_s"] is not None and one["back_s"] is None]
    reasons = "".join(
        f"\n  {one['session']}: {_clean(one['reason']) or one['state']}" for one in (*lost, *away)
    )
    if lost:
        return f"{len(lost)} of {len(drilled)} sessions did not recover{reasons}"
    if away:
        return (
            f"all sessions recovered, {len(away)} of {len(drilled)} are not back on their wire yet{reasons}"
        )
    return f"{len(drilled)} of {len(drilled)} sessions recovered and are back on their wire"


def _seconds(seconds: float | None) -> str:
    return "never" if seconds is None else text.duration(seconds * 1e9)


def _clean(words: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def _parse_rest(argument: str) -> float:
    """Parses 5, 5s, 500ms or 2min; anything else is a usage error."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|ms|min)?", argument.strip())
    seconds = float(match[1]) * _UNITS[match[2] or ""] if match else -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"'{argument}' is not a time up to an hour: write 5s, 500ms, 2min")
    return seconds
