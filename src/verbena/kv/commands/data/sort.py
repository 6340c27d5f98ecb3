"""SORT: orders the elements of a list, set or sorted set by their values or by other keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from verbena.kv.commands.arguments import as_float, integer
from verbena.kv.commands.declare import command, find
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply, WrongType
from verbena.kv.server.call import Call
from verbena.kv.values.collections import Hash, List, Set, SortedSet

KEY = (1, 1, 1)


@dataclass
class _Request:
    by: bytes | None = None
    get: list[bytes] = field(default_factory=list)
    offset: int = 0
    count: int = -1
    descending: bool = False
    alpha: bool = False
    store: bytes | None = None

    @property
    def sorts(self) -> bool:
        return self.by is None or b"*" in self.by


def _read(args: Sequence[bytes], *, may_store: bool) -> _Request:
    request = _Request()
    position = 0
    while position < len(args):
        name, left = args[position].upper(), len(args) - position - 1
        if name in (b"ASC", b"DESC"):
            request.descending = name == b"DESC"
        elif name == b"ALPHA":
            request.alpha = True
        elif name == b"LIMIT" and left >= 2:
            request.offset, request.count = integer(args[position + 1]), integer(args[position + 2])
            position += 2
        elif name == b"STORE" and left >= 1 and may_store:
            request.store = args[position + 1]
            position += 1
        elif name == b"BY" and left >= 1:
            request.by = args[position + 1]
            position += 1
        elif name == b"GET" and left >= 1:
            request.get.append(args[position + 1])
            position += 1
        else:
            raise InvalidSyntax()
        position += 1
    return request


def _check_patterns(call: Call, request: _Request) -> None:
    """The keys that patterns select are not known in advance: they need the right to read every key."""
    command = find(call.argv)
    assert command is not None
    if call.client.user.reads_all_keys(command, call.argv):
        return
    for option, used in (("BY", request.by is not None and request.sorts), ("GET", bool(request.get))):
        if used:
            raise CommandError(f"ERR {option} option of SORT denied due to insufficient ACL permissions.")


def _looked_up(call: Call, pattern: bytes, element: bytes) -> bytes | None:
    """Returns the string, or the field of a hash ("key_*->field"), that a pattern selects for an element;
    None if there is none."""
    if pattern == b"#":
        return element
    before, star, after = pattern.partition(b"*")
    if not star:
        return None
    after, arrow, name = after.partition(b"->")
    if arrow and not name:
        after, arrow = after + arrow, b""
    value = call.db.any(before + element + after)
    if arrow:
        return value.get(name) if isinstance(value, Hash) else None
    return value if isinstance(value, bytes) else None


def _weight(arg: bytes | None) -> float:
    if not arg:
        return 0.0
    number = as_float(arg)
    if number is None:
        raise CommandError("ERR One or more scores can't be converted into double")
    return number


def _ordered(call: Call, elements: list[bytes], request: _Request) -> list[bytes]:
    by = request.by
    args = elements if by is None else [_looked_up(call, by, element) for element in elements]
    if request.alpha:
        # Elements without a value come first.
        texts = [(arg is not None, arg or b"") for arg in args]
        if by is not None:
            order = sorted(range(len(elements)), key=lambda i: texts[i], reverse=request.descending)
            return [elements[i] for i in order]
        return sorted(elements, reverse=request.descending)
    weights = [_weight(arg) for arg in args]
    pairs = sorted(zip(weights, elements, strict=True), reverse=request.descending)
    return [element for _, element in pairs]


def _run(call: Call, key: bytes, request: _Request) -> Reply:
    _check_patterns(call, request)
    value = call.db.any(key)
    if value is not None and not isinstance(value, List | Set | SortedSet):
        raise WrongType()
    elements = list(value) if value is not None else []
    if not request.sorts and isinstance(value, Set) and request.store is not None:
        request.by, request.alpha = None, True  # stored results must not depend on the order in memory
    if request.sorts:
        elements = _ordered(call, elements, request)
    elif isinstance(value, SortedSet) and request.descending:
        elements.reverse()
    start = max(request.offset, 0)
    stop = len(elements) if request.count < 0 else start + request.count
    elements = elements[start:stop]
    result: list[bytes | None] = list(elements)
    if request.get:
        result = [_looked_up(call, pattern, element) for element in elements for pattern in request.get]
    if request.store is None:
        return result
    if result:
        call.db.put(request.store, List(arg or b"" for arg in result))
        call.db.changed(request.store, event="sortstore")
    elif call.db.delete(request.store):
        call.db.changed(request.store, b"DEL", request.store, event="del")
    return len(result)


def _keys(argv: list[bytes]) -> list[int]:
    stores = [i + 1 for i in range(2, len(argv) - 1) if argv[i].upper() == b"STORE"]
    return [1, *stores[-1:]]


@command("SORT", arity=-2, flags="write denyoom movablekeys", keys=KEY, group="generic", find_keys=_keys,
         explicit=True, categories="set sortedset list dangerous", key_flags=("RO access", "OW update"),
         summary="Sorts a list, set or sorted set; returns or stores the result.")  # fmt: skip
def sort(call: Call, key: bytes, *args: bytes) -> Reply:
    return _run(call, key, _read(args, may_store=True))


@command("SORT_RO", arity=-2, flags="readonly movablekeys", keys=KEY, group="generic", since="7.0.0",
         categories="set sortedset list dangerous",
         summary="Returns the sorted elements of a list, set or sorted set.")  # fmt: skip
def sort_ro(call: Call, key: bytes, *args: bytes) -> Reply:
    return _run(call, key, _read(args, may_store=False))
