"""Another node's log, applied here: what native code does not know of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from verbena import _native
from verbena.kv.commands.declare import find
from verbena.kv.commands.replies import CommandError

if TYPE_CHECKING:
    from verbena.kv.server.server import Server

log = logging.getLogger("verbena.kv")


def applier(server: Server, *, lsn: int = 0, slots: Iterable[int] | None = None) -> _native.kv.LogApplier:
    """Applies the stream of another server's base_copy() and follower to this one. The source's records up to
    `lsn` are here already; `slots`: the stream is of these alone."""

    def run(number: int, database: int, argv: list[bytes]) -> bool:
        native = server.engine.client(number)
        native.database = database
        client = server.clients.ensure(number)
        try:
            command = find(argv)
            if command is None:
                log.error("another node's log has a command that is not known here: %r", argv[0])
                return False
            return not isinstance(server.perform(client, command, argv), CommandError)
        finally:
            server.clients.remove(number)

    return _native.kv.LogApplier(server.engine, run, lsn=lsn, slots=slots)
