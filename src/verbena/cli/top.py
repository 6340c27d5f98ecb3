"""`verbena top`: shows sessions, wires, rates and latencies of a running node."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

from verbena.cli import remote, text, top_view
from verbena.cli.help.parser import Parser

EPILOG = """\
examples:
  verbena top 127.0.0.1:7471                    live, until Ctrl-C
  verbena top node7:7471 --once                 print the last second once
  verbena top node7:7471 --json | jq .rates     as JSON
  VERBENA_SESSION_SECRET=… verbena top HOST:PORT
"""
NOTES = """\
Rates and latencies cover the refresh interval. Latencies are those of the node's own calls, reads and writes.
The session of this command is not shown.
"""
ANSWER_S = 10.0


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "top",
        description="Shows the sessions of a running node, their wires, rates and latencies.",
        epilog=EPILOG,
        notes=NOTES,
    )
    parser.add_argument(
        "--interval",
        type=text.parse_seconds,
        default=1.0,
        metavar="SECONDS",
        help="refresh interval (default: 1)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print once and exit; the default without a terminal"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document and exit")
    remote.add_arguments(parser, optional="required")
    parser.set_defaults(parser=parser)
    return parser


def run(options: argparse.Namespace) -> int:
    if not options.address and options.json:
        options.parser.error("missing: the HOST:PORT of a running node")
    if not options.address:
        print(f"verbena: {remote.NO_ADDRESS.format(command='top')}", end="", file=sys.stderr)
        return 2
    live = sys.stdout.isatty() and not (options.once or options.json)
    with remote.open_session(options) as session, _screen(live):

        def fetch_status() -> dict[str, Any]:
            now = remote.ask(session, "verbena.status", ANSWER_S)
            return {**now, "looked_at": time.monotonic()}

        before = fetch_status()
        while True:
            time.sleep(options.interval)
            now = fetch_status()
            rates = top_view.compute_rates(before, now)
            if options.json:
                print(json.dumps({**now, "rates": rates}, indent=2))
                return 0
            width, height = shutil.get_terminal_size((110, 40)) if live else (110, 0)
            screen = top_view.render(now, rates, width=width, height=height)
            if not live:
                print(screen)
                return 0
            # Move home and clear each line's end and what is below, which avoids flicker.
            lines = "\x1b[K\n".join(screen.splitlines())
            print(f"\x1b[H{lines}\x1b[K\x1b[J", end="", flush=True)
            before = now


@contextlib.contextmanager
def _screen(live: bool) -> Iterator[None]:
    """Switches to the terminal's alternate screen without a cursor, and restores it afterwards."""
    if live:
        print("\x1b[?1049h\x1b[?25l\x1b[2J", end="", flush=True)
    try:
        yield
    finally:
        if live:
            print("\x1b[?25h\x1b[?1049l", end="", flush=True)
