"""A7: SEND, WRITE, READ and atomics, with and without immediate, at every length that matters."""

import threading

import pytest
from support.rdma.devices import needs
from support.rdma.link import (
    DEADLINE_S,
    Pair,
    compare_swap,
    connect_endpoints,
    drain,
    fetch_add,
    make_end,
    pattern,
    read,
    send,
    word,
    write,
)

from verbena import errors
from verbena.verbs import Access, Opcode, SendWorkRequest, WcOpcode

pytestmark = pytest.mark.rule("A7")

# Zero, one, around cache lines and inline limits, around pages and 64 KiB, and some MiB.
LENGTHS = (0, 1, 7, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 65_535, 65_536, 65_537, 3_000_001)


@pytest.mark.parametrize("managed", [False, True], ids=["endpoints", "managed"])
def test_a_message_arrives_whole(make_pair, managed):
    """SEND fills the posted receive; both ends complete, on a pair connected either way."""
    pair = make_pair(managed=managed)
    inbox = pair.b.region(32)
    pair.b.expect(inbox)
    (sent,) = pair.a.do(send(pair.a.region(b"two-sided"), wr_id=3))
    assert (sent.wr_id, sent.ok, sent.opcode) == (3, True, WcOpcode.SEND)
    (arrived,) = drain(pair.b.recv_cq, 1)
    assert (arrived.opcode, arrived.byte_count, arrived.immediate) == (WcOpcode.RECV, 9, None)
    assert bytes(memoryview(inbox)) == b"two-sided" + bytes(23)


@pytest.mark.parametrize("length", LENGTHS)
def test_send_of_any_length(pair, length):
    """A SEND of any length, zero and several MiB included, arrives byte for byte."""
    inbox = pair.b.region(max(1, length))
    pair.b.expect(inbox)
    assert pair.a.do(send(pair.a.region(pattern(max(1, length)))[:length]))[0].ok
    assert drain(pair.b.recv_cq, 1)[0].byte_count == length
    assert bytes(memoryview(inbox)[:length]) == pattern(max(1, length))[:length]


@pytest.mark.parametrize("length", LENGTHS)
def test_write_and_read_of_any_length(pair, length):
    """WRITE and READ of any length touch exactly their bytes."""
    target, local = pair.b.region(length + 16), pair.a.region(length + 16)
    memoryview(local)[:] = pattern(length + 16)
    inner = slice(8, 8 + length)
    assert pair.a.do(write(local[inner], target.remote[inner]))[0].ok
    assert bytes(memoryview(target)) == bytes(8) + pattern(length + 16)[inner] + bytes(8)
    memoryview(local)[:] = bytes(length + 16)
    assert pair.a.do(read(local[inner], target.remote[inner]))[0].ok
    assert bytes(memoryview(local)) == bytes(memoryview(target))


@pytest.mark.parametrize("immediate", [0, 1, 0x12345678, 0xFFFFFFFF])
def test_send_with_immediate(pair, immediate):
    """The immediate's 32 bits arrive with the message, zero included."""
    pair.b.expect(pair.b.region(8))
    assert pair.a.do(send(pair.a.region(8), immediate=immediate))[0].opcode is WcOpcode.SEND
    (arrived,) = drain(pair.b.recv_cq, 1)
    assert (arrived.opcode, arrived.immediate) == (WcOpcode.RECV, immediate)


@pytest.mark.parametrize("immediate", [0, 0xFFFFFFFF])
def test_write_with_immediate_consumes_a_receive(pair, immediate):
    """The data lands in the region; the receive gets immediate and length, its own buffer is untouched."""
    target, inbox = pair.b.region(64), pair.b.region(8)
    pair.b.expect(inbox)
    (done,) = pair.a.do(write(pair.a.region(pattern(64)), target.remote, immediate=immediate))
    assert (done.ok, done.opcode) == (True, WcOpcode.WRITE)
    (arrived,) = drain(pair.b.recv_cq, 1)
    assert (arrived.ok, arrived.opcode) == (True, WcOpcode.RECV_RDMA_WITH_IMM)
    assert (arrived.immediate, arrived.byte_count) == (immediate, 64)
    assert (bytes(memoryview(target)), bytes(memoryview(inbox))) == (pattern(64), bytes(8))


