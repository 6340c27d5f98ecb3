"""Replication: ROLE, REPLICAOF, SLAVEOF, PSYNC, REPLCONF, WAIT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena.kv.commands.arguments import display, integer
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, Reply
from verbena.kv.server.blocked_clients import REPLICAS
from verbena.kv.server.call import Call

if TYPE_CHECKING:
    from verbena.kv.replication.replication import Replication


FOLLOW = "admin noscript stale loading"
OVER_SESSIONS = (
    "ERR replication runs over sessions, not over RESP: name this server in REPLICAOF at a Verbena server"
)


def _replication(call: Call) -> Replication:
    if call.server.services.replication is None:
        raise CommandError("ERR replication needs sessions: kv.sessions is off")
    return call.server.services.replication


@command("ROLE", arity=1, flags="noscript loading stale fast", categories="admin dangerous", group="server",
         summary="Returns the replication role of the server.", since="2.8.12")  # fmt: skip
def role(call: Call) -> Reply:
    replication = call.server.services.replication
    return replication.role() if replication is not None else [b"master", 0, []]


@command("SLAVEOF", arity=3, flags=FOLLOW, group="server",
         summary="Makes the server a replica of another. Deprecated: use REPLICAOF.")  # fmt: skip
@command("REPLICAOF", arity=3, flags=FOLLOW, group="server", since="5.0.0",
         summary="Makes the server a replica of another, or a primary (NO ONE).")  # fmt: skip
def replicaof(call: Call, host: bytes, port: bytes) -> Reply:
    if call.server.services.cluster is not None:  # the cluster map assigns replicas
        raise CommandError("ERR REPLICAOF not allowed in cluster mode.")
    if (host.upper(), port.upper()) == (b"NO", b"ONE"):
        if call.server.services.replication is not None:
            call.server.services.replication.lead()
        return "OK"
    number = integer(port, error="ERR Invalid master port")
    if not 0 < number < 65536:
        raise CommandError("ERR Invalid master port")
    replication = _replication(call)
    link = replication.link
    if link is not None and (link.host, link.port) == (display(host), number):
        return "OK Already connected to specified master"
    replication.follow(display(host), number)
    return "OK"


@command("PSYNC", arity=-3, flags="admin noscript no_async_loading no_multi", group="server", since="2.8.0",
         summary="Stands for the right to replicate; replicas follow over sessions.")  # fmt: skip
def psync(call: Call, *args: bytes) -> Reply:
    raise CommandError(OVER_SESSIONS)


@command("REPLCONF", arity=-1, flags="admin noscript loading stale allow_busy", group="server", since="3.0.0",
         summary="Returns the port for sessions (SESSIONS-PORT), which replicas need.")  # fmt: skip
def replconf(call: Call, *args: bytes) -> Reply:
    if [arg.upper() for arg in args] != [b"SESSIONS-PORT"]:
        raise CommandError(OVER_SESSIONS)
    return _replication(call).sessions_port


@command(
    "WAIT", arity=3, flags="noscript", group="generic", since="3.0.0",
    summary="Waits until a number of replicas have received all earlier writes.",
)  # fmt: skip
def wait(call: Call, replicas: bytes, timeout: bytes) -> Reply:
    wanted, wait_ms = integer(replicas), integer(timeout)
    if wait_ms < 0:
        raise CommandError("ERR timeout is negative")
    replication = call.server.services.replication
    if replication is None:
        return 0
    if replication.link is not None:
        raise CommandError("ERR WAIT cannot be used with replica instances.")
    leader, offset = replication, replication.written_offset

    def answer(call: Call) -> Reply | None:
        count = leader.count(offset)
        return count if count >= wanted else None

    done = answer(call)
    if done is not None:
        return done
    replication.await_receipts()
    return call.server.blocking.block(
        call, [REPLICAS], answer, wait_ms / 1000, leader.count(offset), late=lambda: leader.count(offset)
    )
