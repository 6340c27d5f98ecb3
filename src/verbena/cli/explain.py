"""`verbena explain`: prints what a status, an error code or a line of a log means, and the remedy."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from typing import Any

from verbena import errors
from verbena.cli.explanations.foreign import FOREIGN
from verbena.cli.help.parser import Parser
from verbena.errors import EXPLANATIONS, explain

EPILOG = """\
examples:
  verbena explain RETRY_EXC_ERR         a completion status; also as IBV_WC_RETRY_EXC_ERR or 12
  verbena explain memlock               an error code: the word in [brackets] of an error message
  verbena explain 'ibv_reg_mr failed: Cannot allocate memory'      a line of any program's log
  journalctl -u verbena -n 100 | verbena explain -                 each failure in a log, once
  verbena explain --list                all statuses and codes

exit status: 0 if a failure was recognised, 1 if none was, 2 without an argument
"""
WIDTH = 100


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "explain",
        description="Explains RDMA statuses and events, and errors of Verbena. Finds them in logs, too.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "what", nargs="*", metavar="STATUS", help="a name, a number or any text; - reads standard input"
    )
    parser.add_argument("--list", action="store_true", help="list all statuses and codes, one per line")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(parser=parser)
    return parser


def run(options: argparse.Namespace) -> int:
    if options.list and options.json:
        print(json.dumps([as_json(code) for code in (*EXPLANATIONS, *FOREIGN)], indent=2))
        return 0
    if options.list:
        print("\n".join(f"{row.code:<30} {row.what}" for row in (*EXPLANATIONS.values(), *FOREIGN.values())))
        return 0
    if not options.what:
        options.parser.error("missing: STATUS, a name, a number or a text")
    text = " ".join(options.what)
    from verbena.cli.explanations.recognise import recognise  # native code, which help does not need

    codes = recognise(sys.stdin.read() if text == "-" else text)
    if options.json:
        print(json.dumps([as_json(code) for code in codes], indent=2))
    else:
        print("\n\n".join("\n".join(lines(code)) for code in codes), end="\n" if codes else "")
    if not codes:
        print(
            f"verbena: no known failure in {text[:80]!r}; `verbena explain --list` prints all",
            file=sys.stderr,
        )
    return 0 if codes else 1


def as_json(code: str) -> dict[str, Any]:
    row = FOREIGN.get(code) or explain(code)
    return {
        "code": row.code,
        "status": int(errors.WcStatus[code]) if code in errors.WcStatus.__members__ else None,
        "raises": row.raises.__name__ if row.raises else None,
        "what": row.what,
        "causes": list(row.causes),
        "checks": list(row.checks),
        "remedy": row.remedy,
    }


def lines(code: str) -> list[str]:
    """Formats an explanation for a terminal."""
    row = FOREIGN.get(code) or explain(code)
    number = f" ({errors.WcStatus[code].value}, IBV_WC_{code})" if code in errors.WcStatus.__members__ else ""
    found = [f"{row.code}{number}", *_wrapped(row.what, "  ", "  "), "", "  causes, likeliest first"]
    for place, cause in enumerate(row.causes, start=1):
        found += _wrapped(cause, f"  {place}. ", "     ")
    if row.checks:
        found += ["", "  checks"]
        for check in row.checks:
            found += _wrapped(check, "  - ", "    ")
    found += ["", "  remedy", *_wrapped(row.remedy, "  ", "  ")]
    if row.raises:
        found += ["", f"  in Python: errors.{row.raises.__name__}"]
    return found


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
