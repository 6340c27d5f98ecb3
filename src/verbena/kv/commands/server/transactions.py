"""Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

from __future__ import annotations

from verbena.kv.commands.declare import command, find
from verbena.kv.commands.replies import NO_REPLY, NULL_ARRAY, CommandError, Reply
from verbena.kv.commands.server.connection import discard as end_transaction
from verbena.kv.server.call import Call

BASIC = "noscript loading stale fast allow_busy"


@command("MULTI", arity=1, flags=BASIC, group="transactions", summary="Starts a transaction.", since="1.2.0")
def multi(call: Call) -> Reply:
    if call.client.queue is not None:
        raise CommandError("ERR MULTI calls can not be nested")
    call.client.queue = []
    call.client.update_dispatch()
    return "OK"


@command(
    "DISCARD",
    arity=1,
    flags=BASIC,
    group="transactions",
    summary="Discards the queued commands of a transaction.",
    since="2.0.0",
)
def discard(call: Call) -> Reply:
    if call.client.queue is None:
        raise CommandError("ERR DISCARD without MULTI")
    end_transaction(call, call.client)
    call.client.update_dispatch()
    return "OK"


@command(
    "EXEC",
    arity=1,
    flags="noscript loading stale skip_slowlog",
    group="transactions",
    summary="Runs the queued commands of a transaction atomically.",
    since="1.2.0",
)
def exec_(call: Call) -> Reply:
    client, server = call.client, call.server
    if client.queue is None:
        raise CommandError("ERR EXEC without MULTI")
    queue, queue_failed, disturbed = client.queue, client.queue_failed, client.watch_failed
    end_transaction(call, client)
    if queue_failed:
        client.update_dispatch()
        raise CommandError("EXECABORT Transaction discarded because of previous errors.")
    if disturbed:
        client.update_dispatch()
        return NULL_ARRAY
    client.native.write(b"*%d\r\n" % len(queue))
    server.execution.in_transaction = True
    try:
        for argv in queue:
            found = find(argv)
            if found is None:  # it existed when it was queued
                reply: Reply = CommandError("ERR unknown command")
            else:
                # Permissions may have changed since it was queued.
                denied = (
                    None if client.user.may_do_all else server.acl.check(client, found, argv, call.now_ms)
                )
                reply = denied if denied is not None else server.perform(client, found, argv)
            if reply is not NO_REPLY:
                server.reply(client, reply)
    finally:
        server.execution.in_transaction = False
        client.update_dispatch()
    return NO_REPLY


@command(
    "WATCH",
    arity=-2,
    flags=BASIC,
    keys=(1, -1, 1),
    group="transactions",
    summary="Makes the next EXEC fail if one of the given keys changes before it.",
    since="2.2.0",
)
def watch(call: Call, *keys: bytes) -> Reply:
    if call.client.queue is not None:
        raise CommandError("ERR WATCH inside MULTI is not allowed")
    for key in keys:
        call.db.exists(key)  # deletes an expired key now, so that this is not a change later
        call.client.native.watch(call.db.index, key)
    call.client.watching = True
    return "OK"


@command(
    "UNWATCH", arity=1, flags=BASIC, group="transactions", summary="Stops watching all keys.", since="2.2.0"
)
def unwatch(call: Call) -> Reply:
    if call.client.watching:
        call.server.engine.unwatch(call.client.id)
    call.client.watching = call.client.watch_failed = False
    return "OK"
