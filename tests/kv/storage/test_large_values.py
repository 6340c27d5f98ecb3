"""Large collections enter snapshots and base copies in pieces while they change: the result is the final
state, with each change applied once."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kv.replication.test_backlog import served
from kv.storage.keeping import kept, serving
from support.kv.resp import Connection, pack

from verbena import _native
from verbena.kv.replication.log_applier import make_applier
from verbena.kv.server.server import Server
from verbena.kv.values.collections import List, SortedSet

KINDS = ("hash", "set", "zset", "list")
PIECE = 256 << 10


def state(server: Server) -> dict[tuple[int, bytes], tuple[Any, int]]:
    """The whole contents, independent of the order of elements."""
    found: dict[tuple[int, bytes], tuple[Any, int]] = {}
    for number in range(len(server.databases)):
        cursor = -1
        while cursor:
            cursor, rows = server.engine.database(number).scan(max(cursor, 0), 1000, True)
            for key, value, expires_ms in rows:
                found[number, key] = (shown(value), expires_ms)
    return found


def shown(value: Any) -> Any:
    if isinstance(value, SortedSet):
        assert sorted((score, member) for member, score in value.scores.items()) == list(value.order)
        return dict(value.scores)
    if isinstance(value, bytes):
        return value
    if isinstance(value, List):
        return list(value)
    return set(value) if value.TYPE == "set" else dict(value)


def filling(kind: str, key: str, count: int, first: int = 0) -> Iterator[list[bytes]]:
    """Commands that create a collection with this many elements."""
    for start in range(first, first + count, 1000):
        names = [f"m{n}" for n in range(start, min(start + 1000, first + count))]
        if kind == "hash":
            words = [word for name in names for word in (name, f"{name}-")]
        elif kind == "zset":
            words = [word for name in names for word in (name[1:], name)]
        else:
            words = names
        command = {"hash": "HSET", "set": "SADD", "zset": "ZADD", "list": "RPUSH"}[kind]
        yield [word.encode() for word in (command, key, *words)]


def changing(kind: str, key: str, chance: random.Random, count: int) -> list[str]:
    """A command that changes one or more elements, copied already or not; the effect of some depends on all
    elements."""
    name = f"m{chance.randrange(count)}"
    new = f"n{chance.randrange(count)}"
    if kind == "hash":
        return chance.choice(
            [f"HSET {key} {name} changed", f"HDEL {key} {name}", f"HINCRBY {key} {new} 1",
             f"HSETNX {key} {name} again", f"HSET {key} {new}+ 1 {name} 2"]
        ).split()  # fmt: skip
    if kind == "set":
        return chance.choice(
            [f"SADD {key} {new} {name}", f"SREM {key} {name}", f"SPOP {key} 3", f"SMOVE {key} other {name}"]
        ).split()
    if kind == "list":
        if chance.random() < 0.03:  # in the middle: half of it may have to be copied again
            return chance.choice(
                [f"LINSERT {key} BEFORE {name} {new}", f"LREM {key} -1 {name}", f"LREM {key} 0 {name}"]
            ).split()
        return chance.choice(
            [f"RPUSH {key} {new} {new}", f"LPUSH {key} {new} {name}", f"LPOP {key} 3", f"RPOP {key} 2",
             f"LSET {key} {chance.randrange(count)} {new}", f"LTRIM {key} 1 -2", f"RPOPLPUSH {key} queue",
             f"LSET {key} -{1 + chance.randrange(count)} {new}", f"LMOVE {key} {key} LEFT RIGHT"]
        ).split()  # fmt: skip
    return chance.choice(
        [f"ZADD {key} {chance.randrange(count)} {name}", f"ZREM {key} {name}", f"ZINCRBY {key} 1.5 {new}",
         f"ZPOPMIN {key} 2", f"ZPOPMAX {key}", f"ZREMRANGEBYRANK {key} 10 12", f"ZADD {key} GT 9 {name}"]
    ).split()  # fmt: skip


def drastic(kind: str, chance: random.Random) -> list[list[bytes]]:
    """A command that affects the whole key."""
    again = list(filling(kind, "big", 6000, first=chance.randrange(1000)))
    name = {"hash": "HSET big f 1", "set": "SADD big f", "zset": "ZADD big 1 f", "list": "LPUSH big f"}[kind]
    return chance.choice(
        [
            [b"DEL big".split()],
            [b"DEL big".split(), *again],
            [b"DEL big".split(), name.encode().split()],
            [b"SET big text".split()],
            [b"RENAME big renamed".split(), *again],
            [b"COPY big copied".split()],
            [b"PEXPIREAT big 9999999999999".split()],
            [b"SWAPDB 0 3".split()],
            [b"FLUSHALL".split(), *again],
            [b"MULTI".split(), b"INCR count".split(), name.encode().split(), b"EXEC".split()],
        ]
    )


def grown(kind: str, chance: random.Random) -> list[list[bytes]]:
    """Commands that add more elements than there were, so that the hash table is reallocated."""
    return list(filling(kind, "big", 12_000, first=20_000 + chance.randrange(50_000)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_a_base_copy_in_pieces_among_changes(kind: str, seed: int) -> None:
    """After each piece the key is changed, by elements or as a whole; the other end has the final
    contents."""
    chance = random.Random(f"{kind} {seed}")
    source, target = Server(), Server()
    applied = make_applier(target)
    with served(source) as run:
        send = sender(run)
        for words in filling(kind, "big", 10_000):
            send(words)
        run("SET string value", "PEXPIREAT string 9999999999999", "RPUSH list a b", "SADD other x")
        copy = source.base_copy()
        pieces, drastic_left = 0, seed  # seed 0: none
        while piece := copy.read(4000):  # larger than the changes in between, or it would never end
            pieces += 1
            applied.apply(piece)
            for _ in range(chance.randrange(4)):
                send([word.encode() for word in changing(kind, "big", chance, 10_000)], may_fail=True)
            if drastic_left and chance.random() < 0.1:
                drastic_left -= 1
                for words in grown(kind, chance) if chance.random() < 0.3 else drastic(kind, chance):
                    send(words, may_fail=True)
        assert copy.complete
        assert seed or pieces > 10
        follower = copy.take_reader()
        for _ in range(50):
            send([word.encode() for word in changing(kind, "big", chance, 10_000)], may_fail=True)
        while follower.lag():
            applied.apply(follower.read(1000)[0])
    assert applied.complete
    assert state(target) == state(source)
    assert applied.offset == source.engine.backlog_counters()["offset"]
    sums = []
    for server in (source, target):  # as a move of slots compares both ends
        digest = _native.kv.SlotDigest(server.engine, list(range(16384)))
        while not digest.work(0.001):
            pass
        sums.append(digest.finish(now_ms=1))
    assert sums[0] == sums[1]
    assert sums[0][2] == []


def coming(kind: str, names: list[str]) -> list[bytes]:
    pairs = {"hash": lambda name: (name, "v"), "zset": lambda name: ("1", name)}
    words = (word for name in names for word in pairs.get(kind, lambda name: (name,))(name))
    command = {"hash": "HSET", "set": "SADD", "zset": "ZADD"}[kind]
    return [word.encode() for word in (command, "big", *words)]


def going(kind: str, names: list[str]) -> list[bytes]:
    command = {"hash": "HDEL", "set": "SREM", "zset": "ZREM"}[kind]
    return [word.encode() for word in (command, "big", *names)]


@pytest.mark.parametrize("kind", ["hash", "set", "zset"])
@pytest.mark.parametrize("churns", [False, True])
def test_a_copy_does_not_begin_anew_when_the_table_moves(kind: str, churns: bool) -> None:
    """A dict of 86,000 elements is reallocated after about 1,400 more, in the middle of the copy. Elements
    are removed and added on both sides of the position of the walk, and while the last changes are sent."""
    source, target, chance = Server(), Server(), random.Random(kind)
    applied, once = make_applier(target), 0
    with served(source) as run:
        send = sender(run)
        for words in filling(kind, "big", 86_000):
            send(words)
        copy = source.base_copy()
        while piece := copy.read(4000):
            once += len(piece)
        copy, said, rounds, gone = source.base_copy(), 0, 0, list[str]()
        while piece := copy.read(4000):
            applied.apply(piece)
            said += len(piece)
            rounds += 1
            send(coming(kind, [f"new{rounds}-{n}" for n in range(30)]))
            if churns and rounds < 500:
                send(coming(kind, gone or ["back"]))
                gone = [f"m{chance.randrange(86_000)}" for _ in range(30)]
                send(going(kind, gone))
        assert copy.complete
        follower = copy.take_reader()
        while follower.lag():
            applied.apply(follower.read(1000)[0])
    assert 86_000 + 30 * rounds > 87_382  # two thirds of 2¹⁷
    assert said < once * (1.3 if churns else 1.15)
    assert state(target) == state(source)


def summed(digest: _native.kv.SlotDigest) -> int:
    """Sums everything that can be summed, in pieces of bounded length. Returns the amount that was read."""
    done = False
    while not done:
        before = digest.summed
        done = digest.work(0.0)
        assert digest.summed - before <= 2 * PIECE
    return digest.summed


@pytest.mark.parametrize("kind", ["string", *KINDS])
def test_a_digest_does_not_read_a_large_value_again_when_writes_have_stopped(kind: str) -> None:
    """It was read before, in pieces. A value that changed since then is left out at both ends: only its type,
    length and expiry count."""
    source, target = Server(), Server()
    with served(source) as run, served(target) as there:
        for each in (run, there):
            send = sender(each)
            send([b"SET", b"small", b"1"])
            if kind == "string":
                send([b"SET", b"big", b"x" * 3_000_000])
            else:
                for words in filling(kind, "big", 20_000):
                    send(words)
        here, other = (_native.kv.SlotDigest(one.engine, list(range(16384))) for one in (source, target))
        assert here.pending > 1 << 30  # a digest that has not seen all keys is not ready
        read = summed(here)
        assert read >= 20_000
        assert here.pending == 0
        assert summed(other) == read
        assert here.finish(1) == other.finish(1)
        one_more = {
            "string": "APPEND big y",
            "list": "RPUSH big y",
            "hash": "HSET big y 1",
            "set": "SADD big y",
            "zset": "ZADD big 1 y",
        }[kind]
        for each in (run, there):
            sender(each)([b"SET", b"small", b"2"])
        assert here.finish(1) == other.finish(1)
        sender(run)(one_more.encode().split())
        assert here.finish(1)[0] != other.finish(1)[0]
        sender(there)(one_more.encode().split())
        sum_, keys, left_out = here.finish(1)
        assert (len(left_out), keys) == (1, 2)
        assert here.pending > 2000
        summed(other)
        assert other.finish(1)[2] == []
        assert other.finish(1)[0] != sum_  # with the value, and without it
        assert other.finish(1, left_out)[:2] == (sum_, keys)
        assert here.summed - read <= 10
        sender(there)([b"PEXPIREAT", b"big", b"9999999999999"])
        assert other.finish(1, left_out)[0] != sum_


def test_a_large_value_that_changes_all_the_time_is_not_waited_for() -> None:
    """Each change invalidates what was read of it; after several changes the digest stops trying."""
    server = Server()
    with served(server) as run:
        send = sender(run)
        for words in filling("set", "big", 50_000):
            send(words)
        digest = _native.kv.SlotDigest(server.engine, list(range(16384)))
        changes = 0
        while not digest.work(0.0):
            changes += 1
            send([b"SADD", b"big", b"new%d" % changes])
        assert changes < 40
        assert digest.pending == 0
        assert len(digest.finish(1)[2]) == 1
        # Once it no longer changes it can still be summed.
        while not digest.work(0.0, still=True):
            pass
        sum_, keys, left_out = digest.finish(1)
        assert (keys, left_out) == (1, [])
        again = _native.kv.SlotDigest(server.engine, list(range(16384)))
        summed(again)
        assert again.finish(1)[0] == sum_


def sender(run: Callable[..., None]) -> Callable[..., None]:
    connection = run.connection  # type: ignore[attr-defined]

    def send(words: list[bytes], *, may_fail: bool = False) -> None:
        reply = connection.run(*words)
        assert may_fail or not isinstance(reply, str) or reply == "OK", (words, reply)

    return send


class Sets:
    """The keys of a client, and the effect of its commands on them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.hash: dict[bytes, bytes] = {}
        self.set: set[bytes] = set()
        self.zset: dict[bytes, float] = {}
        self.list: list[bytes] = []

    def fill(self) -> Iterator[list[bytes]]:
        for kind in KINDS:
            for words in filling(kind, kind, self.count):
                self.do(words)
                yield words

    def do(self, words: list[bytes]) -> None:
        name, rest = words[0], words[2:]
        if name == b"HSET":
            self.hash.update(zip(rest[::2], rest[1::2], strict=True))
        elif name == b"HINCRBY":
            self.hash[rest[0]] = b"%d" % (int(self.hash.get(rest[0], b"0")) + int(rest[1]))
        elif name == b"HDEL":
            self.hash.pop(rest[0], None)
        elif name == b"SADD":
            self.set.update(rest)
        elif name == b"SREM":
            self.set.difference_update(rest)
        elif name == b"ZADD":
            self.zset.update(
                (member, float(score)) for score, member in zip(rest[::2], rest[1::2], strict=True)
            )
        elif name == b"ZINCRBY":
            self.zset[rest[1]] = self.zset.get(rest[1], 0.0) + float(rest[0])
        elif name == b"RPUSH":
            self.list += rest
        elif name == b"LPUSH":
            self.list[:0] = rest[::-1]
        elif name == b"LPOP":
            del self.list[: int(rest[0])]
        elif name == b"LSET":
            self.list[int(rest[0])] = rest[1]
        elif name == b"LREM":
            self.list.remove(rest[1])
        else:
            assert name == b"ZPOPMIN"
            lowest = min((score, member) for member, score in self.zset.items())
            del self.zset[lowest[1]]

    def next(self, chance: random.Random) -> list[bytes]:
        member = b"m%d" % chance.randrange(self.count)
        new = b"n%d" % chance.randrange(100)
        choices = [
            [b"HSET", b"hash", member, b"changed"], [b"HDEL", b"hash", member],
            [b"HINCRBY", b"hash", new, b"1"], [b"SADD", b"set", new], [b"SREM", b"set", member],
            [b"ZADD", b"zset", b"-5", member], [b"ZINCRBY", b"zset", b"1", new],
            [b"RPUSH", b"list", new, member], [b"LPUSH", b"list", new, member], [b"LPOP", b"list", b"3"],
            [b"LSET", b"list", b"%d" % chance.randrange(len(self.list)), new],
        ]  # fmt: skip
        if chance.random() < 0.02:
            return [b"ZPOPMIN", b"zset"]
        if chance.random() < 0.01:
            return [b"LREM", b"list", b"1", chance.choice(self.list)]
        return chance.choice(choices)


