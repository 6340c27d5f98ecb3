"""The proof of membership without I/O, and the rights that it gives: what a member may send, and when its
rights end."""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kv.membership import Bound, message

from verbena.errors import DeniedError, ProtocolError
from verbena.kv.cluster.member_rights import RULES, Cause, MemberRights, RefreshLimit, RefusalLog
from verbena.kv.cluster.membership import Acceptor, MemberHello, Opener, is_member_hello
from verbena.shards.cluster_map import ClusterMap, Member, Move
from verbena.shards.envelope import Kind
from verbena.shards.slots import SlotRange

A, B, C = ("a" * 40, "b" * 40, "c" * 40)
KEYS = {id: secrets.token_bytes(32) for id in (A, B, C)}
MIGRATION = "5e" * 16


def member(id: str, key: bytes | None = None) -> Member:
    return Member(id, "127.0.0.1", 1, "127.0.0.1:2", id[0], (KEYS[id] if key is None else key).hex())


def exchange(
    opener_session: Any,
    acceptor_session: Any,
    *,
    opener_key: bytes = KEYS[A],
    acceptor_key: bytes = KEYS[B],
    known_opener: bytes = KEYS[A],
    known_acceptor: bytes = KEYS[B],
    named: str = B,
) -> int | None:
    """The whole proof of A to B; each end has its own idea of the session and of the keys."""
    opener = Opener(opener_session, member=A, key=opener_key, acceptor=named, revision=5)
    acceptor = Acceptor(acceptor_session, MemberHello.parse(opener.hello()), member=B, key=acceptor_key)
    assert acceptor.opener == A
    return acceptor.verify(opener.prove(acceptor.challenge, known_acceptor), known_opener)


def test_two_members_prove_themselves_to_each_other() -> None:
    """The acceptor learns the revision of the opener's map with the proof."""
    assert exchange(Bound(), Bound()) == 5


def test_a_wrong_key_proves_nothing_in_either_direction() -> None:
    other = secrets.token_bytes(32)
    assert exchange(Bound(), Bound(), opener_key=other) is None
    assert exchange(Bound(), Bound(), known_opener=other) is None
    assert exchange(Bound(), Bound(), known_opener=b"") is None  # a member without a key
    for key in ({"acceptor_key": other}, {"known_acceptor": other}, {"known_acceptor": b""}):
        with pytest.raises(DeniedError, match="not the member"):
            exchange(Bound(), Bound(), **key)  # type: ignore[arg-type]


def test_an_empty_key_is_no_key() -> None:
    """A member that the map lists without a key cannot be impersonated with the empty one."""
    assert exchange(Bound(), Bound(), opener_key=b"", known_opener=b"") is None
    with pytest.raises(DeniedError):
        exchange(Bound(), Bound(), acceptor_key=b"", known_acceptor=b"")


@pytest.mark.parametrize("other", [Bound(id=8), Bound(secret=b"another handshake")])
def test_a_proof_is_bound_to_its_session(other: Bound) -> None:
    """A process between two members has a session with each: it cannot pass the proofs on, even if it chose
    the same session id."""
    with pytest.raises(DeniedError):
        exchange(Bound(), other)
    opener = Opener(Bound(), member=A, key=KEYS[A], acceptor=B)
    honest = Acceptor(Bound(), MemberHello.parse(opener.hello()), member=B, key=KEYS[B])
    proof = opener.prove(honest.challenge, KEYS[B])
    relayed = Acceptor(other, MemberHello.parse(opener.hello()), member=B, key=KEYS[B])
    assert relayed.verify(proof, KEYS[A]) is None


def test_a_recorded_proof_is_worthless_the_next_time() -> None:
    """The acceptor's nonce is new."""
    opener = Opener(Bound(), member=A, key=KEYS[A], acceptor=B)
    first, second = (
        Acceptor(Bound(), MemberHello.parse(opener.hello()), member=B, key=KEYS[B]) for _ in range(2)
    )
    proof = opener.prove(first.challenge, KEYS[B])
    assert first.verify(proof, KEYS[A]) is not None
    assert second.verify(proof, KEYS[A]) is None
    assert first.challenge != second.challenge


