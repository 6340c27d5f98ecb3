"""Scans of collections, and Redis's glob patterns."""

from __future__ import annotations

import pytest
from kv.memory_database import MemoryServer

from verbena.kv.commands.data.scan_cursors import pattern


@pytest.mark.parametrize(
    ("scan", "add", "remove"),
    [
        ("SSCAN", lambda server, member: server.run("SADD", "k", member), "SREM"),
        ("HSCAN", lambda server, member: server.run("HSET", "k", member, "v"), "HDEL"),
        ("ZSCAN", lambda server, member: server.run("ZADD", "k", 1, member), "ZREM"),
    ],
)
def test_a_member_that_stays_during_a_scan_is_returned(scan, add, remove):
    """Members that are added and removed between the calls of a scan hide none of the members that stay."""
    server = MemoryServer()
    for number in range(1000):
        add(server, f"stays{number}")
        add(server, f"goes{number}")
    cursor, seen, calls = b"0", set(), 0
    while calls == 0 or cursor != b"0":
        cursor, words = server.run(scan, "k", cursor, "COUNT", 50)
        seen |= set(words)
        server.run(remove, "k", f"goes{calls}", f"goes{999 - calls}")
        add(server, f"comes{calls}")
        calls += 1
    assert {f"stays{number}".encode() for number in range(1000)} <= seen
    assert calls >= 20


def test_a_scan_goes_on_in_another_copy_of_the_value():
    """A cursor contains its position and needs no state of the server: here the copy has to be sorted
    again."""
    server = MemoryServer()
    server.run("SADD", "k", *range(1000))
    cursor, first = server.run("SSCAN", "k", 0, "COUNT", 400)
    server.run("COPY", "k", "other")
    seen = set(first)
    while cursor != b"0":
        cursor, words = server.run("SSCAN", "other", cursor, "COUNT", 400)
        seen |= set(words)
    assert len(seen) == 1000


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        (b"h?llo", b"hello", b"hllo"),
        (b"h*o", b"ho", b"hop"),
        (b"[ab]c", b"ac", b"cc"),
        (b"[^a]c", b"bc", b"ac"),
        (b"[b-d]", b"c", b"a"),
        (b"[d-b]", b"c", b"a"),
        (b"\\*x", b"*x", b"ax"),
        (b"a[", b"", b"a["),
        (b"**a**", b"bab", b"bbb"),
        (b"*ab*ab", b"abxab", b"ab"),
        (b"a\nb*", b"a\nb\n", b"ab"),
    ],
)
def test_patterns(glob, matching, other):
    """A pattern must match the whole key, with every byte, line ends included."""
    if matching:
        assert pattern(glob).match(matching)
    assert not pattern(glob).match(other)


def test_a_cursor_beyond_64_bits_is_refused():
    assert MemoryServer().run("SSCAN", "k", 1 << 64).text == "ERR invalid cursor"
