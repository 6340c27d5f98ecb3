"""The quic wire over paths that lose, delay, reorder, duplicate and spoil datagrams: all arrives whole."""

from __future__ import annotations

import time

import pytest
from support.rdma import link
from support.relay import Path, Relay

from verbena import verbs

PATHS = {
    "loss of 1 %": (Path(loss=0.01), "lost"),
    "loss of 5 %": (Path(loss=0.05), "lost"),
    "20 ms and loss of 1 %": (Path(loss=0.01, delay_s=0.02), "lost"),
    "reordered": (Path(delay_s=0.001, jitter_s=0.003), "reordered"),
    "duplicated": (Path(duplicated=0.1), "duplicated"),
    "corrupted": (Path(corrupted=0.02), "corrupted"),
    "all at once": (
        Path(loss=0.02, delay_s=0.005, jitter_s=0.005, duplicated=0.05, corrupted=0.01),
        "corrupted",
    ),
}
LEAST_RETRIES_S = 2.0  # however short those of the queue pair are


@pytest.mark.parametrize("name", PATHS)
def test_every_operation_arrives_once_and_whole(opened, connect, name):
    """Messages in order, WRITEs and READs byte for byte, atomics exactly once, whatever the path does."""
    path, what = PATHS[name]
    with (
        opened(datagram_bytes=1452) as a,
        opened(datagram_bytes=1452) as b,
        b.context.listen("127.0.0.1:0") as waiting,
        Relay(int(waiting.address.rpartition(":")[2]), path) as relay,
    ):
        connect(a, b, waiting, relay.port)
        counter, content = b.region(8), link.pattern(200_000)
        source, target, back = a.region(content), b.region(len(content)), a.region(len(content))
        for number in range(20):
            inbox = b.region(3000)
            b.qp.post_recv(verbs.RecvWorkRequest(inbox, wr_id=number))
            message = link.pattern(1 + number * 150, seed=number)
            a.qp.sync.send(a.region(message), timeout_s=60)
            received = link.drain(b.recv_cq, 1, timeout_s=60)[0]
            assert (received.wr_id, received.byte_count) == (number, len(message))
            assert bytes(memoryview(inbox)[: len(message)]) == message
            assert a.qp.sync.fetch_add(counter.remote, 1, timeout_s=60) == number
        a.qp.sync.write(source, target.remote, timeout_s=60)
        a.qp.sync.read(back, target.remote, timeout_s=60)
        assert bytes(memoryview(target)) == bytes(memoryview(back)) == content
        assert relay.counts[what] > 0


def test_a_long_way_is_not_an_absent_peer(opened, connect):
    """A WRITE may be under way for longer than retries last: while any of it arrives, it is waited for."""
    with (
        opened(datagram_bytes=1452) as a,
        opened(datagram_bytes=1452) as b,
        b.context.listen("127.0.0.1:0") as waiting,
        Relay(int(waiting.address.rpartition(":")[2]), Path(delay_s=0.3)) as relay,
    ):
        connect(a, b, waiting, relay.port)
        content = link.pattern(1_000_000)
        target = b.region(len(content))
        begun = time.monotonic()
        a.qp.sync.write(a.region(content), target.remote, timeout_s=60)
        assert time.monotonic() - begun > LEAST_RETRIES_S
        assert bytes(memoryview(target)) == content


def test_a_peer_that_changes_its_address_goes_on(opened, connect):
    """Connection migration: the server hears from another port, checks that it is the peer, and goes on."""
    with (
        opened() as a,
        opened() as b,
        b.context.listen("127.0.0.1:0") as waiting,
        Relay(int(waiting.address.rpartition(":")[2])) as relay,
    ):
        connect(a, b, waiting, relay.port)
        target = b.region(100_000)
        for round_ in range(3):
            content = link.pattern(100_000, seed=round_)
            a.qp.sync.write(a.region(content), target.remote, timeout_s=30)
            assert bytes(memoryview(target)) == content
            relay.move()
        a.qp.sync.write(a.region(b"x" * 100_000), target.remote, timeout_s=30)
        link.wait_until(lambda: b.context.counts["migrations"] == 3, "three moves")
        assert a.context.counts["handshakes"] == 1
