"""Sorted sets: unions, intersections and differences, also with plain sets, whose members have score 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from verbena.kv.commands.arguments import floating, integer, integer_within, numkeys_at
from verbena.kv.commands.data.sorted_set_ranges import answer, store
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply, WrongType
from verbena.kv.server.call import Call
from verbena.kv.values.collections import Set, SortedSet

Aggregate = Callable[[float, float], float]


def _sum(one: float, other: float) -> float:
    total = one + other
    return 0.0 if math.isnan(total) else total  # ∞ + -∞


AGGREGATES: dict[bytes, Aggregate] = {b"SUM": _sum, b"MIN": min, b"MAX": max}


class _Request(NamedTuple):
    inputs: list[Mapping[bytes, float]]  # before weights are applied
    weights: list[float]
    aggregate: Aggregate
    scores: bool
    limit: int


def _scores_of(call: Call, key: bytes) -> Mapping[bytes, float]:
    value = call.db.any(key)
    if value is None:
        return {}
    if isinstance(value, SortedSet):
        return value.scores
    if isinstance(value, Set):
        return dict.fromkeys(value, 1.0)
    raise WrongType()


def _read(
    call: Call,
    name: str,
    args: Sequence[bytes],
    *,
    diff: bool = False,
    stores: bool = False,
    card: bool = False,
) -> _Request:
    """Parses the arguments from the number of keys on, and reads the scores of the keys."""
    count = integer(args[0])
    if count < 1:
        raise CommandError(f"ERR at least 1 input key is needed for '{name}' command")
    if count > len(args) - 1:
        raise InvalidSyntax()
    inputs = [_scores_of(call, key) for key in args[1 : count + 1]]
    weights, scores, limit = [1.0] * count, False, 0
    aggregate: Aggregate = _sum
    position = count + 1
    while position < len(args):
        option, left = args[position].upper(), len(args) - position
        if option == b"WEIGHTS" and left >= count + 1 and not (diff or card):
            weights = [
                floating(arg, "ERR weight value is not a float")
                for arg in args[position + 1 : position + 1 + count]
            ]
            position += count + 1
        elif option == b"AGGREGATE" and left >= 2 and not (diff or card):
            chosen = AGGREGATES.get(args[position + 1].upper())
            if chosen is None:
                raise InvalidSyntax()
            aggregate = chosen
            position += 2
        elif option == b"WITHSCORES" and not (stores or card):
            scores = True
            position += 1
        elif option == b"LIMIT" and left >= 2 and card:
            limit = integer_within(args[position + 1], 0, "ERR LIMIT can't be negative")
            position += 2
        else:
            raise InvalidSyntax()
    return _Request(inputs, weights, aggregate, scores, limit)


def _weighed(request: _Request) -> list[tuple[Mapping[bytes, float], float]]:
    """Returns the inputs with their weights, smallest first like Redis: sums of doubles depend on the
    order."""
    return sorted(zip(request.inputs, request.weights, strict=True), key=lambda pair: len(pair[0]))


def _product(score: float, weight: float) -> float:
    result = score * weight
    return 0.0 if math.isnan(result) else result


def _union(request: _Request) -> dict[bytes, float]:
    result: dict[bytes, float] = {}
    for scores, weight in _weighed(request):
        for member, score in scores.items():
            weighed = _product(score, weight)
            old = result.get(member)
            result[member] = weighed if old is None else request.aggregate(old, weighed)
    return result


def _intersection(request: _Request) -> dict[bytes, float]:
    (first, first_weight), *others = _weighed(request)
    result: dict[bytes, float] = {}
    for member, score in first.items():
        total = _product(score, first_weight)
        for scores, weight in others:
            other = scores.get(member)
            if other is None:
                break
            total = request.aggregate(total, _product(other, weight))
        else:
            result[member] = total
    return result


def _difference(request: _Request) -> dict[bytes, float]:
    first, *others = request.inputs
    gone = set().union(*others)
    return {member: score for member, score in first.items() if member not in gone}


def _answer(scores: dict[bytes, float], request: _Request) -> Reply:
    return answer(sorted((score, member) for member, score in scores.items()), request.scores)


KEY = (1, 1, 1)
READ = numkeys_at(1)
STORE = numkeys_at(2, 1)


@command("ZUNION", arity=-3, flags="readonly movablekeys", group="sorted_set", since="6.2.0",
         find_keys=READ,
         summary="Returns the union of sorted sets.")  # fmt: skip
def zunion(call: Call, *args: bytes) -> Reply:
    request = _read(call, "zunion", args)
    return _answer(_union(request), request)


@command("ZINTER", arity=-3, flags="readonly movablekeys", group="sorted_set", since="6.2.0",
         find_keys=READ,
         summary="Returns the intersection of sorted sets.")  # fmt: skip
def zinter(call: Call, *args: bytes) -> Reply:
    request = _read(call, "zinter", args)
    return _answer(_intersection(request), request)


@command("ZDIFF", arity=-3, flags="readonly movablekeys", group="sorted_set", since="6.2.0", find_keys=READ,
         summary="Returns the difference of the first sorted set and the others.")  # fmt: skip
def zdiff(call: Call, *args: bytes) -> Reply:
    request = _read(call, "zdiff", args, diff=True)
    return _answer(_difference(request), request)


@command("ZINTERCARD", arity=-3, flags="readonly movablekeys", group="sorted_set", since="7.0.0",
         find_keys=READ,
         summary="Returns the size of the intersection of sorted sets, up to a limit.")  # fmt: skip
def zintercard(call: Call, *args: bytes) -> Reply:
    request = _read(call, "zintercard", args, card=True)
    found = len(_intersection(request))
    return min(found, request.limit) if request.limit else found


@command("ZUNIONSTORE", arity=-4, flags="write denyoom movablekeys", keys=KEY, group="sorted_set",
         since="2.0.0", find_keys=STORE, explicit=True, key_flags=("OW update", "RO access"),
         summary="Stores the union of sorted sets.")  # fmt: skip
def zunionstore(call: Call, target: bytes, *args: bytes) -> Reply:
    return store(call, target, _union(_read(call, "zunionstore", args, stores=True)), "zunionstore")


@command("ZINTERSTORE", arity=-4, flags="write denyoom movablekeys", keys=KEY, group="sorted_set",
         since="2.0.0", find_keys=STORE, explicit=True, key_flags=("OW update", "RO access"),
         summary="Stores the intersection of sorted sets.")  # fmt: skip
def zinterstore(call: Call, target: bytes, *args: bytes) -> Reply:
    return store(call, target, _intersection(_read(call, "zinterstore", args, stores=True)), "zinterstore")


@command("ZDIFFSTORE", arity=-4, flags="write denyoom movablekeys", keys=KEY, group="sorted_set",
         since="6.2.0", find_keys=STORE, explicit=True, key_flags=("OW update", "RO access"),
         summary="Stores the difference of the first sorted set and the others.")  # fmt: skip
def zdiffstore(call: Call, target: bytes, *args: bytes) -> Reply:
    return store(
        call, target, _difference(_read(call, "zdiffstore", args, diff=True, stores=True)), "zdiffstore"
    )
