"""Markers in the stream, for whoever asks for them: the same operations, one way, the other, or both."""

from __future__ import annotations

import pytest
from support.rdma.link import (
    Pair,
    compare_swap,
    connect_managed,
    drain,
    fetch_add,
    make_end,
    pattern,
    read,
    send,
    statuses,
    write,
)

from verbena import verbs
from verbena.errors import WcStatus
from verbena.verbs import IwarpOptions, RemoteMemory

LONG = 300_001  # several FPDUs, and no multiple of four


@pytest.fixture(params=[(True, False), (False, True), (True, True)], ids=["caller", "called", "both"])
def asked(request):
    """Who asks for markers: the caller, who was called."""
    return request.param


@pytest.fixture(params=[True, False], ids=["crc", "no-crc"])
def pair(request, asked):
    """Two ends, connected."""
    caller, called = (
        verbs.open_device("iwarp:lo", options=IwarpOptions(markers=markers, crc=request.param))
        for markers in asked
    )
    with caller, called:
        pair = Pair(make_end(caller), make_end(called))
        connect_managed(pair.a, pair.b)
        yield pair


def test_each_end_says_what_it_agreed_on(pair, asked):
    """`capabilities` names the directions that have markers, as this end sees them."""
    seen = [end.qp.capabilities["markers"] for end in (pair.a, pair.b)]
    assert (
        seen
        == {
            (True, False): ["received", "sent"],
            (False, True): ["sent", "received"],
            (True, True): ["both ways", "both ways"],
        }[asked]
    )


def test_every_operation_works_both_ways(pair):
    """SEND, WRITE, READ and atomics, long and short, move their bytes and complete."""
    for a, b in ((pair.a, pair.b), (pair.b, pair.a)):
        sent, target, counter, back = a.region(pattern(LONG)), b.region(LONG), b.region(8), a.region(LONG)
        inbox = [b.region(LONG), b.region(8)]
        b.expect(*inbox)
        requests = (
            send(sent),
            send(a.region(b"short"), immediate=7),
            write(sent, target.remote),
            read(back, target.remote),
            fetch_add(a.region(8), counter.remote, 5),
            compare_swap(a.region(8), counter.remote, 5, 6),
        )
        assert statuses(a.do(*requests)) == [WcStatus.SUCCESS] * len(requests)
        assert all(completion.ok for completion in drain(b.recv_cq, 2))
        assert bytes(inbox[0]) == bytes(target) == bytes(back) == pattern(LONG)
        assert bytes(inbox[1])[:5] == b"short"
        assert bytes(counter)[0] == 6


def test_a_refusal_names_its_request(pair):
    """A WRITE with a wrong key fails with REM_ACCESS_ERR, as on any stream."""
    remote = pair.b.region(8).remote
    wrong = RemoteMemory(remote.addr, remote.rkey ^ 0x101, 8)
    assert statuses(pair.a.do(write(pair.a.region(8), wrong))) == [WcStatus.REM_ACCESS_ERR]
