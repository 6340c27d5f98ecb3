"""The authentication of replicas. A replica logs in on a stream of its session, and names the stream when it
requests the log. The primary requires of the stream's user the rights that Redis requires of a replica's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from verbena import transport
from verbena.errors import TimedOutError, setup_error
from verbena.kv.client.async_nodes import AsyncNode
from verbena.kv.commands.declare import COMMANDS
from verbena.kv.commands.replies import CommandError

if TYPE_CHECKING:
    from verbena.kv.server.clients import Client
    from verbena.kv.server.server import Server

RIGHTS = ("PSYNC", "REPLCONF")
_TIMEOUT_S = 30.0


async def log_in(session: transport.Session, *, user: str, password: str) -> int:
    """Authenticates on a new stream of a session with the primary; without a password the stream begins as
    the primary decides. Returns the number of the stream. `denied`: the primary refuses the password."""
    node = AsyncNode(session)
    words = ["AUTH", *([user] if user else []), password] if password else ["PING"]
    try:
        (reply,) = await node.run([words], time.monotonic() + _TIMEOUT_S)
    except TimedOutError as error:
        detail = f"no reply to {words[0]} within {_TIMEOUT_S:g} s"
        raise setup_error("call_timeout", operation="follow a primary", detail=detail) from error
    if password and isinstance(reply, CommandError):
        raise setup_error("denied", operation="follow a primary", detail=reply.text)
    return node.stream


def refusal(server: Server, client: Client | None) -> str:
    """Returns why the session of this stream may not follow the log; "": it may. None: the session named no
    open stream. Call it on the engine's thread."""
    if client is None or not client.authenticated:
        return "NOAUTH Authentication required: set replication.primary_password at the replica"
    if server.clients.get(client.id) is not client:
        return "the stream was closed"
    user = client.user
    if server.acl.users.get(user.name) is not user:
        return f"NOPERM user {user.name} was deleted"
    if not client.login_is_valid:
        return f"NOAUTH user {user.name} is off, or its password has changed"
    if user.may_do_all:
        return ""
    for name in RIGHTS:
        answer = server.acl.dry_run(user, COMMANDS[name], [name.encode()])
        if isinstance(answer, bytes):
            return f"NOPERM {answer.decode('utf-8', 'replace')}"
    return ""
