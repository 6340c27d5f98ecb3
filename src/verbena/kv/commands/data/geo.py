"""Geospatial indexes: sorted sets whose scores are geohashes. Searches are in geo_search.py."""

from __future__ import annotations

from fractions import Fraction

from verbena.kv.commands.arguments import floating
from verbena.kv.commands.data.sorted_sets import zadd
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import NULL_ARRAY, CommandError, InvalidSyntax, Reply
from verbena.kv.server.call import Call
from verbena.kv.values import geohash
from verbena.kv.values.collections import SortedSet
from verbena.kv.values.long_double import format_number

KEY = (1, 1, 1)
UNITS_M = {b"M": 1.0, b"KM": 1000.0, b"FT": 0.3048, b"MI": 1609.34}


def unit(arg: bytes) -> float:
    metres = UNITS_M.get(arg.upper())
    if metres is None:
        raise CommandError("ERR unsupported unit provided. please use M, KM, FT, MI")
    return metres


def place(longitude: bytes, latitude: bytes) -> geohash.Place:
    east, north = floating(longitude), floating(latitude)
    if not geohash.is_place(east, north):
        raise CommandError(f"ERR invalid longitude,latitude pair {east:f},{north:f}")
    return east, north


def coordinates(found: geohash.Place) -> list[bytes]:
    return [format_number(Fraction(found[0])), format_number(Fraction(found[1]))]


@command("GEOADD", arity=-5, flags="write denyoom", keys=KEY, group="geo", since="3.2.0",
         summary="Adds members with a longitude and latitude to a geospatial index.")  # fmt: skip
def geoadd(call: Call, key: bytes, *args: bytes) -> Reply:
    start = 0
    while start < len(args) and args[start].upper() in (b"NX", b"XX", b"CH"):
        start += 1
    flags, triples = args[:start], args[start:]
    names = {flag.upper() for flag in flags}
    if len(triples) % 3 or {b"NX", b"XX"} <= names:
        raise InvalidSyntax()
    pairs: list[bytes] = []
    for position in range(0, len(triples), 3):
        east, north = place(triples[position], triples[position + 1])
        pairs += (b"%d" % geohash.encode(east, north), triples[position + 2])
    return zadd(call, key, *flags, *pairs)


@command("GEOPOS", arity=-2, flags="readonly", keys=KEY, group="geo", since="3.2.0",
         summary="Returns the longitudes and latitudes of members of a geospatial index.")  # fmt: skip
def geopos(call: Call, key: bytes, *members: bytes) -> Reply:
    value = call.db.get(key, SortedSet)
    scores = {} if value is None else value.scores
    found = [scores.get(member) for member in members]
    return [NULL_ARRAY if score is None else coordinates(geohash.decode(score)) for score in found]


@command("GEOHASH", arity=-2, flags="readonly", keys=KEY, group="geo", since="3.2.0",
         summary="Returns the geohash strings of members of a geospatial index.")  # fmt: skip
def geohash_(call: Call, key: bytes, *members: bytes) -> Reply:
    value = call.db.get(key, SortedSet)
    scores = {} if value is None else value.scores
    found = [scores.get(member) for member in members]
    return [None if score is None else geohash.text(score) for score in found]


@command("GEODIST", arity=-4, flags="readonly", keys=KEY, group="geo", since="3.2.0",
         summary="Returns the distance between two members of a geospatial index.")  # fmt: skip
def geodist(call: Call, key: bytes, one: bytes, other: bytes, *args: bytes) -> Reply:
    if len(args) > 1:
        raise InvalidSyntax()
    metres = unit(args[0]) if args else 1.0
    value = call.db.get(key, SortedSet)
    if value is None or one not in value.scores or other not in value.scores:
        return None
    distance = geohash.distance_m(geohash.decode(value.scores[one]), geohash.decode(value.scores[other]))
    return b"%.4f" % (distance / metres)
