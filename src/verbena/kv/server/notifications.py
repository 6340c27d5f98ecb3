"""Keyspace notifications: the classes of events, and the letters of notify-keyspace-events."""

from __future__ import annotations

ALL = "g$lshzxetd"
LETTERS = frozenset("KEA" + ALL)

# The class of each event that commands in Python name. All others are of class "g", generic.
_CLASSES = {
    "$": "set setrange incrby incrbyfloat append setbit pfadd getdel",
    "l": "lpush rpush lpop rpop linsert lset lrem ltrim sortstore",
    "s": "sadd srem spop sinterstore sunionstore sdiffstore",
    "h": "hset hincrby hincrbyfloat hdel hexpire hpersist hexpired",
    "z": "zadd zincr zrem zremrangebyscore zremrangebyrank zremrangebylex zdiffstore zinterstore zunionstore "
    "zrangestore zpopmin zpopmax geosearchstore georadiusstore",
    "x": "expired",
    "e": "evicted",
}
CLASS_OF = {event: letter for letter, events in _CLASSES.items() for event in events.split()}


def parse(text: str) -> frozenset[str] | None:
    """Returns the classes that the letters stand for; None: a letter is unknown."""
    if set(text) - LETTERS:
        return None
    chosen = set(text)
    if "A" in chosen:
        chosen = (chosen - {"A"}) | set(ALL)
    return frozenset(chosen)


def show(chosen: frozenset[str]) -> str:
    """Returns the letters of these classes; A stands for all but K and E."""
    text = "A" if set(ALL) <= chosen else "".join(letter for letter in ALL if letter in chosen)
    return text + "".join(letter for letter in "KE" if letter in chosen)
