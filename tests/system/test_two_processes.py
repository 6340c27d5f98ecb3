"""Two processes on one host: the same rules when the peer is a program of its own."""

import asyncio
import contextlib

import pytest
from support.rdma import devices
from support.rdma.link import (
    DEADLINE_S,
    compare_swap,
    connect_endpoints,
    drain,
    fetch_add,
    make_end,
    pattern,
    read,
    send,
    statuses,
    wait_until,
    word,
    write,
)
from support.rdma.peer import RemotePeer, linked

from verbena.errors import QueueFullError, WcStatus
from verbena.verbs import Access, QpState, RemoteMemory

pytestmark = [
    pytest.mark.rule("processes"),
    pytest.mark.parametrize("provider", ["shm", "iwarp", "iwarp-plain", "quic"], indirect=True),
]

KINDS = ["arena", "bytearray", "numpy", "mmap", "array"]
LENGTHS = (1, 64, 4097, 65_537, 2_000_003)


@pytest.fixture
def end(context):
    return make_end(context, max_send=64, max_recv=64)


@pytest.fixture
def peer(provider, end):
    with linked(provider, end) as linked_peer:
        yield linked_peer


@pytest.mark.parametrize("kind", KINDS)
def test_one_sided_operations_reach_every_kind_of_memory(end, peer, kind):
    """WRITE and READ work on a peer's arena and on its own buffers, byte for byte."""
    for length in LENGTHS:
        remote = peer.remote(kind, bytes(length))
        assert end.do(write(end.region(pattern(length)), remote))[0].ok
        local = end.region(length)
        assert end.do(read(local, remote))[0].ok
        assert bytes(memoryview(local)) == pattern(length)
    assert peer.content(len(LENGTHS) - 1) == pattern(LENGTHS[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_atomics_reach_every_kind_of_memory(end, peer, kind):
    """FETCH_ADD and COMPARE_SWAP work on a peer's arena and on its own buffers."""
    counter, old = peer.remote(kind, bytes(64)), end.region(8)
    aligned = -counter.addr % 8
    place = counter[aligned : aligned + 8]
    assert all(c.ok for c in end.do(fetch_add(old, place, 40), fetch_add(old, place, 2)))
    assert word(old) == 40
    assert end.do(compare_swap(old, place, 42, 7))[0].ok
    assert word(old) == 42
    assert int.from_bytes(peer.content(0)[aligned : aligned + 8], "little") == 7


@pytest.mark.parametrize("kind", ["arena", "bytearray"])
@pytest.mark.parametrize("length", LENGTHS)
def test_messages_arrive_in_the_other_process(end, peer, kind, length):
    """SEND, with immediate where there are any, fills the peer's receive, arena or plain buffer."""
    immediate = None if end.qp.capabilities.get("immediate") == "no" else length
    peer.remote(kind, bytes(length))
    peer.receive(0, 1)
    assert end.do(send(end.region(pattern(length)), immediate=immediate))[0].ok
    assert peer.wait_received(1) == [(0, WcStatus.SUCCESS, length, immediate)]
    assert peer.content(0) == pattern(length)


@pytest.mark.parametrize("kind", ["arena", "bytearray"])
def test_the_target_program_need_not_run(end, peer, kind):
    """While the target's Python holds the interpreter in a busy loop, READ, WRITE and atomics go on."""
    remote, counter = peer.remote(kind, pattern(8192)), peer.remote("arena", bytes(8))
    assert peer.spin() == "spinning"
    local = end.region(8192)
    for turn in range(50):
        assert end.do(read(local, remote))[0].ok
        assert bytes(memoryview(local)) == pattern(8192, turn or 1)
        memoryview(local)[:] = pattern(8192, turn + 1)
        assert all(c.ok for c in end.do(write(local, remote), fetch_add(end.region(8), counter, 1)))
    old = end.region(8)
    end.do(read(old, counter))
    assert word(old) == 50
    peer.kill()


def test_a_blocked_target_serves_too(end, peer):
    """While the target is asleep in a system call, its memory is served and its receives are filled."""
    inbox, remote = peer.remote("arena", bytes(64)), peer.remote("bytearray", bytes(64))
    peer.receive(0, 1)
    assert all(c.ok for c in end.do(write(end.region(pattern(64)), remote), send(end.region(b"landed"))))
    local = end.region(64)
    assert end.do(read(local, inbox))[0].ok
    assert bytes(memoryview(local)[:6]) == b"landed"
    assert peer.content(1) == pattern(64)


def test_the_peer_writes_into_our_plain_buffer(end, peer):
    """The other process reaches a bytearray of ours and announces it with an immediate."""
    devices.needs(end.context, "atomics")
    buffer = bytearray(100_000)
    mr = end.pd.register(buffer, access=Access.ALL)
    end.expect(())
    peer.write(pattern(100_000), mr.remote.to_bytes(), immediate=99)
    (arrived,) = drain(end.recv_cq, 1)
    assert (arrived.immediate, arrived.byte_count) == (99, 100_000)
    assert bytes(buffer) == pattern(100_000)


def test_atomics_of_two_processes_never_lose_an_update(end, peer):
    """Both processes add to one word in our memory: the sum is exact."""
    counter = end.region(8)
    back = make_end(end.context)
    back.qp = end.pd.create_qp(send_cq=back.cq, recv_cq=back.recv_cq)
    ours = make_end(end.context)
    connect_endpoints(ours, back)
    peer.start("add_often", counter.remote.to_bytes(), 2000)
    for _ in range(2000):
        ours.qp.sync.fetch_add(counter.remote, 1, timeout_s=DEADLINE_S)
    peer.finish()
    assert word(counter) == 4000


def test_a_key_of_a_third_process_is_refused(provider, end, peer):
    """A true rkey, but of a process that is not our peer, is REM_ACCESS_ERR."""
    with RemotePeer(provider) as stranger:
        remote = stranger.remote("arena", pattern(64))
        assert statuses(end.do(read(end.region(64), remote))) == [WcStatus.REM_ACCESS_ERR]
        assert stranger.content(0) == pattern(64)


@pytest.mark.parametrize("kind", ["arena", "bytearray"])
def test_keys_are_checked_against_the_peers_own_state(end, peer, kind):
    """A region the peer freed is refused and keeps its bytes."""
    remote = peer.remote(kind, pattern(64))
    assert end.do(read(end.region(64), remote))[0].ok
    peer.free(0)
    request = write(end.region(64), remote)
    assert statuses(end.do(request)) == [devices.refusal(end.context, request, WcStatus.REM_ACCESS_ERR)]
    wait_until(lambda: end.qp.state is QpState.ERR, "ERR")


@pytest.mark.parametrize("case", ["bounds", "rights", "domain", "misaligned", "key"])
def test_violations_are_refused_across_processes(end, peer, case):
    """Bounds, rights, domain, key and alignment are enforced with the same statuses as in one process."""
    remote = peer.remote(
        "arena",
        pattern(64),
        access=Access.REMOTE_READ if case == "rights" else Access.ALL,
        own_pd=case == "domain",
    )
    local = end.region(8)
    request = {
        "bounds": lambda: write(local, RemoteMemory(remote.addr + 60, remote.rkey, 8)),
        "rights": lambda: write(local, remote[:8]),
        "domain": lambda: read(local, remote[:8]),
        "misaligned": lambda: fetch_add(local, remote[4:12], 1),
        "key": lambda: read(local, RemoteMemory(remote.addr, remote.rkey ^ 0x8080, 8)),
    }[case]()
    rule = WcStatus.REM_INV_REQ_ERR if case == "misaligned" else WcStatus.REM_ACCESS_ERR
    assert statuses(end.do(request)) == [devices.refusal(end.context, request, rule)]
    wait_until(lambda: end.qp.state is QpState.ERR, "ERR")
    assert peer.content(0) == pattern(64)


def test_a_full_queue_is_back_pressure_across_processes(end, peer):
    """Posting more than fits raises QueueFullError; after draining everything arrives in order."""
    sent = done = 0
    peer.remote("arena", bytes(8))
    peer.receive(0, 1000)
    outbox = end.region(8)
    peer.start("wait_received", 1000)
    posted_full = False
    while done < 1000:
        while sent < 1000:
            try:
                end.qp.post_send(send(outbox, wr_id=sent))
                sent += 1
            except QueueFullError:
                posted_full = True
                break
        done += len([c for c in drain(end.cq, 1) if c.ok])
    assert posted_full
    assert [row[0] for row in peer.finish()] == list(range(1000))


async def test_connecting_through_the_manager(provider, end):
    """listen in one process, connect from the other, private data both ways, disconnect seen."""
    with RemotePeer(provider) as peer:
        address = peer.listen("")
        peer.start("accept", DEADLINE_S)
        connection = await end.context.connect(end.qp, address, private_data=b"from us", timeout_s=DEADLINE_S)
        assert peer.finish() == b"from us"
        assert connection.private_data == b"from the peer"
        remote = peer.remote("bytearray", pattern(64))
        local = end.region(64)
        await end.qp.read(local, remote)
        assert bytes(memoryview(local)) == pattern(64)
        peer.disconnect()
        await asyncio.wait_for(connection.wait_disconnected(), DEADLINE_S)
        wait_until(lambda: end.qp.state is QpState.ERR, "ERR")


def test_many_peers_at_once(provider, context):
    """Four processes write into their own quarters of one region."""
    end = make_end(context)
    target = end.region(4 * 4096)
    ends = [make_end(context) for _ in range(4)]
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(RemotePeer(provider)) for _ in range(4)]
        for index, (own, peer) in enumerate(zip(ends, peers, strict=True)):
            own.qp = end.pd.create_qp(send_cq=own.cq, recv_cq=own.recv_cq)
            peer.link(own)
            place = target.remote[4096 * index : 4096 * index + 4096]
            peer.start("write", pattern(4096, index), place.to_bytes())
        for peer in peers:
            peer.finish()
    assert bytes(memoryview(target)) == b"".join(pattern(4096, index) for index in range(4))
