"""Persistence: SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE, WAITAOF, DEBUG RELOAD, DEBUG LOADAOF."""

from __future__ import annotations

from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, NotAnInteger, Reply
from verbena.kv.commands.server.monitoring import allow_debug
from verbena.kv.server.blocked_clients import DISK, REPLICAS
from verbena.kv.server.call import Call
from verbena.kv.storage.persistence import IN_PROGRESS, Persistence

ADMIN = "admin noscript no_async_loading"
OFF = "ERR nothing is kept on disk: kv.persistence.dir is not set"


def _persistence(call: Call) -> Persistence:
    persistence = call.server.services.persistence
    if persistence is None or not persistence.is_on:
        raise CommandError(OFF)
    return persistence


@command(
    "SAVE",
    arity=1,
    flags=ADMIN + " no_multi",
    group="server",
    summary="Writes a snapshot and blocks the server meanwhile.",
)
def save(call: Call) -> Reply:
    _persistence(call).save()
    return "OK"


@command(
    "BGSAVE",
    arity=-1,
    flags=ADMIN,
    group="server",
    summary="Starts a snapshot in the background.",
)
def bgsave(call: Call, *args: bytes) -> Reply:
    if len(args) > 1 or (args and args[0].upper() != b"SCHEDULE"):
        raise InvalidSyntax()
    _persistence(call).begin()
    return "Background saving started"


@command(
    "BGREWRITEAOF",
    arity=1,
    flags=ADMIN,
    group="server",
    summary="Starts a snapshot in the background; a new log starts after it.",
)
def bgrewriteaof(call: Call) -> Reply:
    persistence = _persistence(call)
    if persistence.is_saving:
        raise CommandError(IN_PROGRESS.replace("save", "append only file rewriting"))
    persistence.begin()
    return "Background append only file rewriting started"


@command(
    "LASTSAVE",
    arity=1,
    flags="loading stale fast",
    group="server",
    categories="dangerous",
    summary="Returns the Unix time of the last snapshot.",
)
def lastsave(call: Call) -> Reply:
    persistence = call.server.services.persistence
    return persistence.last_save_s if persistence is not None else int(call.server.stats.started)


@command(
    "WAITAOF", arity=4, flags="blocking", group="server", since="7.2.0",
    summary="Waits until earlier writes are on disk here and on a number of replicas.",
)  # fmt: skip
def waitaof(call: Call, local: bytes, replicas: bytes, timeout: bytes) -> Reply:
    try:
        wanted, copies, wait_ms = int(local), int(replicas), int(timeout)
    except ValueError:
        raise NotAnInteger() from None
    if wait_ms < 0:
        raise CommandError("ERR timeout is negative")
    if not 0 <= wanted <= 1 or copies < 0:
        raise CommandError("ERR value is out of range, must be between 0 and 1")
    persistence, replication = call.server.services.persistence, call.server.services.replication
    if replication is not None and replication.link is not None:
        raise CommandError(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are"
            " just local and are not propagated."
        )
    on = persistence is not None and persistence.is_on
    if wanted and not on:
        raise CommandError("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.")
    lsn = persistence.lsn if persistence is not None else 0
    offset = replication.written_offset if replication is not None else 0

    def count() -> tuple[int, int]:
        here = int(on and persistence is not None and persistence.durable_lsn >= lsn)
        there = replication.count(offset, durable=True) if replication is not None else 0
        return here, there

    def answer(call: Call) -> Reply | None:
        here, there = count()
        return [here, there] if here >= wanted and there >= copies else None

    at_once = answer(call)
    if at_once is not None:
        return at_once
    if replication is not None and copies:
        replication.await_receipts()
    return call.server.blocking.block(
        call, [DISK, REPLICAS], answer, wait_ms / 1000, [*count()], late=lambda: [*count()]
    )


@command(
    "DEBUG RELOAD",
    arity=-2,
    flags=ADMIN,
    group="server",
    summary="Writes a snapshot, discards all data and reloads it.",
)
def debug_reload(call: Call, *args: bytes) -> Reply:
    allow_debug(call)
    options = {arg.upper() for arg in args}
    if options - {b"NOSAVE", b"NOFLUSH", b"MERGE"}:
        raise InvalidSyntax()
    persistence = _persistence(call)
    if b"NOSAVE" not in options:
        persistence.save()
    persistence.reload()
    return "OK"


@command(
    "DEBUG LOADAOF",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Discards all data and reloads it from the snapshot and the log.",
)
def debug_loadaof(call: Call) -> Reply:
    allow_debug(call)
    _persistence(call).reload()
    return "OK"
