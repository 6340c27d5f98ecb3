"""Random members of small and large sets, while the sets change."""

from __future__ import annotations

import pytest
from kv.memory_database import MemoryServer


@pytest.mark.parametrize("size", [3, 500])
def test_spop_takes_each_member_once(size):
    """Draws mixed with additions and removals are consistent with the set, and replaying the log gives the
    same set."""
    server = MemoryServer()
    server.run("SADD", "k", *range(size))
    expected = {b"%d" % number for number in range(size)}
    for turn in range(size // 2):
        taken = server.run("SPOP", "k")
        assert taken in expected
        expected.remove(taken)
        server.run("SADD", "k", f"new{turn}")
        expected.add(b"new%d" % turn)
        gone = min(expected)
        server.run("SREM", "k", gone)
        expected.remove(gone)
        assert server.run("SRANDMEMBER", "k") in expected
    assert server.run("SMEMBERS", "k") == frozenset(expected)
    assert server.replayed().contents() == server.contents()
    assert server.run("SPOP", "k", size + 1) == frozenset(expected)
    assert server.run("EXISTS", "k") == 0


DRAWS = [("SADD", "SRANDMEMBER"), ("HSET", "HRANDFIELD"), ("ZADD", "ZRANDMEMBER")]


@pytest.mark.parametrize(("add", "draw"), DRAWS)
def test_several_by_chance(add, draw):
    """A positive count gives distinct members, a negative one exactly as many as requested; every member
    occurs in time."""
    server = MemoryServer()
    for number in range(20):
        words = {"SADD": [f"m{number}"], "HSET": [f"m{number}", "v"], "ZADD": ["1", f"m{number}"]}[add]
        server.run(add, "k", *words)
    everyone = {f"m{number}".encode() for number in range(20)}
    some = server.run(draw, "k", 15)
    assert len(some) == len(set(some)) == 15
    assert set(some) <= everyone
    assert len(server.run(draw, "k", -50)) == 50
    assert set(server.run(draw, "k", -2000)) == everyone


@pytest.mark.parametrize(("add", "draw"), DRAWS)
def test_more_repetitions_than_memory_holds_are_refused(add, draw):
    server = MemoryServer()
    server.run(add, "k", *{"SADD": ["m"], "HSET": ["m", "v"], "ZADD": ["1", "m"]}[add])
    assert server.run(draw, "k", -(1 << 60)).text == "ERR value is out of range"
