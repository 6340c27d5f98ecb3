"""Searches in geospatial indexes: GEOSEARCH and the older GEORADIUS commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from verbena.kv.commands.arguments import floating, integer
from verbena.kv.commands.data.geo import coordinates, place, unit
from verbena.kv.commands.data.sorted_set_ranges import store
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call
from verbena.kv.values import geohash
from verbena.kv.values.collections import SortedSet

KEY = (1, 1, 1)


class _Found(NamedTuple):
    distance_m: float
    member: bytes
    score: float
    place: geohash.Place


@dataclass
class _Request:
    centre: geohash.Place | None = None
    radius_m: float | None = None
    box_m: tuple[float, float] | None = None
    unit_m: float = 1.0
    order: bytes = b""
    count: int = 0
    any: bool = False
    show: frozenset[bytes] = frozenset()
    target: bytes | None = None
    store_distance: bool = False


_SHOW = {b"WITHDIST", b"WITHHASH", b"WITHCOORD"}


def _radius(request: _Request, radius: bytes, in_unit: bytes) -> None:
    distance = floating(radius, "ERR need numeric radius")
    if distance < 0:
        raise CommandError("ERR radius cannot be negative")
    request.unit_m = unit(in_unit)
    request.radius_m = distance * request.unit_m


def _box(request: _Request, width: bytes, height: bytes, in_unit: bytes) -> None:
    wide, high = floating(width, "ERR need numeric width"), floating(height, "ERR need numeric height")
    if wide < 0 or high < 0:
        raise CommandError("ERR height or width cannot be negative")
    request.unit_m = unit(in_unit)
    request.box_m = wide * request.unit_m, high * request.unit_m


def _centre(value: SortedSet | None, member: bytes) -> geohash.Place:
    """Returns the position of a member; any position if the key does not exist, since nothing is found then.
    CommandError if the member does not exist."""
    if value is None:
        return 0.0, 0.0
    if member not in value:
        raise CommandError("ERR could not decode requested zset member")
    return geohash.decode(value.scores[member])


def _options(
    request: _Request, args: Sequence[bytes], value: SortedSet | None, *, search: bool, may_store: bool
) -> None:
    """Parses the options after the key, or after the centre and radius of GEORADIUS, into `request`."""
    position = 0
    while position < len(args):
        name, left = args[position].upper(), len(args) - position - 1
        used = 0
        if name in _SHOW:
            request.show |= {name}
        elif name in (b"ASC", b"DESC"):
            request.order = name
        elif name == b"ANY":
            request.any = True
        elif name == b"COUNT" and left >= 1:
            used, request.count = 1, integer(args[position + 1])
            if request.count <= 0:
                raise CommandError("ERR COUNT must be > 0")
        elif name == b"STOREDIST" and search and may_store:
            request.store_distance = True
        elif name in (b"STORE", b"STOREDIST") and left >= 1 and not search and may_store:
            used, request.target = 1, args[position + 1]
            request.store_distance = name == b"STOREDIST"
        elif not search or (request.centre is not None and name.startswith(b"FROM")):
            raise InvalidSyntax()
        elif name == b"FROMMEMBER" and left >= 1:
            used, request.centre = 1, _centre(value, args[position + 1])
        elif name == b"FROMLONLAT" and left >= 2:
            used, request.centre = 2, place(args[position + 1], args[position + 2])
        elif name == b"BYRADIUS" and left >= 2 and request.radius_m is None and request.box_m is None:
            used = 2
            _radius(request, args[position + 1], args[position + 2])
        elif name == b"BYBOX" and left >= 3 and request.radius_m is None and request.box_m is None:
            used = 3
            _box(request, args[position + 1], args[position + 2], args[position + 3])
        else:
            raise InvalidSyntax()
        position += 1 + used


def _check(request: _Request, name: str, *, search: bool) -> None:
    if request.target is not None and request.show:
        what = name.upper() if search else "STORE option in GEORADIUS"
        raise CommandError(f"ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")
    if search and request.centre is None:
        raise CommandError(f"ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}")
    if search and request.radius_m is None and request.box_m is None:
        raise CommandError(f"ERR exactly one of BYRADIUS and BYBOX can be specified for {name}")
    if request.any and not request.count:
        raise CommandError("ERR the ANY argument requires COUNT argument")


def _distance(request: _Request, centre: geohash.Place, where: geohash.Place) -> float | None:
    """Returns the distance of a place from the centre; None if it is outside the area."""
    if request.box_m is not None:
        width_m, height_m = request.box_m
        if geohash.latitude_distance_m(centre[1], where[1]) > height_m / 2:
            return None
        if geohash.distance_m(where, (centre[0], where[1])) > width_m / 2:
            return None
        return geohash.distance_m(centre, where)
    distance = geohash.distance_m(centre, where)
    return distance if request.radius_m is None or distance <= request.radius_m else None


def _search(value: SortedSet, request: _Request, centre: geohash.Place) -> list[_Found]:
    reach_m = request.box_m[1] / 2 if request.box_m is not None else request.radius_m or 0.0
    south, north = geohash.rows_within(centre, reach_m * 1.0001)
    found: list[_Found] = []
    for score, member in value.order:
        if not geohash.is_score(score):
            continue
        where = geohash.decode(score)
        if not south <= where[1] <= north:
            continue
        distance = _distance(request, centre, where)
        if distance is not None:
            found.append(_Found(distance, member, score, where))
            if request.any and len(found) == request.count:
                break
    # COUNT selects the nearest, except with ANY.
    order = request.order or (b"ASC" if request.count and not request.any else b"")
    if order:
        found.sort(key=lambda one: one.distance_m, reverse=order == b"DESC")
    return found[: request.count] if request.count else found


def _run(call: Call, value: SortedSet | None, request: _Request) -> Reply:
    found: list[_Found] = []
    if value is not None and request.centre is not None:
        found = _search(value, request, request.centre)
    if request.target is not None:
        scores = {
            one.member: one.distance_m / request.unit_m if request.store_distance else one.score
            for one in found
        }
        return store(call, request.target, scores, "geosearchstore")
    return [_shown(one, request) for one in found]


def _shown(one: _Found, request: _Request) -> Any:
    if not request.show:
        return one.member
    row: list[Any] = [one.member]
    if b"WITHDIST" in request.show:
        row.append(b"%.4f" % (one.distance_m / request.unit_m))
    if b"WITHHASH" in request.show:
        row.append(int(one.score))
    if b"WITHCOORD" in request.show:
        row.append(coordinates(one.place))
    return row


def _find(call: Call, name: str, key: bytes, args: Sequence[bytes], target: bytes | None) -> Reply:
    value = call.db.get(key, SortedSet)
    request = _Request(target=target)
    _options(request, args, value, search=True, may_store=target is not None)
    _check(request, name, search=True)
    return _run(call, value, request)


@command("GEOSEARCH", arity=-7, flags="readonly", keys=KEY, group="geo", since="6.2.0",
         summary="Returns the members of a geospatial index inside a circle or a box.")  # fmt: skip
def geosearch(call: Call, key: bytes, *args: bytes) -> Reply:
    return _find(call, "geosearch", key, args, None)


@command("GEOSEARCHSTORE", arity=-8, flags="write denyoom", keys=(1, 2, 1), group="geo", since="6.2.0",
         explicit=True, key_flags=("OW update", "RO access"),
         summary="Stores the members of a geospatial index inside a circle or a box.")  # fmt: skip
def geosearchstore(call: Call, target: bytes, key: bytes, *args: bytes) -> Reply:
    return _find(call, "geosearchstore", key, args, target)


def _around(call: Call, key: bytes, args: Sequence[bytes], *, by_member: bool, may_store: bool) -> Reply:
    """Runs GEORADIUS or GEORADIUSBYMEMBER: centre, radius, unit, options."""
    value = call.db.get(key, SortedSet)
    request = _Request()
    if by_member:
        request.centre, args = _centre(value, args[0]), args[1:]
    else:
        request.centre, args = place(args[0], args[1]), args[2:]
    if value is not None or not by_member:  # like Redis, which skips the radius without a member
        _radius(request, args[0], args[1])
    _options(request, args[2:], value, search=False, may_store=may_store)
    _check(request, "georadius", search=False)
    return _run(call, value, request)


def _store_keys(first: int) -> Callable[[list[bytes]], list[int]]:
    def find(argv: list[bytes]) -> list[int]:
        options = range(first, len(argv) - 1)
        return [1, *[i + 1 for i in options if argv[i].upper() in (b"STORE", b"STOREDIST")][-1:]]

    return find


@command("GEORADIUS", arity=-6, flags="write denyoom movablekeys", keys=KEY, group="geo", since="3.2.0",
         find_keys=_store_keys(6), explicit=True, key_flags=("RO access", "OW update"),
         summary="Returns or stores the members within a radius of a point.")  # fmt: skip
def georadius(call: Call, key: bytes, *args: bytes) -> Reply:
    return _around(call, key, args, by_member=False, may_store=True)


@command("GEORADIUS_RO", arity=-6, flags="readonly", keys=KEY, group="geo", since="3.2.10",
         summary="Returns the members within a radius of a point.")  # fmt: skip
def georadius_ro(call: Call, key: bytes, *args: bytes) -> Reply:
    return _around(call, key, args, by_member=False, may_store=False)


@command("GEORADIUSBYMEMBER", arity=-5, flags="write denyoom movablekeys", keys=KEY, group="geo",
         since="3.2.0", find_keys=_store_keys(5), explicit=True, key_flags=("RO access", "OW update"),
         summary="Returns or stores the members within a radius of another member.")  # fmt: skip
def georadiusbymember(call: Call, key: bytes, *args: bytes) -> Reply:
    return _around(call, key, args, by_member=True, may_store=True)


@command("GEORADIUSBYMEMBER_RO", arity=-5, flags="readonly", keys=KEY, group="geo", since="3.2.10",
         summary="Returns the members within a radius of another member.")  # fmt: skip
def georadiusbymember_ro(call: Call, key: bytes, *args: bytes) -> Reply:
    return _around(call, key, args, by_member=True, may_store=False)
