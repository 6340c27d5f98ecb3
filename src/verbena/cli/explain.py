"""`verbena explain`: what a status, an error's code or a line of a log means, and what to do."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from typing import Any

from verbena._telling_apart import TELLING_APART
from verbena.cli.explanations.foreign import FOREIGN
from verbena.cli.explanations.recognise import recognise
from verbena.errors import EXPLANATIONS, WcStatus, error_class, explain

EPILOG = """\
examples:
  verbena explain RETRY_EXC_ERR              a completion status; IBV_WC_RETRY_EXC_ERR and 12 are equivalent
  verbena explain memlock                    a code, as printed in [brackets] at the end of an error
  verbena explain 'ibv_reg_mr failed: Cannot allocate memory'            a line of a log of any program
  journalctl -u verbena -n 100 | verbena explain -                       every failure in the input, once each
  verbena explain --list                     all names

exit status: 0 if something was recognised, else 1
"""
WIDTH = 100


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        "explain",
        help="explain an error: cause and remedy",
        description="Explains statuses and events of RDMA, errors of Verbena, its store and registry, and"
        " lines of logs that speak of any.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what", nargs="*", metavar="STATUS", help="a name, a number or any text; - reads standard input"
    )
    parser.add_argument("--list", action="store_true", help="list all statuses and codes, one per line")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def run(options: argparse.Namespace) -> int:
    if options.list:
        print("\n".join(f"{row.code:<30} {row.what}" for row in (*EXPLANATIONS.values(), *FOREIGN.values())))
        return 0
    if not options.what:
        print("verbena explain: say what is to be explained, or --list", file=sys.stderr)
        return 2
    text = " ".join(options.what)
    codes = recognise(sys.stdin.read() if text == "-" else text)
    if options.json:
        print(json.dumps([as_json(code) for code in codes], indent=2))
    else:
        print("\n\n".join("\n".join(lines(code)) for code in codes), end="\n" if codes else "")
    if not codes:
        print(f"verbena: no known failure in {text[:80]!r}; `verbena explain --list`", file=sys.stderr)
    return 0 if codes else 1


def as_json(code: str) -> dict[str, Any]:
    row = FOREIGN.get(code) or explain(code)
    return {
        "code": row.code,
        "status": int(WcStatus[code]) if code in WcStatus.__members__ else None,
        "raises": _raises(code),
        "what": row.what,
        "causes": list(row.causes),
        "telling_apart": list(TELLING_APART.get(code, ())),
        "remedy": row.remedy,
    }


def lines(code: str) -> list[str]:
    """The explanation as a person reads it."""
    row = FOREIGN.get(code) or explain(code)
    number = f" ({WcStatus[code].value}, IBV_WC_{code})" if code in WcStatus.__members__ else ""
    found = [f"{row.code}{number}", *_wrapped(row.what, "  ", "  "), "", "  causes, the likeliest first"]
    for place, cause in enumerate(row.causes, start=1):
        found += _wrapped(cause, f"  {place}. ", "     ")
    if code in TELLING_APART:
        found += ["", "  how to tell them apart"]
        for look in TELLING_APART[code]:
            found += _wrapped(look, "  - ", "    ")
    found += ["", "  remedy", *_wrapped(row.remedy, "  ", "  ")]
    if raised := _raises(code):
        found += ["", f"  in Python: errors.{raised}"]
    return found


def _raises(code: str) -> str | None:
    """The class of our own error; none for what is no failure, or not ours."""
    if code == WcStatus.SUCCESS.name or code in FOREIGN:
        return None
    return error_class(code).__name__


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
