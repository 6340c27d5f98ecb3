"""CLIENT: inspects and controls connections."""

from __future__ import annotations

from verbena.kv.commands.arguments import display, integer, text
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NO_REPLY, CommandError, InvalidSyntax, Reply, Verbatim
from verbena.kv.commands.server.connection import valid_name
from verbena.kv.server.call import Call
from verbena.kv.server.client_info import describe, kind
from verbena.kv.server.clients import Client

OWN = "noscript loading stale"
OTHERS = "admin noscript loading stale"
KINDS = {
    b"NORMAL": "normal",
    b"PUBSUB": "pubsub",
    b"MASTER": "master",
    b"REPLICA": "replica",
    b"SLAVE": "replica",
}
BAD_NAME = "ERR Client names cannot contain spaces, newlines or special characters."


@command(
    "CLIENT ID",
    arity=2,
    flags=OWN,
    group="connection",
    summary="Returns the id of the connection.",
    since="5.0.0",
)
def id_(call: Call) -> Reply:
    return call.client.id


@command(
    "CLIENT GETNAME", arity=2, flags=OWN, group="connection", summary="Returns the name of the connection."
)
def getname(call: Call) -> Reply:
    return call.client.native.name.encode() or None


@command("CLIENT SETNAME", arity=3, flags=OWN, group="connection", summary="Sets the name of the connection.")
def setname(call: Call, name: bytes) -> Reply:
    call.client.native.name = valid_name(name, BAD_NAME)
    return "OK"


@command(
    "CLIENT SETINFO",
    arity=4,
    flags=OWN,
    group="connection",
    summary="Sets the name or the version of the client library.",
    since="7.2.0",
)
def setinfo(call: Call, what: bytes, value: bytes) -> Reply:
    name = what.upper()
    if name not in (b"LIB-NAME", b"LIB-VER"):
        raise CommandError(f"ERR Unrecognized option '{display(what)}'")
    arg = valid_name(
        value, f"ERR {what.decode().lower()} cannot contain spaces, newlines or special characters."
    )
    if name == b"LIB-NAME":
        call.client.library_name = arg
    else:
        call.client.library_version = arg
    return "OK"


@command(
    "CLIENT INFO",
    arity=2,
    flags=OWN,
    group="connection",
    summary="Returns information about the connection.",
    since="6.2.0",
)
def info(call: Call) -> Reply:
    return Verbatim(f"{describe(call.client, call.now_ms)}\n".encode())


@command(
    "CLIENT LIST",
    arity=-2,
    flags=OTHERS,
    group="connection",
    categories="dangerous",
    summary="Lists connections.",
    since="2.4.0",
)
def list_(call: Call, *args: bytes) -> Reply:
    clients = call.server.clients.all()
    if args and args[0].upper() == b"TYPE" and len(args) == 2:
        wanted = client_kind(args[1])
        clients = [client for client in clients if kind(client) == wanted]
    elif args and args[0].upper() == b"ID" and len(args) > 1:
        numbers = {integer(arg, error="ERR Invalid client ID") for arg in args[1:]}
        clients = [client for client in clients if client.id in numbers]
    elif args:
        raise InvalidSyntax()
    return Verbatim("".join(f"{describe(client, call.now_ms)}\n" for client in clients).encode())


def client_kind(arg: bytes) -> str:
    if arg.upper() not in KINDS:
        raise CommandError(f"ERR Unknown client type '{display(arg)}'")
    return KINDS[arg.upper()]


@command(
    "CLIENT KILL",
    arity=-3,
    flags=OTHERS,
    group="connection",
    categories="dangerous",
    summary="Closes connections, selected by address, id, type, user or age.",
    since="2.4.0",
)
def kill(call: Call, *args: bytes) -> Reply:
    clients = call.server.clients.all()
    if len(args) == 1:
        found = [client for client in clients if client.native.address == text(args[0])]
        if not found:
            raise CommandError("ERR No such client")
        _kill(call, found[:1])
        return "OK"
    if len(args) % 2:
        raise InvalidSyntax()
    skip_me = True
    for option, value in zip(args[::2], args[1::2], strict=True):
        name = option.upper()
        if name == b"ID":
            number = integer(value, error="ERR client-id should be greater than 0")
            if number <= 0:
                raise CommandError("ERR client-id should be greater than 0")
            clients = [client for client in clients if client.id == number]
        elif name == b"ADDR":
            clients = [client for client in clients if client.native.address == text(value)]
        elif name == b"LADDR":
            clients = [client for client in clients if client.native.local_address == text(value)]
        elif name == b"TYPE":
            wanted = client_kind(value)
            clients = [client for client in clients if kind(client) == wanted]
        elif name == b"USER":
            if text(value) not in call.server.acl.users:
                raise CommandError(f"ERR No such user '{display(value)}'")
            clients = [client for client in clients if client.user.name == text(value)]
        elif name == b"MAXAGE":
            age_ms = integer(value) * 1000
            clients = [client for client in clients if call.now_ms - client.native.created_ms >= age_ms]
        elif name == b"SKIPME" and value.lower() in (b"yes", b"no"):
            skip_me = value.lower() == b"yes"
        else:
            raise InvalidSyntax()
    if skip_me:
        clients = [client for client in clients if client.id != call.client.id]
    _kill(call, clients)
    return len(clients)


