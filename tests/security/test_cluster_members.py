"""Cluster messages are accepted from members only, by what their session has proved: against a program of the
same user that has no key, and against members that claim more than their role."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.kv import membership
from support.kv.cluster import MAIN, Cluster, ReplyError, RespConnection, cluster
from support.kv.members import PIECE_NOTICE, Member, offered_move, two

from verbena import transport
from verbena.errors import BrokenLinkError, ClosedError, DeniedError, RemoteError
from verbena.kv.cluster.membership import METHOD as PROOF_METHOD
from verbena.kv.cluster.membership import Opener
from verbena.kv.replication.link import METHOD as REPLICATE
from verbena.kv.replication.link import VERSION
from verbena.shards.envelope import HEADER_BYTES, Flag, Kind

TIMEOUT = ("--cluster-node-timeout-ms", "10000")
PASSWORD = "a password of the store, for tests"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A primary of all slots, its replica, and a member without slots."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, 3, keep=False, assign=False, options=TIMEOUT) as made:
        assert made[0].raw("CLUSTER", "ADDSLOTSRANGE", 0, 16383) == b"OK"
        replicate(made)
        yield made


def replicate(made: Cluster) -> None:
    made.until(lambda: made[0].id.encode() in made[1].raw("CLUSTER", "NODES"))
    assert made[1].raw("CLUSTER", "REPLICATE", made[0].id) == b"OK"
    made.until(lambda: b"connected_slaves:1" in made[0].raw("INFO", "replication"))


def with_session(
    made: Cluster, work: Callable[[transport.Session, dict[str, bytes]], Coroutine[Any, Any, Any]]
) -> Any:
    """Runs `work` with a session of this program, of the same user, to the primary, and the members' keys."""

    async def run() -> Any:
        keys = await membership.keys_of(made.store)
        async with transport.connect(f"127.0.0.1:{made[0].sessions}") as session:
            return await work(session, keys)

    return asyncio.run(run())


def refused(made: Cluster) -> int:
    rows = dict(row.split(":") for row in made[0].raw("INFO", "cluster").decode().split() if ":" in row)
    return int(rows["cluster_messages_refused"])


# A program without a key


@pytest.mark.timeout(120)
def test_a_program_posing_as_the_replica_does_not_stop_writes(made: Cluster) -> None:
    """It sends YIELD with the replica's id, again and again: each is refused, and each SET in between is
    answered within a second."""
    before, slowest = refused(made), 0.0

    async def attack(session: transport.Session, keys: dict[str, bytes]) -> None:
        nonlocal slowest
        with RespConnection("127.0.0.1", made[0].port) as wire:
            for number in range(50):
                answer = await membership.send(
                    session, membership.message(Kind.YIELD, made[1].id, made[0].id)
                )
                assert answer.flags & Flag.REFUSED
                assert answer.payload == b"YIELD: the session has not proved to be a member of the cluster"
                began = time.monotonic()
                assert wire.run("SET", f"key:{number}", number) == b"OK"
                slowest = max(slowest, time.monotonic() - began)

    with_session(made, attack)
    assert slowest < 1.0
    assert refused(made) == before + 50
    log = (made[0].folder / made[0].name / "log").read_text()
    assert log.count("YIELD: the session has not proved") == 1  # once per peer and minute


@pytest.mark.parametrize("kind", list(Kind))
def test_an_unproved_session_is_refused_for_every_kind(made: Cluster, kind: Kind) -> None:
    """Whichever member it names; notices go to native code."""

    async def ask(session: transport.Session, keys: dict[str, bytes]) -> None:
        for source in (made[1].id, made[2].id, "00" * 20):
            message = membership.message(kind, source, made[0].id, payload=bytes(8))
            for method in ("shards", "shards.notice") if kind is Kind.NOTICE else ("shards",):
                assert (await membership.send(session, message, method=method)).flags & Flag.REFUSED

    with_session(made, ask)


