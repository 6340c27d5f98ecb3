"""The server as a whole: INFO, CONFIG, FLUSHDB, FLUSHALL, SWAPDB, MONITOR, SHUTDOWN."""

from __future__ import annotations

import time

from verbena.kv.commands.arguments import display, integer, text
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NO_REPLY, CommandError, InvalidSyntax, Reply, Verbatim
from verbena.kv.server import info as info_text
from verbena.kv.server.call import Call
from verbena.kv.values.glob import matches

INTROSPECTION = "loading stale"
ADMIN = "admin noscript loading stale"


@command(
    "INFO",
    arity=-1,
    flags=INTROSPECTION,
    group="server",
    categories="dangerous",
    summary="Returns information and statistics about the server.",
)
def info(call: Call, *sections: bytes) -> Reply:
    return Verbatim(info_text.render(call.server, [display(arg).lower() for arg in sections]))


@command(
    "DBSIZE",
    arity=1,
    flags="readonly fast",
    group="server",
    categories="keyspace",
    summary="Returns the number of keys in the database.",
)
def dbsize(call: Call) -> Reply:
    return len(call.db)


@command(
    "TIME",
    arity=1,
    flags="loading stale fast",
    group="server",
    summary="Returns the server's Unix time in seconds and microseconds.",
    since="2.6.0",
)
def time_(call: Call) -> Reply:
    seconds, rest = divmod(time.time_ns() // 1000, 1_000_000)
    return [b"%d" % seconds, b"%d" % rest]


def _check_mode(args: tuple[bytes, ...]) -> None:
    """Checks the option ASYNC or SYNC. It has no effect: memory is always freed in small steps."""
    if len(args) > 1 or (args and args[0].upper() not in (b"ASYNC", b"SYNC")):
        raise InvalidSyntax()


@command(
    "FLUSHDB",
    arity=-1,
    flags="write",
    explicit=True,
    group="server",
    categories="keyspace dangerous",
    summary="Deletes all keys of the current database.",
)
def flushdb(call: Call, *mode: bytes) -> Reply:
    _check_mode(mode)
    call.db.clear()
    if call.server.execution.logging:
        call.server.engine.log(call.db.index, (b"FLUSHDB",))
    return "OK"


@command(
    "FLUSHALL",
    arity=-1,
    flags="write",
    explicit=True,
    group="server",
    categories="keyspace dangerous",
    summary="Deletes all keys of all databases.",
)
def flushall(call: Call, *mode: bytes) -> Reply:
    _check_mode(mode)
    for database in call.server.databases:
        if len(database):
            database.clear()
    call.server.engine.invalidate_all()  # also if all databases were empty
    if call.server.execution.logging:
        call.server.engine.log(call.db.index, (b"FLUSHALL",))
    return "OK"


@command(
    "SWAPDB",
    arity=3,
    flags="write fast",
    explicit=True,
    group="server",
    categories="keyspace dangerous",
    summary="Swaps two databases.",
    since="4.0.0",
)
def swapdb(call: Call, one: bytes, other: bytes) -> Reply:
    first = integer(one, error="ERR invalid first DB index")
    second = integer(other, error="ERR invalid second DB index")
    if not (0 <= first < len(call.server.databases) and 0 <= second < len(call.server.databases)):
        raise CommandError("ERR DB index is out of range")
    call.server.engine.swap(first, second)
    call.server.blocking.signal_all((first, second))
    if call.server.execution.logging:
        call.server.engine.log(call.db.index, (b"SWAPDB", one, other))
    return "OK"


@command(
    "CONFIG GET",
    arity=-3,
    flags=ADMIN,
    group="server",
    summary="Returns the values of configuration parameters.",
    since="2.0.0",
)
def config_get(call: Call, *patterns: bytes) -> Reply:
    parameters = call.server.parameters
    return {
        name.encode(): parameters.show(name).encode("utf-8", "surrogateescape")
        for name in parameters.names()
        if any(matches(pattern.lower(), name.encode()) for pattern in patterns)
    }


@command(
    "CONFIG SET",
    arity=-4,
    flags=ADMIN,
    group="server",
    summary="Sets configuration parameters; on an error, none of them changes.",
    since="2.0.0",
)
def config_set(call: Call, *args: bytes) -> Reply:
    if len(args) % 2:
        raise CommandError("ERR wrong number of arguments for 'config|set' command")
    pairs = [(display(name), text(value)) for name, value in zip(args[::2], args[1::2], strict=True)]
    call.server.parameters.set(pairs)
    return "OK"


@command(
    "CONFIG RESETSTAT",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Resets the statistics of the server.",
    since="2.0.0",
)
def config_resetstat(call: Call) -> Reply:
    call.server.stats.reset()
    return "OK"


@command(
    "CONFIG REWRITE",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Writes the changed parameters to the configuration file.",
    since="2.8.0",
)
def config_rewrite(call: Call) -> Reply:
    if not call.server.parameters.file:
        raise CommandError("ERR The server is running without a config file")
    from verbena.kv.server.config_rewrite import rewrite

    try:
        rewrite(call.server.parameters.file, call.server.parameters.for_file())
    except (OSError, ValueError) as error:
        raise CommandError(f"ERR Rewriting config file: {error}") from error
    return "OK"


@command(
    "MONITOR",
    arity=1,
    flags=ADMIN,
    group="server",
    summary="Streams every command that the server processes.",
)
def monitor(call: Call) -> Reply:
    call.client.native.reply("OK")
    call.server.clients.monitors.add(call.client)
    return NO_REPLY


@command(
    "SHUTDOWN", arity=-1, flags=ADMIN + " no_multi allow_busy", group="server", summary="Stops the server."
)
def shutdown(call: Call, *args: bytes) -> Reply:
    chosen = {arg.upper() for arg in args}
    if chosen - {b"SAVE", b"NOSAVE", b"NOW", b"FORCE", b"ABORT"} or {b"SAVE", b"NOSAVE"} <= chosen:
        raise InvalidSyntax()
    if b"ABORT" in chosen:
        raise CommandError("ERR No shutdown in progress.")
    save = True if b"SAVE" in chosen else False if b"NOSAVE" in chosen else None
    try:
        for function in call.server.services.before_shutdown:
            function(save)
    except CommandError:
        if b"FORCE" not in chosen:
            raise
    call.client.native.close()
    call.server.services.shut_down()
    return NO_REPLY


@command(
    "LOLWUT",
    arity=-1,
    flags="readonly fast",
    group="server",
    summary="Returns a drawing and the version of the server.",
    since="5.0.0",
)
def lolwut(call: Call, *args: bytes) -> Reply:
    from verbena import __version__

    leaves = ["   \\ | /", "  -- o --   verbena", "   / | \\", "     |", "   ~ | ~"]
    return Verbatim("".join(f"{line}\n" for line in (*leaves, f"Verbena ver. {__version__}")).encode())