def test_a_proof_sent_back_to_its_prover_is_worthless() -> None:
    """A and B share one key here: only the direction differs."""
    opener = Opener(Bound(), member=A, key=KEYS[A], acceptor=B)
    acceptor = Acceptor(Bound(), MemberHello.parse(opener.hello()), member=B, key=KEYS[A])
    reflected = acceptor.challenge[-32:]
    proof = opener.prove(acceptor.challenge, KEYS[A])
    assert acceptor.verify(proof[:-32] + reflected, KEYS[A]) is None


def test_a_hello_for_another_member_or_in_the_own_name_is_refused() -> None:
    for hello in (
        MemberHello(bytes.fromhex(A), bytes.fromhex(C), bytes(32)),
        MemberHello(bytes.fromhex(B), bytes.fromhex(B), bytes(32)),
    ):
        with pytest.raises(DeniedError):
            Acceptor(Bound(), hello, member=B, key=KEYS[B])


# Parsing


@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    acceptor = Acceptor(
        Bound(), MemberHello(bytes.fromhex(A), bytes.fromhex(B), bytes(32)), member=B, key=KEYS[B]
    )
    opener = Opener(Bound(), member=A, key=KEYS[A], acceptor=B)
    is_member_hello(data)
    for parse in (
        MemberHello.parse,
        lambda data: acceptor.verify(data, KEYS[A]),
        lambda data: opener.prove(data, KEYS[B]),
    ):
        with pytest.raises(ProtocolError):
            parse(data)


@given(which=st.integers(0, 2), at=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.booleans())
def test_a_changed_or_cut_message_proves_nothing(which: int, at: int, bit: int, cut: bool) -> None:
    """Any bit of any of the three messages, or their end."""

    def changed(number: int, data: bytes) -> bytes:
        if number != which:
            return data
        place = at % len(data)
        return data[:place] + (b"" if cut else bytes([data[place] ^ 1 << bit]) + data[place + 1 :])

    opener = Opener(Bound(), member=A, key=KEYS[A], acceptor=B, revision=5)
    with contextlib.suppress(DeniedError, ProtocolError):
        acceptor = Acceptor(Bound(), MemberHello.parse(changed(0, opener.hello())), member=B, key=KEYS[B])
        proof = opener.prove(changed(1, acceptor.challenge), KEYS[B])
        assert acceptor.verify(changed(2, proof), KEYS[A]) is None


# Rights


