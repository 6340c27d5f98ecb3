"""The `verbena` command.
One file per subcommand, each with `add_parser` and `run`; `measure/` holds what several benchmarks share.
May import any layer; no layer imports it."""

from verbena.cli.app import main

__all__ = ["main"]
