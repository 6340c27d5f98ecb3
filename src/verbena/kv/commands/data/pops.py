"""Pops from the first key that has a value, with or without blocking: shared by lists and sorted sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from verbena.kv.commands.arguments import integer_within, key_count, timeout_seconds
from verbena.kv.commands.replies import NULL_ARRAY, InvalidSyntax, Reply, WrongType
from verbena.kv.server.call import Call

Taken = TypeVar("Taken")
Pop = Callable[[Call, bytes], Taken | None]  # pops from one key; None: the key does not exist


def pop_first(
    call: Call, keys: Sequence[bytes], pop: Pop[Taken], reply: Callable[[bytes, Taken], Reply]
) -> Reply:
    """Pops from the first key that exists and returns its reply; a null array if none exists."""
    for key in keys:
        taken = pop(call, key)
        if taken is not None:
            return reply(key, taken)
    return NULL_ARRAY


def pop_or_block(
    call: Call, keys: list[bytes], timeout: bytes, pop: Pop[Taken], reply: Callable[[bytes, Taken], Reply]
) -> Reply:
    """Pops like pop_first(); if no key exists, blocks the client until one does or the timeout ends. For a
    blocked client, keys of another type are skipped instead of being an error."""
    timeout_s = timeout_seconds(timeout)
    answer = pop_first(call, keys, pop, reply)
    if answer is not NULL_ARRAY:
        return answer

    def retry(later: Call) -> Reply | None:
        for key in keys:
            try:
                taken = pop(later, key)
            except WrongType:
                continue
            if taken is not None:
                return reply(key, taken)
        return None

    return call.block(keys, retry, timeout_s, NULL_ARRAY)


def parse_mpop(args: Sequence[bytes], ends: Mapping[bytes, bool]) -> tuple[list[bytes], bool, int]:
    """Parses "numkeys key… END [COUNT count]" of LMPOP and ZMPOP: the keys, the value of END, the count."""
    number = key_count(args[0], args[1:], "ERR numkeys should be greater than 0")
    keys, rest = list(args[1 : number + 1]), args[number + 1 :]
    end = ends.get(rest[0].upper()) if rest else None
    if end is None:
        raise InvalidSyntax()
    options = rest[1:]
    if not options:
        return keys, end, 1
    if options[0].upper() != b"COUNT" or len(options) < 2:
        raise InvalidSyntax()
    count = integer_within(options[1], 1, "ERR count should be greater than 0")
    if len(options) > 2:
        raise InvalidSyntax()
    return keys, end, count
