"""ACL: users and their permissions."""

from __future__ import annotations

import secrets
from typing import Any

from verbena.kv.acl.categories import members
from verbena.kv.acl.selector import RuleError, Selector
from verbena.kv.commands.arguments import display, integer, text
from verbena.kv.commands.declare import CATEGORIES, command, find
from verbena.kv.commands.replies import CommandError, Reply
from verbena.kv.server.call import Call

ADMIN = "admin noscript loading stale"
OWN = "noscript loading stale"
NO_FILE = "ERR There is no ACL file: name one by kv.acl_file in the configuration"


@command(
    "ACL WHOAMI",
    arity=2,
    flags=OWN,
    group="server",
    summary="Returns the name of the connection's user.",
    since="6.0.0",
)
def whoami(call: Call) -> Reply:
    return _encoded(call.client.user.name)


@command(
    "ACL USERS",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Lists the names of the ACL users.",
    since="6.0.0",
)
def users(call: Call) -> Reply:
    return [_encoded(name) for name in sorted(call.server.acl.users)]


@command(
    "ACL LIST",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Lists the ACL users with their rules.",
    since="6.0.0",
)
def list_(call: Call) -> Reply:
    return [_encoded(user.describe()) for _, user in sorted(call.server.acl.users.items())]


@command(
    "ACL CAT",
    arity=-2,
    flags=OWN,
    group="server",
    summary="Lists the ACL categories, or the commands of a category.",
    since="6.0.0",
)
def cat(call: Call, *category: bytes) -> Reply:
    if not category:
        return [name.encode() for name in CATEGORIES]
    name = display(category[0]).lower()
    if len(category) > 1 or name not in CATEGORIES:
        raise CommandError(f"ERR Unknown category '{display(category[0])}'")
    return [found.lower().replace(" ", "|").encode() for found in sorted(members(name))]


@command(
    "ACL SETUSER",
    arity=-3,
    flags=ADMIN,
    group="server",
    summary="Creates or changes an ACL user.",
    since="6.0.0",
)
def setuser(call: Call, name: bytes, *rules: bytes) -> Reply:
    if b" " in name or b"\0" in name or not name:
        raise CommandError("ERR Usernames can't contain spaces or null characters")
    call.server.clients.all()
    try:
        call.server.acl.set_user(text(name), list(rules))
    except RuleError as mistake:
        raise CommandError(f"ERR {mistake}") from None
    call.server.clients.update_dispatch()
    return "OK"


@command(
    "ACL GETUSER",
    arity=3,
    flags=ADMIN,
    group="server",
    summary="Returns the rules of an ACL user.",
    since="6.0.0",
)
def getuser(call: Call, name: bytes) -> Reply:
    user = call.server.acl.users.get(text(name))
    if user is None:
        return None
    return {
        b"flags": [flag.encode() for flag in user.flags],
        b"passwords": [digest.encode() for digest in user.passwords],
        **_selector(user.root),
        b"selectors": [_selector(selector) for selector in user.selectors],
    }


def _selector(selector: Selector) -> dict[bytes, Any]:
    return {
        b"commands": _encoded(selector.command_rules),
        b"keys": _encoded(selector.key_rules),
        b"channels": _encoded(selector.channel_rules),
    }


@command(
    "ACL DELUSER",
    arity=-3,
    flags=ADMIN,
    group="server",
    summary="Deletes ACL users and closes their connections.",
    since="6.0.0",
)
def deluser(call: Call, *names: bytes) -> Reply:
    if b"default" in names:
        raise CommandError("ERR The 'default' user cannot be removed")
    gone = [user for name in names if (user := call.server.acl.users.pop(text(name), None)) is not None]
    for client in list(call.server.clients.known()):
        if client.user in gone:
            client.native.close(at_once=client is not call.client)
    call.server.clients.rights_changed()
    return len(gone)


@command(
    "ACL GENPASS",
    arity=-2,
    flags=OWN,
    group="server",
    summary="Returns a random password.",
    since="6.0.0",
)
def genpass(call: Call, *bits: bytes) -> Reply:
    wrong = (
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up "
        "to 4096"
    )
    count = integer(bits[0]) if bits else 256
    if len(bits) > 1 or not 0 < count <= 4096:
        raise CommandError(wrong)
    letters = (count + 3) // 4
    return secrets.token_hex((letters + 1) // 2)[:letters].encode()


@command(
    "ACL DRYRUN",
    arity=-4,
    flags=ADMIN,
    group="server",
    summary="Returns whether a user may run a command, without running it.",
    since="7.0.0",
)
def dryrun(call: Call, name: bytes, *argv: bytes) -> Reply:
    user = call.server.acl.users.get(text(name))
    if user is None:
        raise CommandError(f"ERR User '{display(name)}' not found")
    found = find(list(argv))
    if found is None:
        raise CommandError(f"ERR Command '{display(argv[0])}' not found")
    if (found.arity > 0 and len(argv) != found.arity) or len(argv) < -found.arity:
        name_ = found.name.lower().replace(" ", "|")
        raise CommandError(f"ERR wrong number of arguments for '{name_}' command")
    return call.server.acl.dry_run(user, found, list(argv))


@command(
    "ACL LOG",
    arity=-2,
    flags=ADMIN,
    group="server",
    summary="Lists or resets the recent commands and logins that ACL rules denied.",
    since="6.0.0",
)
def log(call: Call, *args: bytes) -> Reply:
    acl = call.server.acl
    if args and args[0].upper() == b"RESET":
        acl.log.clear()
        return "OK"
    count = integer(args[0]) if args else 10
    return [
        {
            b"count": entry.count,
            b"reason": entry.reason.encode(),
            b"context": entry.context.encode(),
            b"object": entry.what,
            b"username": _encoded(entry.user),
            b"age-seconds": max(0, call.now_ms - entry.created_ms) / 1000,
            b"client-info": _encoded(entry.client),
            b"entry-id": entry.number,
            b"timestamp-created": entry.created_ms,
            b"timestamp-last-updated": entry.updated_ms,
        }
        for entry in list(acl.log)[: max(0, count)]
    ]


@command(
    "ACL SAVE",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Saves the ACL users to the ACL file.",
    since="6.0.0",
)
def save(call: Call) -> Reply:
    if not call.server.acl.file:
        raise CommandError(NO_FILE)
    try:
        call.server.acl.save()
    except OSError as error:
        raise CommandError(f"ERR There was an error trying to save the ACLs: {error}") from error
    return "OK"


@command(
    "ACL LOAD",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Reloads the ACL users from the ACL file.",
    since="6.0.0",
)
def load(call: Call) -> Reply:
    if not call.server.acl.file:
        raise CommandError(NO_FILE)
    call.server.clients.all()
    try:
        call.server.acl.load()
    except (OSError, RuleError) as error:
        raise CommandError(f"ERR {error}") from None
    for client in list(call.server.clients.known()):
        if call.server.acl.users.get(client.user.name) is not client.user:
            client.native.close(at_once=client is not call.client)
    call.server.clients.update_dispatch()
    return "OK"


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
