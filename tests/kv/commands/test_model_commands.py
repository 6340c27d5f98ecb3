"""Random commands to Verbena's functions and to the distribution's redis-server: equal replies in both
protocol versions, and replaying the log of effects gives equal contents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv.grammar import TEMPLATES, expand
from kv.memory_database import MemoryServer, wire
from kv.redis_peer import MISSING, SERVER, Peer, redis_server

from verbena.kv.values.collections import Set

pytestmark = pytest.mark.skipif(SERVER is None, reason=MISSING)

UNORDERED = frozenset(
    b"SMEMBERS SINTER SUNION SDIFF HKEYS HVALS KEYS SCAN SSCAN HSCAN ZSCAN".split()
    + b"GEOSEARCH GEORADIUS GEORADIUS_RO GEORADIUSBYMEMBER GEORADIUSBYMEMBER_RO".split()
)
SORTS = frozenset((b"SORT", b"SORT_RO"))
UNORDERED_PAIRS = frozenset((b"HGETALL",))
BY_CHANCE = frozenset(b"SPOP SRANDMEMBER HRANDFIELD ZRANDMEMBER RANDOMKEY".split())


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Peer]]:
    with redis_server(tmp_path_factory.mktemp("redis")) as path:
        connections = {protocol: Peer(path, protocol) for protocol in (2, 3)}
        yield connections
        for peer in connections.values():
            peer.close()


def shape(reply: Any) -> Any:
    """The parts of a reply that do not depend on chance: types and lengths."""
    kind, content = reply
    if isinstance(content, list):
        return (kind, [shape(item) for item in content])
    return (kind, content is None) if kind in "$," else reply


def comparable(words: list[bytes], reply: Any) -> Any:
    name = words[0].upper()
    kind, content = reply
    if name in BY_CHANCE:
        return shape(reply)
    if not isinstance(content, list):
        return reply
    if name in UNORDERED_PAIRS:
        return (kind, sorted(zip(content[::2], content[1::2], strict=True)))
    if name in UNORDERED or (
        name in SORTS and (b"BY" in words or b"by" in words)
    ):  # of a set, whose ties have no order
        return (kind, sorted((comparable(words, item) for item in content), key=repr))
    return reply


def follow(argv: list[bytes], ours: MemoryServer, peer: Peer) -> None:
    """Aligns the members after a random SPOP: the set becomes that of Redis."""
    if len(argv) > 1 and isinstance(ours.databases[0].any(argv[1]), Set):
        members = [content for _, content in peer.run("SMEMBERS", argv[1])[1]]
        ours.databases[0].put(argv[1], Set(members), keep_expiry=True)
        ours.log.append((0, (argv[1], Set(members), ours.databases[0].expires_ms(argv[1]))))


@pytest.mark.timeout(600)
@settings(max_examples=200)
@given(
    protocol=st.sampled_from((2, 3)),
    steps=st.lists(st.tuples(st.sampled_from(TEMPLATES), st.integers(0, 2**32)), min_size=10, max_size=60),
)
def test_the_same_commands_give_the_same_replies(
    peers: dict[int, Peer], protocol: int, steps: list[tuple[str, int]]
) -> None:
    """Each reply equals that of Redis in bytes and type, unless Redis itself chooses at random."""
    peer = peers[protocol]
    peer.run("FLUSHALL")
    ours = MemoryServer()
    done = []
    for template, seed in steps:
        argv = expand(template, seed)
        done.append(b" ".join(argv))
        name = argv[0].upper()
        theirs = comparable(argv, peer.run(*argv))
        mine = comparable(argv, wire(ours.run(*argv), protocol))
        assert mine == theirs, done
        if name == b"SPOP":
            follow(argv, ours, peer)
    assert ours.replayed().contents() == ours.contents(), done
