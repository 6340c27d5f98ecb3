"""What anyone may send to a quic listener: refused, counted and bounded, and honest callers are served."""

from __future__ import annotations

import os
import random
import socket
import struct

import pytest
from support.rdma import link
from support.relay import Relay

from verbena import errors


@pytest.fixture
def listening(opened):
    with opened() as end, end.context.listen("127.0.0.1:0") as waiting:
        yield end, waiting


def shout(waiting, datagrams: list[bytes]) -> socket.socket:
    """Sends them to the listener; the socket hears what it answers."""
    voice = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    voice.connect(("127.0.0.1", int(waiting.address.rpartition(":")[2])))
    for datagram in datagrams:
        voice.send(datagram)
    return voice


def long_header(kind: int, version: int, size: int = 1200, *, destination: bytes = b"d" * 8) -> bytes:
    """A packet with a long header, and random bytes where the rest would be."""
    head = bytes([0xC0 | kind << 4]) + struct.pack(">I", version)
    head += bytes([len(destination)]) + destination + b"\x08" + b"s" * 8
    return head + os.urandom(size - len(head))


def answers(voice: socket.socket, timeout_s: float = 0.3) -> list[bytes]:
    voice.settimeout(timeout_s)
    heard = []
    try:
        while True:
            heard.append(voice.recv(65536))
    except TimeoutError:
        return heard


def counted(end, name: str, least: int = 1) -> None:
    link.wait_until(lambda: end.context.counts[name] >= least, f"{least} {name}")


def is_served(opened, connect, end, waiting) -> None:
    with opened() as caller:
        connect(caller, end, waiting)
        caller.qp.sync.write(caller.region(b"hello"), end.region(5).remote)


def test_garbage_is_dropped_and_counted(opened, connect, listening):
    """Random datagrams of any length get no answer, and leave no connection behind."""
    end, waiting = listening
    chance = random.Random(7)
    noise = [chance.randbytes(chance.randrange(1, 1500)) for _ in range(500)]
    noise = [bytes([datagram[0] & 0x7F]) + datagram[1:] for datagram in noise]  # no long headers: see below
    with shout(waiting, noise) as voice:
        counted(end, "garbage", 500)
        assert answers(voice) == []
    assert end.context.counts["connections"] == 0
    is_served(opened, connect, end, waiting)


def test_an_unknown_version_is_told_ours(listening):
    """A caller with another version hears of version 1, in fewer bytes than its own; a short one nothing."""
    end, waiting = listening
    with shout(waiting, [long_header(0, 0x1A2A3A4A)]) as voice:
        (answer,) = answers(voice)
    assert answer[0] & 0x80
    assert answer[1:5] == bytes(4)
    assert struct.pack(">I", 1) in answer[23:]
    assert len(answer) < 100
    with shout(waiting, [long_header(0, 0x1A2A3A4A, 300)]) as voice:
        counted(end, "garbage")
        assert answers(voice) == []
    assert end.context.counts["version_negotiations"] == 1


def test_early_data_is_refused(listening):
    """0-RTT packets, which anyone can repeat, are dropped and counted: there is nothing to resume."""
    end, waiting = listening
    with shout(waiting, [long_header(1, 1)] * 10) as voice:
        counted(end, "early_data", 10)
        assert answers(voice) == []


def test_first_packets_that_cannot_be_decrypted_leave_nothing(opened, connect, listening):
    """Initial packets with random contents are no callers, however many there are."""
    end, waiting = listening
    with shout(waiting, [long_header(0, 1, destination=os.urandom(8)) for _ in range(300)]) as voice:
        assert sum(map(len, answers(voice))) < 3 * 300 * 1200
    link.wait_until(lambda: end.context.counts["connections"] == 0, "nobody is there", 30)
    is_served(opened, connect, end, waiting)


def first_flight(opened) -> list[bytes]:
    """What an honest caller says first."""
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ear.bind(("127.0.0.1", 0))
    with ear, opened() as caller:
        with pytest.raises(errors.TimedOutError):
            caller.context.connect_blocking(caller.qp, f"127.0.0.1:{ear.getsockname()[1]}", timeout_s=0.05)
        return answers(ear, 0.05)


def test_a_caller_that_does_not_answer_gets_three_times_its_bytes_at_most(opened, listening):
    """The amplification limit: who has not shown that the address is its own is not sent much."""
    end, waiting = listening
    hello = first_flight(opened)[0]
    with shout(waiting, [hello]) as voice:
        heard = answers(voice, 1.0)
        assert 0 < sum(map(len, heard)) <= 3 * len(hello)
    assert end.context.counts["half_open"] == 1


def test_handshakes_that_stop_half_way_are_given_up(opened, tls):
    """After handshake_timeout_s they are gone, and were not more than max_handshakes at any time."""
    with (
        opened(handshake_timeout_s=0.5, max_handshakes=8) as end,
        end.context.listen("127.0.0.1:0") as waiting,
    ):
        flights = [first_flight(opened)[0] for _ in range(12)]
        with shout(waiting, flights):
            counted(end, "rejected_handshakes", 4)
            assert end.context.counts["half_open"] == 8
            link.wait_until(lambda: end.context.counts["connections"] == 0, "all were given up")
        assert end.context.counts["half_open"] == 0


def test_a_crowd_has_to_prove_its_addresses(opened, connect, listening):
    """Beyond a few handshakes under way, callers get a Retry packet; honest ones come back with its token."""
    end, waiting = listening
    flights = [first_flight(opened)[0] for _ in range(64)]
    with shout(waiting, flights):
        link.wait_until(lambda: end.context.counts["half_open"] == 64, "a crowd")
        is_served(opened, connect, end, waiting)
        assert end.context.counts["retries"] >= 1


def test_streams_without_end_are_limited(opened, connect):
    """A peer may have max_streams queue pairs on a connection; another waits until one is closed."""
    with opened() as near, opened(max_streams=3) as far, far.context.listen("127.0.0.1:0") as waiting:
        ends = [(near, far)] + [(link.make_end(near.context), link.make_end(far.context)) for _ in range(2)]
        for a, b in ends:
            connect(a, b, waiting)
        extra = link.make_end(near.context)
        with pytest.raises(errors.TimedOutError):
            near.context.connect_blocking(extra.qp, waiting.address, timeout_s=0.3)
        ends[1][0].qp.close()
        ends[1][1].qp.close()
        connect(link.make_end(near.context), link.make_end(far.context), waiting)
        assert far.context.counts["handshakes"] == 1


def test_a_listener_that_is_replayed_answers_once(opened, connect, listening):
    """Every datagram of a conversation said again by somebody else changes nothing."""
    end, waiting = listening
    with opened() as caller, Relay(int(waiting.address.rpartition(":")[2])) as relay:
        connect(caller, end, waiting, relay.port)
        counter = end.region(8)
        assert caller.qp.sync.fetch_add(counter.remote, 1) == 0
        heard: list[bytes] = []
        meet = relay._meet

        def record(is_from_client: bool, content: bytes) -> None:
            heard.extend([content] * is_from_client)
            meet(is_from_client, content)

        relay._meet = record  # type: ignore[method-assign]
        assert caller.qp.sync.fetch_add(counter.remote, 1) == 1
        with shout(waiting, heard * 3):
            assert caller.qp.sync.fetch_add(counter.remote, 1) == 2
        assert link.word(counter) == 3