def _kill(call: Call, clients: list[Client]) -> None:
    for client in clients:
        client.native.close(at_once=client.id != call.client.id)  # the caller's own: after the reply


@command(
    "CLIENT NO-EVICT",
    arity=3,
    flags=OTHERS,
    group="connection",
    categories="dangerous",
    summary="Accepted for compatibility: connections are never evicted.",
    since="7.0.0",
)
def no_evict(call: Call, switch: bytes) -> Reply:
    call.client.no_evict = on_or_off(switch)
    return "OK"


@command(
    "CLIENT NO-TOUCH",
    arity=3,
    flags=OWN,
    group="connection",
    summary="Sets whether the connection's commands update access times of keys.",
    since="7.2.0",
)
def no_touch(call: Call, switch: bytes) -> Reply:
    call.client.no_touch = on_or_off(switch)
    call.client.native.no_touch = call.client.no_touch
    return "OK"


def on_or_off(switch: bytes) -> bool:
    if switch.lower() not in (b"on", b"off"):
        raise InvalidSyntax()
    return switch.lower() == b"on"


@command(
    "CLIENT REPLY",
    arity=3,
    flags=OWN,
    group="connection",
    summary="Turns replies to the connection on or off, or skips the next one.",
    since="3.2.0",
)
def reply(call: Call, mode: bytes) -> Reply:
    client = call.client
    name = mode.upper()
    if name == b"ON":
        client.replies_off, client.skip_replies = False, 0
        client.update_dispatch()
        return "OK"
    if name == b"OFF":
        client.replies_off = True
    elif name == b"SKIP":
        if not client.replies_off:
            client.skip_replies = 2  # the end of this command decrements it once
    else:
        raise InvalidSyntax()
    client.update_dispatch()
    return NO_REPLY


@command(
    "CLIENT UNBLOCK",
    arity=-3,
    flags=OTHERS,
    group="connection",
    categories="dangerous",
    summary="Unblocks a client that waits in a blocking command.",
    since="5.0.0",
)
def unblock(call: Call, number: bytes, *args: bytes) -> Reply:
    reason = args[0].upper() if args else b"TIMEOUT"
    if len(args) > 1 or reason not in (b"TIMEOUT", b"ERROR"):
        raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    error = "UNBLOCKED client unblocked via CLIENT UNBLOCK" if reason == b"ERROR" else ""
    return int(call.server.blocking.unblock(integer(number), error=error))


@command(
    "CLIENT PAUSE",
    arity=-3,
    flags=OTHERS,
    group="connection",
    categories="dangerous",
    summary="Suspends all commands, or only writes, for a number of milliseconds.",
    since="3.0.0",
)
def pause(call: Call, timeout: bytes, *mode: bytes) -> Reply:
    ms = integer(timeout, error="ERR timeout is not an integer or out of range")
    if ms < 0:
        raise CommandError("ERR timeout is negative")
    name = mode[0].upper() if mode else b"ALL"
    if len(mode) > 1 or name not in (b"ALL", b"WRITE"):
        raise CommandError("ERR CLIENT PAUSE mode must be WRITE or ALL")
    call.server.clients.pause.start(call.now_ms + ms, everything=name == b"ALL")
    return "OK"


@command(
    "CLIENT UNPAUSE",
    arity=2,
    flags=OTHERS,
    group="connection",
    categories="dangerous",
    summary="Resumes the commands that CLIENT PAUSE suspended.",
    since="6.2.0",
)
def unpause(call: Call) -> Reply:
    call.server.clients.pause.end()
    return "OK"
