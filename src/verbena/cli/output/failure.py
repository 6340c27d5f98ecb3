"""Prints errors on standard error: as text, or with --json as one JSON document."""

from __future__ import annotations

import json
import sys
from typing import Any

from verbena.cli.output.colour import Colour, paint
from verbena.errors import ConfigurationError, VerbenaError


def print_failure(error: VerbenaError, *, as_json: bool) -> None:
    """Prints an exception. JSON has every field, and the mistakes of a wrong configuration."""
    if as_json:
        _dump(_document(error))
    else:
        print(f"{paint('verbena:', Colour.RED, sys.stderr)} {error}", file=sys.stderr)


def print_wrong_usage(command: str, what: str, *, remedy: str, as_json: bool) -> None:
    """Prints a usage error in one line; `remedy` is the command that prints the help."""
    if as_json:
        _dump({"code": "usage", "what": what, "remedy": remedy, "operation": command})
    else:
        head = paint(f"{command}: error:", Colour.RED, sys.stderr)
        print(f"{head} {what} (see `{remedy}`)", file=sys.stderr)


def _document(error: VerbenaError) -> dict[str, Any]:
    fields = {
        "code": error.code,
        "what": error.what,
        "remedy": error.remedy,
        "operation": error.operation,
        "peer": error.peer,
        "detail": error.detail,
        "causes": list(error.causes),
    }
    if isinstance(error, ConfigurationError):
        fields["problems"] = [problem.summary for problem in error.problems]
    return fields


def _dump(fields: dict[str, Any]) -> None:
    print(json.dumps({"error": fields}), file=sys.stderr)
