"""Blocking pops: what they request from the engine, and what they do when it retries them."""

from __future__ import annotations

import pytest
from kv.memory_database import MemoryServer

from verbena.kv.commands.declare import COMMANDS
from verbena.kv.commands.replies import CommandError, NullArray


def again(server: MemoryServer, *words: str):
    """Retries the first waiting client while the given command runs."""
    server.running = COMMANDS[words[0]]
    _, retry, _ = server.waiting[0]
    return retry(server.call([word.encode() for word in words]))


@pytest.mark.parametrize(
    ("words", "fill", "answer"),
    [
        (("BLPOP", "k", "other", "2.5"), ("RPUSH", "other", "a", "b"), [b"other", b"a"]),
        (("BRPOP", "k", "2.5"), ("RPUSH", "k", "a", "b"), [b"k", b"b"]),
        (("BLMOVE", "k", "d", "LEFT", "RIGHT", "2.5"), ("RPUSH", "k", "a", "b"), b"a"),
        (("BRPOPLPUSH", "k", "d", "2.5"), ("RPUSH", "k", "a", "b"), b"b"),
        (("BLMPOP", "2.5", "1", "k", "LEFT", "COUNT", "5"), ("RPUSH", "k", "a", "b"), [b"k", [b"a", b"b"]]),
        (("BZPOPMIN", "k", "2.5"), ("ZADD", "k", "1", "a", "2", "b"), [b"k", b"a", 1.0]),
        (("BZPOPMAX", "k", "2.5"), ("ZADD", "k", "1", "a", "2", "b"), [b"k", b"b", 2.0]),
        (("BZMPOP", "2.5", "1", "k", "MIN"), ("ZADD", "k", "1", "a", "2", "b"), [b"k", [[b"a", 1.0]]]),
    ],
)
def test_a_blocked_client_is_served_when_its_key_has_elements(words, fill, answer):
    """While the key is missing or has another type, it continues to wait; then it is served, and replaying
    the log gives the same contents."""
    server = MemoryServer()
    assert isinstance(server.run(*words), NullArray)
    keys, _, timeout_s = server.waiting[0]
    assert timeout_s == 2.5
    assert again(server, *words) is None
    server.run("SADD", fill[1], "x")
    assert again(server, *words) is None
    server.run("SREM", fill[1], "x")
    server.run(*fill)
    assert fill[1].encode() in keys
    assert again(server, *words) == answer
    assert server.replayed().contents() == server.contents()


def test_a_move_to_something_else_ends_the_wait_with_an_error():
    """The type of the destination is checked when there is an element to move; the element is not lost."""
    server = MemoryServer()
    server.run("SADD", "d", "x")
    server.run("BLMOVE", "k", "d", "LEFT", "LEFT", "0")
    server.run("RPUSH", "k", "a")
    with pytest.raises(CommandError, match="WRONGTYPE"):
        again(server, "BLMOVE")
    assert server.run("LLEN", "k") == 1
