"""The choice of pieces and peers, leases, and validation of messages, without I/O."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.registry.nodes import lease, messages, pieces
from verbena.registry.nodes.lease import LIFETIME_S, Leases
from verbena.registry.nodes.pieces import OFFERED, Plan
from verbena.registry.nodes.settings import PIECE


def plan(count: int) -> Plan:
    return Plan(count * PIECE - 1, rng=random.Random(1))


@given(st.integers(0, 40 * PIECE))
def test_pieces_cover_a_blob_exactly(size: int) -> None:
    found = [pieces.bounds(index, size) for index in pieces.indexes(pieces.mask_of(size))]
    assert sum(length for _, length in found) == size
    assert all(start == index * PIECE and 0 < length <= PIECE for index, (start, length) in enumerate(found))


def test_a_single_fetcher_requests_pieces_in_order() -> None:
    """Clients that follow the blob can read it from the start."""
    blob = plan(6)
    for name in ("a", "b"):
        blob.note(name, held=0, whole=True)
    offers = [blob.offer(name, 0.0) for name in ("a", "b", "a", "b")]
    assert [offer.pieces for offer in offers if offer] == [1, 2, 4, 8]


def test_with_other_fetchers_a_holder_chooses_among_several_pieces() -> None:
    blob = plan(100)
    blob.note("origin", held=0, whole=True)
    blob.note("fellow", held=0b1111, whole=False)
    offer = blob.offer("origin", 0.0)
    assert offer is not None
    assert offer.patient
    assert offer.pieces.bit_count() == OFFERED
    assert not offer.pieces & 0b1111  # rare ones first


def test_pieces_of_other_fetchers_are_requested_from_the_origin_after_a_timeout() -> None:
    blob = plan(4)
    blob.note("origin", held=0, whole=True)
    blob.note("fellow", held=0, whole=False)
    while offer := blob.offer("origin", 0.0):
        blob.release(offer, elsewhere=True)
    assert blob.offer("origin", blob.elsewhere_timeout_s / 2) is None
    late = blob.offer("origin", blob.elsewhere_timeout_s)
    assert late is not None
    assert not late.patient


def test_when_the_last_fetcher_dies_the_origin_is_used_at_once() -> None:
    blob = plan(4)
    blob.note("origin", held=0, whole=True)
    blob.note("fellow", held=0b11, whole=False)
    while offer := blob.offer("origin", 0.0):
        blob.release(offer, elsewhere=True)
    blob.set_live("fellow", False)
    assert blob.offer("origin", 0.0) is not None


def test_a_slow_piece_is_requested_from_a_second_peer() -> None:
    """The first response wins; a second copy changes nothing."""
    blob = plan(1)
    for name in ("slow", "quick", "third"):
        blob.note(name, held=0, whole=True)
    first = blob.offer("slow", 0.0)
    assert first is not None
    assert blob.offer("quick", 0.1) is None
    stolen = blob.offer("quick", 1.0)
    assert stolen is not None
    assert blob.offer("third", 1.0) is None
    assert blob.record_received(stolen, 0, 1.1)
    assert not blob.record_received(first, 0, 1.2)
    assert blob.origin == {0: "quick"}
    assert blob.done


def test_the_piece_of_a_dead_holder_is_free_at_once() -> None:
    blob = plan(1)
    for name in ("dead", "other"):
        blob.note(name, held=0, whole=True)
    assert blob.offer("dead", 0.0) is not None
    assert blob.offer("other", 0.0) is None
    blob.set_live("dead", False)
    assert blob.offer("other", 0.0) is not None


def test_a_plan_is_completable_while_a_live_peer_has_or_receives_the_pieces() -> None:
    blob = plan(2)
    assert not blob.completable
    blob.note("orphan", held=1, whole=False, receiving=False)
    assert not blob.completable
    blob.note("receiving", held=1, whole=False, receiving=True)
    assert blob.completable
    blob.set_live("receiving", False)
    assert not blob.completable


@given(st.integers(1, 200), st.integers(2, 9), st.randoms(use_true_random=False))
def test_a_piece_is_requested_from_one_peer_unless_it_is_slow(
    count: int, holders: int, rng: random.Random
) -> None:
    """Offers are disjoint, contain only pieces of their holder, and end with all pieces."""
    blob = Plan(count * PIECE, rng=rng)
    for name in range(holders):
        blob.note(str(name), held=rng.getrandbits(count), whole=name == 0)
    flying = []
    while not blob.done:
        for name in range(holders):
            offer = blob.offer(str(name), 0.0)
            if offer is not None:
                assert not any(offer.pieces & other.pieces for other in flying)
                assert not offer.pieces & ~blob.holders[str(name)].held
                flying.append(offer)
        offer = flying.pop(rng.randrange(len(flying)))
        blob.record_received(offer, rng.choice(pieces.indexes(offer.pieces)), 0.0)
    assert blob.held == blob.all


def test_one_node_at_a_time_has_a_lease() -> None:
    leases = Leases()
    assert leases.ask("blob", "a", 0.0) == "a"
    assert leases.ask("blob", "b", 1.0) == "a"
    assert leases.ask("other", "b", 1.0) == "b"
    leases.release("blob", "b")  # it is not b's
    assert leases.ask("blob", "b", 1.0) == "a"
    leases.release("blob", "a")
    assert leases.ask("blob", "b", 1.0) == "b"
    assert leases.ask("blob", "a", 1.0 + LIFETIME_S) == "a"
    leases.drop("a")
    assert leases.ask("blob", "b", 1.0 + LIFETIME_S) == "b"


def test_all_nodes_agree_on_the_granting_node_and_the_load_is_spread() -> None:
    nodes = [f"node{number}" for number in range(8)]
    first = [lease.order(f"blob{number}", nodes)[0] for number in range(200)]
    assert first == [lease.order(f"blob{number}", reversed(nodes))[0] for number in range(200)]
    assert set(first) == set(nodes)
    for number in range(20):  # without one of them, only its own go to another
        rest = [node for node in nodes if node != "node3"]
        if first[number] != "node3":
            assert lease.order(f"blob{number}", rest)[0] == first[number]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b"{",
        b"[" * 100_000,
        b'{"digest": 7}',
        b'{"digest": "sha256:00"}',
        b'{"digest": "' + b"a" * 1000 + b'"}',
    ],
)
def test_malformed_requests_are_rejected(payload: bytes) -> None:
    with pytest.raises(messages.BadMessage):
        messages.take_digest(messages.decode(payload))


@pytest.mark.parametrize("pieces_field", [7, None, "-1", "+1", "1_0", "0x1", " 1", "g", "f" * (1 << 27)])
def test_sets_of_pieces_are_plain_hexadecimal_numbers(pieces_field: object) -> None:
    with pytest.raises(messages.BadMessage):
        messages.take_pieces({"pieces": pieces_field}, "pieces")


@pytest.mark.parametrize("number", [-1, 1.5, True, "7", None, 1 << 60])
def test_numbers_are_bounded(number: object) -> None:
    with pytest.raises(messages.BadMessage):
        messages.take_integer({"size": number}, "size")


@pytest.mark.parametrize("name", ["", "../up", "UPPER", "a" * 400, 7])
def test_repositories_are_names(name: object) -> None:
    with pytest.raises(messages.BadMessage):
        messages.take_repository({"repository": name})


@pytest.mark.parametrize("window", ["", "00", "zz" * 40, "00" * 41, 7])
def test_windows_are_regions(window: object) -> None:
    with pytest.raises(messages.BadMessage):
        messages.take_window({"window": window})