@pytest.mark.parametrize("when", ["while it is written", "when it is done"])
def test_a_kill_during_a_snapshot_of_large_values(tmp_path: Path, when: str) -> None:
    """At any instant: every acknowledged change is there, once, from the former files or the new ones."""
    chance, model = random.Random(when), Sets(60_000)
    with serving(tmp_path, "everysec") as (process, port), Connection(port) as connection:
        filled = list(model.fill())
        connection.socket.sendall(b"".join(pack(*words) for words in filled))
        assert all(isinstance(connection.receive(), int) for _ in filled)
        done_meanwhile = 0
        for round_ in range(2):
            assert "Background" in connection.run(b"BGSAVE")
            wanted = chance.randrange(50, 300)
            while is_saving(connection) and (round_ == 0 or when != "while it is written" or wanted):
                words = model.next(chance)
                reply = connection.run(*words)
                assert not isinstance(reply, str) or reply == "OK"
                model.do(words)
                done_meanwhile += 1
                wanted -= 1
        assert done_meanwhile > 100
        for _ in range(20 if when == "when it is done" else 0):
            words = model.next(chance)
            connection.run(*words)
            model.do(words)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with kept(tmp_path) as (server, _, said):
        found = {key: value for (_, key), (value, _) in state(server).items()}
    assert not said or "cut off" in said[0], said
    assert found == {b"hash": model.hash, b"set": model.set, b"zset": model.zset, b"list": model.list}


def is_saving(connection: Connection) -> bool:
    return b"rdb_bgsave_in_progress:1" in connection.run(b"INFO", b"persistence")


def test_a_snapshot_alone_brings_large_values_back(tmp_path: Path) -> None:
    """In pieces or whole, with and without an expiry: after SAVE nothing of the log is needed."""
    with kept(tmp_path) as (server, persistence, _), served(server) as run:
        send = sender(run)
        for kind in KINDS:
            for words in filling(kind, kind, 9000):
                send(words)
            send([b"PEXPIREAT", kind.encode(), b"9999999999999"])
        send([b"HSET", b"wide", *[b"field", b"x" * 300_000], *[b"other", b"y" * 900_000]])
        send([b"SAVE"])
        before, lsn = state(server), persistence.lsn
    with kept(tmp_path) as (server, persistence, said):
        assert state(server) == before
        assert persistence.lsn == lsn
    assert not said
