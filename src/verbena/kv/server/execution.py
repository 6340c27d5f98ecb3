"""The state of the command that runs, and whether its effects are logged. Only the engine's thread uses
it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.kv.commands.declare import Command


class Execution:
    """`logging`: whether changes are written to the log. `command`: the command that runs; None: a blocked
    command is retried. `verbatim`: whether the command is logged as the client sent it. `in_transaction`:
    whether EXEC runs the command."""

    __slots__ = ("command", "in_transaction", "logging", "verbatim")

    def __init__(self) -> None:
        self.logging = False
        self.command: Command | None = None
        self.verbatim = False
        self.in_transaction = False
