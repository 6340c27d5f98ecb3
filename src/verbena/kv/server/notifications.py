"""Keyspace notifications: which changes are told to whom, as notify-keyspace-events says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verbena.kv.server.pubsub import PubSub

ALL = "g$lshzxetd"
LETTERS = frozenset("KEA" + ALL)

# Events that commands in Python name: the class that each belongs to. Others are of "g", generic.
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
    """The classes that the letters mean; None: one of them means nothing."""
    if set(text) - LETTERS:
        return None
    chosen = set(text)
    if "A" in chosen:
        chosen = (chosen - {"A"}) | set(ALL)
    return frozenset(chosen)


def show(chosen: frozenset[str]) -> str:
    """The letters again, A for all that it stands for."""
    text = "A" if set(ALL) <= chosen else "".join(letter for letter in ALL if letter in chosen)
    return text + "".join(letter for letter in "KE" if letter in chosen)


def send(pubsub: PubSub, chosen: frozenset[str], database: int, kind: str, event: str, key: bytes) -> None:
    if (kind or CLASS_OF.get(event, "g")) not in chosen:
        return
    if "K" in chosen:
        pubsub.publish(b"__keyspace@%d__:" % database + key, event.encode())
    if "E" in chosen:
        pubsub.publish(b"__keyevent@%d__:%s" % (database, event.encode()), key)
