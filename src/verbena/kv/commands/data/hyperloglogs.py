"""Approximate counts of distinct elements: PFADD, PFCOUNT, PFMERGE."""

from __future__ import annotations

from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, Reply
from verbena.kv.server.call import Call
from verbena.kv.values import hyperloglog

INVALID = "WRONGTYPE Key is not a valid HyperLogLog string value."
CORRUPT = "INVALIDOBJ Corrupted HLL object detected"


def _text(call: Call, key: bytes) -> bytes | None:
    text = call.db.string(key)
    if text is not None:
        try:
            hyperloglog.check(text)
        except hyperloglog.Invalid:
            raise CommandError(INVALID) from None
    return text


@command("PFADD", arity=-2, flags="write denyoom fast", keys=(1, 1, 1), group="hyperloglog", since="2.8.9",
         key_flags="RW insert",
         summary="Adds elements to a HyperLogLog.")  # fmt: skip
def pfadd(call: Call, key: bytes, *elements: bytes) -> Reply:
    old = _text(call, key)
    try:
        new = hyperloglog.add(old or hyperloglog.empty(), elements)
    except hyperloglog.Corrupt:
        raise CommandError(CORRUPT) from None
    if new is None and old is not None:
        return 0
    call.db.put(key, new or hyperloglog.empty(), keep_expiry=True)
    call.db.changed(key, event="pfadd")
    return 1


@command("PFCOUNT", arity=-2, flags="readonly", keys=(1, -1, 1), group="hyperloglog",
         since="2.8.9",
         summary="Returns the approximate number of distinct elements in HyperLogLogs.")  # fmt: skip
def pfcount(call: Call, *keys: bytes) -> Reply:
    texts = [text for key in keys if (text := _text(call, key)) is not None]
    try:
        if len(keys) == 1:
            return hyperloglog.count(texts[0]) if texts else 0
        return hyperloglog.estimate(hyperloglog.merged(texts)) if texts else 0
    except hyperloglog.Corrupt:
        raise CommandError(CORRUPT) from None


@command("PFMERGE", arity=-2, flags="write denyoom", keys=(1, -1, 1), group="hyperloglog", since="2.8.9",
         explicit=True, key_flags=("RW access insert", "RO access"),
         summary="Merges HyperLogLogs into one key.")  # fmt: skip
def pfmerge(call: Call, target: bytes, *sources: bytes) -> Reply:
    texts = [text for key in (target, *sources) if (text := _text(call, key)) is not None]
    dense = any(map(hyperloglog.is_dense, texts))
    try:
        values = hyperloglog.merged(texts or [hyperloglog.empty()])
    except hyperloglog.Corrupt:
        raise CommandError(CORRUPT) from None
    call.db.put(target, hyperloglog.encode(values, dense=dense), keep_expiry=True)
    call.db.changed(target, event="pfadd")
    return "OK"
