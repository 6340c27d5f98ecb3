"""The `verbena` command: what a person runs in a terminal.
One file per subcommand, each with `add_parser` and `run`; `measure/` holds what the measuring ones share.
Imports any layer; no layer imports it."""

from verbena.cli.app import main

__all__ = ["main"]
