"""Geohashes: positions as 52-bit numbers with alternating bits of longitude and latitude, and distances on
the sphere. Constants and order of operations are those of Redis, so that results are identical."""

from __future__ import annotations

import math

STEP = 26
LONGITUDE = (-180.0, 180.0)
LATITUDE = (-85.05112878, 85.05112878)  # the limits of the Web Mercator projection
EARTH_RADIUS_M = 6372797.560856
_ALPHABET = "0123456789bcdefghjkmnpqrstuvwxyz"
_RADIAN = math.pi / 180.0

Place = tuple[float, float]  # longitude, latitude
Range = tuple[float, float]


def is_score(score: float) -> bool:
    """Returns whether a score is a geohash; a sorted set may contain other scores."""
    return 0 <= score < 1 << (2 * STEP)


def is_place(longitude: float, latitude: float) -> bool:
    return LONGITUDE[0] <= longitude <= LONGITUDE[1] and LATITUDE[0] <= latitude <= LATITUDE[1]


def _spread(number: int) -> int:
    """Spreads the bits of a 32-bit number to the even bits of a 64-bit number."""
    number = (number | number << 16) & 0x0000FFFF0000FFFF
    number = (number | number << 8) & 0x00FF00FF00FF00FF
    number = (number | number << 4) & 0x0F0F0F0F0F0F0F0F
    number = (number | number << 2) & 0x3333333333333333
    return (number | number << 1) & 0x5555555555555555


def _gathered(number: int) -> int:
    number &= 0x5555555555555555
    number = (number | number >> 1) & 0x3333333333333333
    number = (number | number >> 2) & 0x0F0F0F0F0F0F0F0F
    number = (number | number >> 4) & 0x00FF00FF00FF00FF
    number = (number | number >> 8) & 0x0000FFFF0000FFFF
    return (number | number >> 16) & 0x00000000FFFFFFFF


def encode(longitude: float, latitude: float, latitudes: Range = LATITUDE) -> int:
    east = (longitude - LONGITUDE[0]) / (LONGITUDE[1] - LONGITUDE[0]) * (1 << STEP)
    north = (latitude - latitudes[0]) / (latitudes[1] - latitudes[0]) * (1 << STEP)
    return _spread(int(north) & 0xFFFFFFFF) | _spread(int(east) & 0xFFFFFFFF) << 1


def decode(score: float) -> Place:
    """Returns the centre of the cell of a score."""
    bits = int(score) if math.isfinite(score) else 1 << 63
    north, east = _gathered(bits), _gathered(bits >> 1)
    scale = float(1 << STEP)

    def middle(cell: int, limits: Range) -> float:
        span = limits[1] - limits[0]
        low = limits[0] + (cell * 1.0 / scale) * span
        high = limits[0] + ((cell + 1) * 1.0 / scale) * span
        return max(limits[0], min((low + high) / 2, limits[1]))

    return middle(east, LONGITUDE), middle(north, LATITUDE)


def text(score: float) -> bytes:
    """Returns the standard geohash string of eleven characters, which uses latitudes from -90 to 90."""
    bits = encode(*decode(score), (-90.0, 90.0))
    letters = [_ALPHABET[bits >> 52 - 5 * (place + 1) & 31] for place in range(10)]
    return "".join([*letters, "0"]).encode()


def latitude_distance_m(one: float, other: float) -> float:
    return EARTH_RADIUS_M * abs(other * _RADIAN - one * _RADIAN)


def distance_m(one: Place, other: Place) -> float:
    v = math.sin((other[0] * _RADIAN - one[0] * _RADIAN) / 2)
    if v == 0.0:
        return latitude_distance_m(one[1], other[1])
    north, other_north = one[1] * _RADIAN, other[1] * _RADIAN
    u = math.sin((other_north - north) / 2)
    return (
        2.0 * EARTH_RADIUS_M * math.asin(math.sqrt(u * u + math.cos(north) * math.cos(other_north) * v * v))
    )


def rows_within(centre: Place, height_m: float) -> Range:
    """Returns the lowest and highest latitude within this distance of the centre."""
    reach = height_m / EARTH_RADIUS_M / _RADIAN
    return centre[1] - reach, centre[1] + reach