def test_only_a_replica_gets_the_log(made: Cluster) -> None:
    """Neither an unproved session, nor a member that the map does not list as a replica of this node."""
    request = json.dumps(
        {"version": VERSION, "databases": 16, "port": 1, "replid": "", "lsn": 0, "offset": 0,
         "ring_key": 1, "ring_bytes": 1 << 20, "ring_tag": 1, "stream": None}
    ).encode()  # fmt: skip

    async def follow(session: transport.Session, keys: dict[str, bytes]) -> None:
        assert "error" in json.loads(await session.call(REPLICATE, request))
        await membership.prove(session, made[2].id, made[0].id, keys)
        assert "error" in json.loads(await session.call(REPLICATE, request))

    with_session(made, follow)


# Proofs


def test_a_replayed_proof_is_refused(made: Cluster) -> None:
    """The recorded hello and proof of a member, on another session and on its own."""

    async def replay(session: transport.Session, keys: dict[str, bytes]) -> None:
        opener = Opener(session, member=made[1].id, key=keys[made[1].id], acceptor=made[0].id)
        challenge = await session.call(PROOF_METHOD, opener.hello())
        recorded = [opener.hello(), opener.prove(challenge, keys[made[0].id])]
        await session.call(PROOF_METHOD, recorded[1])
        async with transport.connect(f"127.0.0.1:{made[0].sessions}") as other:
            for one in (other, session):
                await one.call(PROOF_METHOD, recorded[0])
                with pytest.raises(RemoteError, match="does not hold the key"):
                    await one.call(PROOF_METHOD, recorded[1])
            gossip = membership.message(Kind.GOSSIP, made[1].id, made[0].id, b"{}")
            assert (await membership.send(other, gossip)).flags & Flag.REFUSED

    with_session(made, replay)


def test_a_proof_with_a_wrong_key_is_refused(made: Cluster) -> None:
    """Another member's key, a random one, and a member that does not exist."""

    async def guess(session: transport.Session, keys: dict[str, bytes]) -> None:
        keys["f" * 40] = bytes(32)
        for member, key in (
            (made[1].id, keys[made[2].id]),
            (made[1].id, os.urandom(32)),
            ("f" * 40, bytes(32)),
        ):
            with pytest.raises(RemoteError, match="does not hold the key"):
                await membership.prove(session, member, made[0].id, keys, key=key)
        message = membership.message(Kind.YIELD, made[1].id, made[0].id)
        assert (await membership.send(session, message)).flags & Flag.REFUSED

    with_session(made, guess)


def test_invalid_messages_of_a_proof_are_refused(made: Cluster) -> None:
    async def send(session: transport.Session, keys: dict[str, bytes]) -> None:
        for data in (b"", b"x", bytes(78), b"VSMB\1\1" + bytes(72), b"VSMB\1\3" + bytes(40)):
            with pytest.raises(RemoteError):
                await session.call(PROOF_METHOD, data)

    with_session(made, send)


def test_a_member_cannot_name_another_one_as_the_source(made: Cluster) -> None:
    """The member without slots sends YIELD in the name of the replica, then in its own."""

    async def claim(session: transport.Session, keys: dict[str, bytes]) -> None:
        await membership.prove(session, made[2].id, made[0].id, keys)
        gossip = membership.message(Kind.GOSSIP, made[2].id, made[0].id, b"{}")
        assert not (await membership.send(session, gossip)).flags & Flag.REFUSED
        for source, why in ((made[1].id, b"names a source"), (made[2].id, b"is for a replica of this node")):
            answer = await membership.send(session, membership.message(Kind.YIELD, source, made[0].id))
            assert answer.flags & Flag.REFUSED
            assert why in answer.payload

    with_session(made, claim)


def test_the_keys_of_members_are_not_shown(made: Cluster) -> None:
    """Not by commands, by the command line, nor in what the nodes print and log."""
    keys = [key.hex() for key in asyncio.run(membership.keys_of(made.store)).values()]
    assert len(set(keys)) == 3
    assert all(len(key) == 64 for key in keys)
    commands = [("CLUSTER", what) for what in ("NODES", "SHARDS", "SLOTS", "INFO", "LINKS", "VIEWS", "MOVES")]
    shown = [repr(made[0].raw(*words)) for words in [*commands, ("INFO", "everything")]]
    for words in (("map",), ("map", "--json"), ("nodes", "--json"), ("status", "--json")):
        command = [*MAIN, "shards", *words, "--cluster-map-store", made.store]
        shown.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for node in made.nodes:
        shown += [(node.folder / node.name / name).read_text() for name in ("out", "log")]
    assert not [text for text in shown for key in keys if key in text]