class Session(Bound):
    """Compares and hashes by identity, as a real session."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Node:
    """B as it sees its map."""

    def __init__(self) -> None:
        self.map = ClusterMap().meet(member(A)).meet(member(B)).meet(member(C))
        self.rights = MemberRights(B, KEYS[B], lambda: self.map)

    def proved(self, id: str) -> Any:
        session: Any = Session()
        opener = Opener(session, member=id, key=KEYS[id], acceptor=B)
        proof = opener.prove(self.rights.challenge(session, opener.hello()), KEYS[B])
        assert self.rights.prove(session, self.rights.take_challenged(session), proof) is not None
        return session

    def cause(self, session: Any, kind: Kind, source: str = A, migration: str = MIGRATION) -> Cause | None:
        refusal = self.rights.refusal_of(session, message(kind, source, B, migration=migration))
        return refusal.cause if refusal is not None else None


def test_every_kind_of_message_has_a_rule() -> None:
    assert set(RULES) == set(Kind)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_session_without_a_proof_may_send_nothing(kind: Kind) -> None:
    """A hello that was not followed by its proof is none."""
    node = Node()
    session: Any = Session()
    assert node.cause(session, kind) is Cause.UNPROVED
    node.rights.challenge(session, Opener(session, member=A, key=KEYS[A], acceptor=B).hello())
    assert node.cause(session, kind) is Cause.UNPROVED


@pytest.mark.parametrize("kind", list(Kind))
def test_a_member_may_send_what_its_role_in_the_map_allows(kind: Kind) -> None:
    """A is the source of a move to B, C a replica of B; no member sends the last two kinds by this method."""
    node = Node()
    source, replica = node.proved(A), node.proved(C)
    node.map = (
        node.map.assign(range(100), A)
        .replicate(C, B)
        .begin_move(Move(MIGRATION, SlotRange(0, 9), A, B))
        .begin_move(Move("00" * 16, SlotRange(10, 19), A, B))
    )
    allowed = {
        "source": {Kind.OFFER, Kind.WINDOWS, Kind.TAIL, Kind.DIGEST, Kind.ABORT, Kind.OWN, Kind.GOSSIP},
        "replica": {Kind.YIELD, Kind.OWN, Kind.GOSSIP},
    }
    assert (node.cause(source, kind) is None) == (kind in allowed["source"])
    assert (node.cause(replica, kind, C) is None) == (kind in allowed["replica"])
    if RULES[kind].by_map and kind is not Kind.YIELD:
        assert node.cause(source, kind, migration="ab" * 16) is Cause.RIGHT  # another migration
        node.map = node.map.abort_move(MIGRATION)
        assert node.cause(source, kind) is Cause.RIGHT


@pytest.mark.parametrize("kind", list(Kind))
def test_a_member_may_not_name_another_one_as_the_source(kind: Kind) -> None:
    node = Node()
    node.map = node.map.replicate(A, B)
    assert node.cause(node.proved(C), kind, A) is Cause.SOURCE


def test_the_rights_end_with_the_membership() -> None:
    """At once, by CLUSTER FORGET and by a new key, which a restarted or a second process writes. They do not
    return with the member."""
    for without in (lambda map: map.forget(A), lambda map: map.meet(member(A, secrets.token_bytes(32)))):
        node = Node()
        node.map = node.map.replicate(A, B)
        session, other = node.proved(A), node.proved(C)
        assert node.rights.member_of(session) == A
        assert node.rights.is_replica(session)
        assert node.cause(session, Kind.GOSSIP) is None
        node.map = without(node.map)
        assert node.rights.member_of(session) is None
        assert not node.rights.is_replica(session)
        assert node.cause(session, Kind.GOSSIP) is Cause.UNPROVED
        assert node.rights.take_ended() == [session]
        assert node.rights.take_ended() == []
        node.map = node.map.meet(member(A))
        assert node.cause(session, Kind.GOSSIP) is Cause.UNPROVED
        assert node.cause(other, Kind.GOSSIP, C) is None


def test_a_session_stays_the_member_that_it_proved_to_be() -> None:
    node = Node()
    session = node.proved(A)
    with pytest.raises(DeniedError, match="another member"):
        node.rights.challenge(session, Opener(session, member=C, key=KEYS[C], acceptor=B).hello())
    with pytest.raises(ProtocolError, match="without a hello"):
        node.rights.take_challenged(session)


def test_the_map_is_read_rarely_for_unknown_peers() -> None:
    """Once per second for one id, and eight times for all."""
    limit = RefreshLimit()
    assert [limit.allow(A, now) for now in (0.0, 0.5, 0.99, 1.0, 1.5)] == [True, False, False, True, False]
    assert sum(limit.allow(f"{number:040x}", 1.6) for number in range(100)) == 7
    assert limit.allow(C, 2.7)


def test_refusals_are_counted_each_and_logged_once_per_peer_and_minute() -> None:
    refusals = RefusalLog()
    logged = [
        refusals.add("unproved", peer, now) for peer, now in (("x", 0), ("x", 59), ("y", 59), ("x", 60))
    ]
    assert logged == [True, False, True, True]
    assert (refusals.counts["unproved"], refusals.total) == (4, 4)


# The keys are not shown


def test_a_map_shows_no_key() -> None:
    """Not by repr(), nor in what commands print; only the map store gets it."""
    map = ClusterMap().meet(member(A)).meet(member(B))
    key = KEYS[A].hex()
    assert key.encode() in map.encode()
    assert ClusterMap.decode(map.encode()) == map
    for shown in (
        repr(map),
        str(map),
        repr(map.members[A]),
        str(map.describe()),
        repr(MemberRights(A, KEYS[A], lambda: map)),
    ):
        assert key not in shown


@pytest.mark.parametrize("key", ["ab", "g" * 64, "A" * 64, "ab" * 32 + "\n", 5, ["a"] * 64])
def test_a_map_with_an_invalid_key_is_refused_without_showing_it(key: Any) -> None:
    data = ClusterMap().meet(member(A)).encode().replace(KEYS[A].hex().encode(), b"@")
    with pytest.raises(ProtocolError) as raised:
        ClusterMap.decode(data.replace(b'"@"', json.dumps(key).encode()))
    assert "ab" * 32 not in str(raised.value)


def test_a_restart_keeps_a_members_place() -> None:
    """The new key changes nothing else in the map."""
    map = ClusterMap().meet(member(A)).assign(range(10), A)
    again = map.meet(member(A, secrets.token_bytes(32)))
    assert replace(again, epoch=map.epoch).describe() == map.describe()
