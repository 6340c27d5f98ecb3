"""Applies another node's log: native code calls back for commands that only Python has."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv.commands.declare import find
from verbena.kv.commands.replies import CommandError
from verbena.kv.server.server import NO_MEMORY

if TYPE_CHECKING:
    from verbena.kv.server.server import Server

log = logging.getLogger("verbena.kv")


def make_applier(
    server: Server, *, lsn: int = 0, slots: Iterable[int] | None = None
) -> _native.kv.LogApplier:
    """Returns an applier of another server's base copy and log to this server. `lsn`: records up to there are
    applied already; `slots`: the stream has records of these alone."""

    def run(number: int, database: int, argv: list[bytes]) -> bool:
        native = server.engine.client(number)
        native.database = database
        client = server.clients.ensure(number)
        try:
            command = find(argv)
            if command is None:
                log.error("the log of another node has an unknown command: %r", argv[0])
                return False
            reply = server.perform(client, command, argv)
            if isinstance(reply, CommandError) and reply.text == NO_MEMORY:
                raise MemoryError(NO_MEMORY)  # ends the link: this node lacks the effect
            return not isinstance(reply, CommandError)
        finally:
            server.clients.remove(number)

    return _native.kv.LogApplier(server.engine, run, lsn=lsn, slots=slots)