@pytest.mark.timeout(120)
def test_a_forgotten_member_has_no_rights(tmp_path: Path) -> None:
    """From the answer to CLUSTER FORGET on, at the node that answered: its session is refused, or closed."""
    with cluster(tmp_path, 2, keep=False, assign=False, options=TIMEOUT) as made:

        async def be_forgotten(session: transport.Session, keys: dict[str, bytes]) -> None:
            made[1].kill()
            await membership.prove(session, made[1].id, made[0].id, keys)
            gossip = membership.message(Kind.GOSSIP, made[1].id, made[0].id, b"{}")
            assert not (await membership.send(session, gossip)).flags & Flag.REFUSED
            assert made[0].raw("CLUSTER", "FORGET", made[1].id) == b"OK"
            for one in (session, await transport.connect(f"127.0.0.1:{made[0].sessions}")):
                try:
                    assert (await membership.send(one, gossip)).flags & Flag.REFUSED
                    with pytest.raises(RemoteError):
                        await membership.prove(one, made[1].id, made[0].id, keys)
                except (BrokenLinkError, ClosedError):
                    assert one is session
            await one.close()

        with_session(made, be_forgotten)


@pytest.mark.timeout(120)
def test_with_a_password_on_all_nodes_a_replica_follows_by_membership(tmp_path: Path) -> None:
    """No node is configured to log in at another. `verbena shards` logs in as a user of the store."""
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    options = (*TIMEOUT, "--kv-password-file", str(file))
    with cluster(tmp_path, 2, keep=False, assign=False, options=options) as made:
        with (
            RespConnection("127.0.0.1", made[0].port) as first,
            RespConnection("127.0.0.1", made[1].port) as second,
        ):
            with pytest.raises(ReplyError, match="NOAUTH"):
                first.run("CLUSTER", "NODES")
            for wire in (first, second):
                assert wire.run("AUTH", PASSWORD) == b"OK"
            first.run("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            made.until(lambda: made[0].id.encode() in second.run("CLUSTER", "NODES"))
            assert second.run("CLUSTER", "REPLICATE", made[0].id) == b"OK"
            made.until(lambda: b"connected_slaves:1" in first.run("INFO", "replication"))
            assert first.run("SET", "key", "value") == b"OK"
            assert first.run("WAIT", 1, 10_000) == 1
            assert second.run("CLUSTER", "FAILOVER") == b"OK"
            made.until(lambda: b"role:master" in second.run("INFO", "replication"))

        def nodes(*flags: str) -> subprocess.CompletedProcess[str]:
            command = [*MAIN, "shards", "nodes", "--json", "--cluster-map-store", made.store, *flags]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        assert set(json.loads(nodes("--kv-password-file", str(file)).stdout)) == {made[0].id, made[1].id}
        assert set(json.loads(nodes("--kv-password-file", str(file), "--user", "default").stdout))
        without = nodes()
        assert json.loads(without.stdout) == {}
        assert "NOAUTH" in without.stderr


# The other end, and the windows of a move


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Member, Member]]:
    async with two(tmp_path, "tcp") as made:
        yield made


async def test_another_process_at_the_address_of_a_member_is_not_talked_to(
    pair: tuple[Member, Member],
) -> None:
    """It accepts everything, but cannot prove to be the member: no message reaches it."""
    source, target = pair
    received: list[bytes] = []

    def accept(request: transport.Request) -> bytes:
        received.append(bytes(request.payload))
        return bytes(request.payload)

    def challenge(request: transport.Request) -> bytes:
        return b"VSMB\1\2" + os.urandom(64)

    handlers: dict[str, transport.Handler] = {"shards": accept, PROOF_METHOD: challenge}
    config = source.cluster._config
    async with transport.listen("127.0.0.1:0", handlers=handlers, config=config) as impostor:
        there = source.cluster.map.members[target.cluster.id]
        moved = type(there)(there.id, there.host, there.port, impostor.address, there.name, there.key)
        await source.cluster.sessions.drop(there)
        with pytest.raises(DeniedError) as raised:
            await source.cluster.sessions.session(moved, fast=False)
        assert raised.value.code == "not_a_member"
        assert received == []


