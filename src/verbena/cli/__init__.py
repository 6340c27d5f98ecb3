"""The `verbena` command.
One file per command, each with `add_parser` and `run`; folders hold what commands run and what they share.
May import any layer; no layer imports it. A command imports native code in `run` only: help is fast."""

from verbena.cli.app import main

__all__ = ["main"]
