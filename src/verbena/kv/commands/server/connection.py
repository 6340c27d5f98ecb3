"""Authentication, protocol and database of a connection: AUTH, HELLO, SELECT, RESET, QUIT."""

from __future__ import annotations

from verbena.kv.acl.user import hash_password
from verbena.kv.commands.arguments import display, integer, text
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NO_REPLY, CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call
from verbena.kv.server.clients import Client

VERSION = "7.2.0"  # the version of Redis that HELLO reports
WRONG_PASSWORD = "WRONGPASS invalid username-password pair or user is disabled."
BASIC = "noscript loading stale fast no_auth skip_monitor allow_busy"


def authenticate(call: Call, name: str, password: bytes) -> None:
    client = call.client
    user = call.server.acl.authenticate(name, password)
    if user is None:
        call.server.acl.note(client, "auth", b"AUTH", call.now_ms, name)
        raise CommandError(WRONG_PASSWORD)
    client.log_in(user, password_hash=hash_password(password))
    if client.is_replica:
        call.server.clients.rights_changed()


@command(
    "AUTH",
    arity=-2,
    flags=BASIC + " skip_slowlog",
    group="connection",
    summary="Authenticates the connection.",
)
def auth(call: Call, *args: bytes) -> Reply:
    if len(args) > 2:
        raise InvalidSyntax()
    default = call.server.acl.default
    if len(args) == 1 and default.nopass:
        raise CommandError(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure "
            "your configuration is correct?"
        )
    name, password = (text(args[0]), args[1]) if len(args) == 2 else ("default", args[0])
    authenticate(call, name, password)
    return "OK"


@command(
    "HELLO",
    arity=-1,
    flags=BASIC + " skip_slowlog",
    group="connection",
    summary="Selects the protocol version and optionally authenticates.",
    since="6.0.0",
)
def hello(call: Call, *args: bytes) -> Reply:
    client = call.client
    version = client.native.version
    if args:
        version = integer(args[0], error="ERR Protocol version is not an integer or out of range")
        if version not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
    at, name, credentials = 1, None, None
    while at < len(args):
        option = args[at].upper()
        if option == b"AUTH" and at + 2 < len(args):
            credentials = (text(args[at + 1]), args[at + 2])
            at += 3
        elif option == b"SETNAME" and at + 1 < len(args):
            name = valid_name(
                args[at + 1], "ERR Client names cannot contain spaces, newlines or special characters."
            )
            at += 2
        else:
            raise CommandError(f"ERR Syntax error in HELLO option '{display(args[at])}'")
    if credentials is not None:
        authenticate(call, *credentials)
    if not client.authenticated:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> "
            "AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol "
            "version at the same time"
        )
    if name is not None:
        client.native.name = name
    client.native.version = version
    client.update_dispatch()
    return {
        b"server": b"redis",
        b"version": VERSION.encode(),
        b"proto": version,
        b"id": client.id,
        b"mode": b"cluster" if call.server.services.cluster is not None else b"standalone",
        b"role": b"master",
        b"modules": [],
    }


def valid_name(arg: bytes, error: str) -> str:
    if any(not 33 <= value <= 126 for value in arg):
        raise CommandError(error)
    return arg.decode()


@command(
    "SELECT",
    arity=2,
    flags="loading stale fast",
    group="connection",
    summary="Selects the database of the connection.",
)
def select(call: Call, index: bytes) -> Reply:
    number = integer(index, error="ERR value is not an integer or out of range")
    if not 0 <= number < len(call.server.databases):
        raise CommandError("ERR DB index is out of range")
    if number and call.server.services.cluster is not None:
        raise CommandError("ERR SELECT is not allowed in cluster mode")
    call.client.native.database = number
    return "OK"


@command("QUIT", arity=-1, flags=BASIC, group="connection", summary="Closes the connection.")
def quit_(call: Call, *args: bytes) -> Reply:
    call.client.native.reply("OK")
    call.client.native.close()
    return NO_REPLY


@command(
    "RESET",
    arity=1,
    flags=BASIC,
    group="connection",
    summary="Resets the state of the connection.",
    since="6.2.0",
)
def reset(call: Call) -> Reply:
    client, server = call.client, call.server
    discard(call, client)
    server.pubsub.forget(client)
    server.clients.monitors.forget(client)
    server.clients.tracking.stop(client)
    client.replies_off, client.skip_replies = False, 0
    client.no_evict = client.no_touch = False
    client.native.name = ""
    client.native.database = 0
    client.native.version = 2
    server.clients.begin(client)
    if client.is_replica:
        server.clients.rights_changed()
    server.clients.limits.apply(client)
    return "RESET"


def discard(call: Call, client: Client) -> None:
    """Discards the client's transaction, if there is one, and stops watching keys."""
    if client.watching:
        call.server.engine.unwatch(client.id)
    client.forget_transaction()