async def test_the_windows_of_a_move_are_the_sources_alone(pair: tuple[Member, Member]) -> None:
    """A third session knows their keys: it can neither write to them nor announce a piece, though it proves
    to be the source. When another session of the source borrows windows, the first ones are revoked."""
    source, target = pair
    mover = await offered_move(source, target)
    session, _ = await mover.link.copy_session()
    window, *_ = await mover.link.borrow(session)
    again, *_ = await mover.link.borrow(session)
    assert again.key == window.key
    await session.write(window[:5], b"owner")
    notice = bytes(mover.link.message(Kind.NOTICE, PIECE_NOTICE.pack(0, HEADER_BYTES), segment=0))
    keys = {one.cluster.id: one.cluster._own.key for one in pair}
    address = target.cluster.me.sessions
    before = target.cluster.moves.refused_notices
    async with await source.cluster._connect(address, session.wire) as third:
        with pytest.raises(DeniedError):
            await third.write(window[:5], b"third")
        assert (await membership.send(third, mover.link.message(Kind.WINDOWS))).flags & Flag.REFUSED
        await membership.prove(third, source.cluster.id, target.cluster.id, keys)
        with pytest.raises(DeniedError):
            await third.write(window[:5], b"third")
        with pytest.raises(RemoteError, match="not lent to this session"):
            await source.cluster.sessions.send(third, notice)
        assert target.cluster.moves.refused_notices == before + 1
        other, *_ = await mover.link.borrow(third)
        await third.write(other[:5], b"third")
        with pytest.raises(DeniedError):
            await session.write(window[:5], b"owner")
        with pytest.raises(RemoteError, match="not lent to this session"):
            await source.cluster.sessions.send(session, notice)
    for _ in range(6):
        async with await source.cluster._connect(address, "iwarp") as more:
            await membership.prove(more, source.cluster.id, target.cluster.id, keys)
            await mover.link.borrow(more)
    with pytest.raises(RemoteError, match="lent 8 times"):
        await mover.link.borrow(session)
    await mover.abort()


async def test_a_notice_in_another_name_is_refused(pair: tuple[Member, Member]) -> None:
    """Even by the session that has the windows."""
    source, target = pair
    mover = await offered_move(source, target)
    session, _ = await mover.link.copy_session()
    await mover.link.borrow(session)
    fields = {"source": bytes(20), "segment": 0}
    notice = mover.link.message(Kind.NOTICE, PIECE_NOTICE.pack(0, HEADER_BYTES), **fields)
    with pytest.raises(RemoteError, match="names a source"):
        await source.cluster.sessions.send(session, bytes(notice))
    await mover.abort()


async def test_a_source_that_loses_its_membership_loses_its_windows(pair: tuple[Member, Member]) -> None:
    """Another process writes a new key for it into the map: its session announces no further piece, and is
    closed."""
    source, target = pair
    mover = await offered_move(source, target)
    session, _ = await mover.link.copy_session()
    window, *_ = await mover.link.borrow(session)
    notice = bytes(mover.link.message(Kind.NOTICE, PIECE_NOTICE.pack(0, HEADER_BYTES), segment=0))
    renewed = replace(source.cluster.me, key=os.urandom(32).hex())
    await target.cluster.current.change(lambda map: map.meet(renewed))
    with pytest.raises((RemoteError, BrokenLinkError, ClosedError), match=r"not lent|closed|ended"):
        await source.cluster.sessions.send(session, notice)

    async def closed() -> None:
        async for _ in session.states():
            if session.closed:
                return

    await asyncio.wait_for(closed(), 10)
    with pytest.raises((BrokenLinkError, ClosedError)):
        await session.write(window[:5], b"owner")