def test_write_with_immediate_of_nothing_is_a_pure_signal(pair):
    """A zero-length WRITE with immediate needs no memory, only a receive."""
    pair.b.expect(())
    assert pair.a.do(write((), pair.b.region(8).remote[:0], immediate=5))[0].ok
    (arrived,) = drain(pair.b.recv_cq, 1)
    assert (arrived.immediate, arrived.byte_count) == (5, 0)


def test_plain_write_and_read_are_silent_at_the_target(pair):
    """One-sided operations consume no receive and leave no completion at the target."""
    pair.b.expect(pair.b.region(8))
    target, local = pair.b.region(8), pair.a.region(8)
    pair.a.do(write(local, target.remote), read(local, target.remote))
    assert (pair.b.cq.poll(), pair.b.recv_cq.poll()) == ([], [])
    pair.a.do(send(local))
    assert drain(pair.b.recv_cq, 1)[0].wr_id == 0


def test_fetch_add_returns_the_old_value_and_wraps(pair):
    """fetch_add adds modulo 2^64 and puts what was there before into the local buffer."""
    target, old = pair.b.region(24), pair.a.region(8)
    for add, before, after in ((5, 0, 5), (2**64 - 1, 5, 4), (2**63, 4, 2**63 + 4)):
        (done,) = pair.a.do(fetch_add(old, target.remote[8:16], add))
        assert (done.ok, done.opcode, done.byte_count) == (True, WcOpcode.FETCH_ADD, 8)
        assert (word(old), word(target, 8)) == (before, after)
    assert (word(target, 0), word(target, 16)) == (0, 0)


def test_compare_swap_swaps_only_what_it_expects(pair):
    """compare_swap stores when the value is the expected one, and always returns the old value."""
    target, old = pair.b.region(8), pair.a.region(8)
    for compare, swap, before, after in ((0, 11, 0, 11), (0, 12, 11, 11), (11, 2**64 - 1, 11, 2**64 - 1)):
        (done,) = pair.a.do(compare_swap(old, target.remote, compare, swap))
        assert (done.ok, done.opcode) == (True, WcOpcode.COMPARE_SWAP)
        assert (word(old), word(target)) == (before, after)


def test_atomics_of_several_queue_pairs_never_lose_an_update(pair):
    """Two peers adding to one word at the same time: every addition counts."""
    needs(pair.a.context, "atomics")
    hub = pair.b
    second = Pair(make_end(pair.a.context), make_end(hub.context))
    second.b.qp = hub.pd.create_qp(send_cq=second.b.cq, recv_cq=second.b.recv_cq)
    connect_endpoints(second.a, second.b)
    counter = hub.region(8)

    def add(end):
        for _ in range(1000):
            end.qp.sync.fetch_add(counter.remote, 1, timeout_s=DEADLINE_S)

    threads = [threading.Thread(target=add, args=(end,)) for end in (pair.a, second.a)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert word(counter) == 2000


def test_operations_on_one_queue_pair_take_effect_in_order(pair):
    """A READ behind WRITEs sees them; a WRITE behind them wins."""
    target, local, back = pair.b.region(8), pair.a.region(b"ABCDEFGH"), pair.a.region(1)
    batch = [write(local[i : i + 1], target.remote[:1], signaled=False) for i in range(8)]
    pair.a.qp.post_send(*batch, read(back, target.remote[:1]))
    assert drain(pair.a.cq, 1)[0].ok
    assert (bytes(memoryview(back)), bytes(memoryview(target)[:1])) == (b"H", b"H")


def test_unsignalled_reads_are_done_when_the_last_completes(pair):
    """Many READs of several regions and lengths in one batch: one completion, and every byte in its place."""
    sources = [pair.b.region(pattern(8192)), pair.b.region(bytes(reversed(pattern(8192))))]
    lengths = [1, 15, 16, 17, 128, 192, 193, 4096]
    into = [pair.a.region(sum(lengths)) for _ in range(2)]
    wanted, batch, at = [b"", b""], [], 0
    for length in lengths:
        for i, (source, local) in enumerate(zip(sources, into, strict=True)):
            batch.append(
                read(local[at : at + length], source.remote[at : at + length], signaled=False, wr_id=i)
            )
            wanted[i] += bytes(memoryview(source)[at : at + length])
        at += length
    pair.a.qp.post_send(*batch, read((), sources[0].remote[:0], wr_id=99))
    assert [(done.wr_id, done.ok) for done in drain(pair.a.cq, 1)] == [(99, True)]
    assert [bytes(memoryview(local)) for local in into] == wanted


def test_a_read_behind_a_message_waits_for_it(pair):
    """READs that nobody asks about are no faster than the SEND before them."""
    needs(pair.a.context, "acknowledged")  # else a SEND without a receive ends the connection
    source, inbox, bounce = pair.b.region(b"old"), pair.b.region(3), pair.a.region(3)
    pair.a.qp.post_send(
        send(pair.a.region(b"new")),
        read(bounce, source.remote, signaled=False),
        read((), source.remote[:0], wr_id=2),
    )
    memoryview(source)[:] = b"new"  # the SEND has no receive yet, so that the READs are still to come
    pair.b.expect(inbox)
    assert [done.ok for done in drain(pair.a.cq, 2)] == [True, True]
    assert bytes(memoryview(bounce)) == b"new"


def test_a_fenced_request_waits_for_earlier_reads(pair):
    """With fence=True a SEND leaves after the READ before it has filled the very buffer it sends."""
    source, bounce, inbox = pair.b.region(pattern(4096)), pair.a.region(4096), pair.b.region(4096)
    pair.b.expect(inbox)
    pair.a.qp.post_send(read(bounce, source.remote, signaled=False), send(bounce, fence=True))
    assert drain(pair.a.cq, 1)[0].ok
    assert drain(pair.b.recv_cq, 1)[0].ok
    assert bytes(memoryview(inbox)) == pattern(4096)


def test_least_access_is_enough(pair):
    """READ needs REMOTE_READ only; WRITE and atomics need LOCAL_WRITE and their own right only."""
    source = pair.a.region(8, access=Access(0))
    readable = pair.b.region(b"readable", access=Access.REMOTE_READ)
    writable = pair.b.region(8, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE)
    atomic = pair.b.region(8, access=Access.LOCAL_WRITE | Access.REMOTE_ATOMIC)
    local = pair.a.region(8, access=Access.LOCAL_WRITE)
    batch = [read(local, readable.remote), write(source, writable.remote), fetch_add(local, atomic.remote, 1)]
    assert all(c.ok for c in pair.a.do(*batch))


def test_an_operation_that_the_wire_lacks_is_unsupported(pair):
    """Capabilities speak of atomics: what they grant works, what they deny raises UnsupportedError."""
    capabilities = pair.a.qp.capabilities
    assert capabilities.get("atomics")
    request = SendWorkRequest(
        opcode=Opcode.FETCH_ADD, local=pair.a.region(8), remote=pair.b.region(8).remote, add=1
    )
    if capabilities["atomics"] == "no":
        with pytest.raises(errors.UnsupportedError):
            pair.a.qp.post_send(request)
    else:
        assert pair.a.do(request)[0].ok


@pytest.mark.parametrize("step", range(4))
def test_large_messages_both_ways(pair, step):
    """Messages of several MiB in both directions at once arrive whole."""
    length = (5 << 20) + step
    for end in (pair.a, pair.b):
        end.inbox = end.region(length)
        end.expect(end.inbox)
    outboxes = [pair.a.region(pattern(length, 1)), pair.b.region(pattern(length, 2))]
    for end, outbox in zip((pair.a, pair.b), outboxes, strict=True):
        end.qp.post_send(send(outbox))
    for end, seed in ((pair.a, 2), (pair.b, 1)):
        assert drain(end.cq, 1)[0].ok
        assert drain(end.recv_cq, 1)[0].byte_count == length
        assert bytes(memoryview(end.inbox)) == pattern(length, seed)
