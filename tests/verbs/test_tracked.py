"""A4: tracked operations: awaited or blocking, each returns when its own completion has come."""

import array
import asyncio
import gc
import threading

import pytest
from support.rdma.devices import needs
from support.rdma.link import DEADLINE_S, drain, pattern, wait_until, word, write

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import QpState, RemoteMemory

pytestmark = pytest.mark.rule("A4")


async def test_a_message_is_awaited_at_both_ends(pair):
    """send() returns when the peer has it, recv() with the length and immediate."""
    inbox = pair.b.region(64)
    receiving = asyncio.create_task(pair.b.qp.recv(inbox))
    await pair.a.qp.send(pair.a.region(b"hello"), immediate=42)
    received = await asyncio.wait_for(receiving, DEADLINE_S)
    assert (received.byte_count, received.immediate) == (5, 42)
    assert bytes(memoryview(inbox)[:5]) == b"hello"


async def test_one_sided_operations_are_awaited(pair):
    """read, write, compare_swap and fetch_add return when done; the atomics give the old value."""
    target, local = pair.b.region(16), pair.a.region(16)
    await pair.a.qp.write(pair.a.region(pattern(16)), target.remote)
    await pair.a.qp.read(local, target.remote)
    assert bytes(memoryview(target)) == bytes(memoryview(local)) == pattern(16)
    memoryview(target)[:] = bytes(16)
    assert await pair.a.qp.fetch_add(target.remote[8:16], 5) == 0
    assert await pair.a.qp.fetch_add(target.remote[8:16], 2**64 - 1) == 5
    assert await pair.a.qp.compare_swap(target.remote[8:16], 4, 99) == 4
    assert await pair.a.qp.compare_swap(target.remote[8:16], 4, 1) == 99
    assert (word(target, 0), word(target, 8)) == (0, 99)


async def test_many_operations_at_once_each_get_their_own_result(pair):
    """A hundred tasks add to one counter: each sees a different old value, and the sum is right."""
    counter = pair.b.region(8)
    old = await asyncio.gather(*(pair.a.qp.fetch_add(counter.remote, 1) for _ in range(100)))
    assert sorted(old) == list(range(100))
    assert word(counter) == 100


async def test_more_operations_than_the_queue_holds_wait_their_turn(make_pair):
    """Awaited operations beyond the queue's depth wait for room; none fails for it."""
    pair = make_pair(max_send=8)
    target, local = pair.b.region(8 * 300), pair.a.region(pattern(8 * 300))
    await asyncio.gather(
        *(pair.a.qp.write(local[8 * i : 8 * i + 8], target.remote[8 * i : 8 * i + 8]) for i in range(300))
    )
    pair.a.settle()
    assert bytes(memoryview(target)) == pattern(8 * 300)


async def test_a_failed_operation_raises_its_status(pair):
    """The exception's class says what to do, its status what happened; the text has cause and remedy."""
    target = pair.b.region(8)
    with pytest.raises(errors.DeniedError) as failure:
        await pair.a.qp.read(pair.a.region(8), RemoteMemory(target.addr, target.rkey ^ 0x3C3C, 8))
    assert failure.value.status is WcStatus.REM_ACCESS_ERR
    assert failure.value.operation
    assert failure.value.cause
    assert failure.value.remedy


async def test_waiting_operations_fail_when_the_queue_pair_breaks(pair):
    """Whoever awaits when the queue pair goes to ERR is told WR_FLUSH_ERR; nobody hangs."""
    receiving = [asyncio.create_task(pair.b.qp.recv(pair.b.region(8))) for _ in range(5)]
    await asyncio.sleep(0)
    pair.b.qp.modify(QpState.ERR)
    outcomes = await asyncio.wait_for(asyncio.gather(*receiving, return_exceptions=True), DEADLINE_S)
    assert [outcome.status for outcome in outcomes] == [WcStatus.WR_FLUSH_ERR] * 5


async def test_cancelling_leaves_the_operation_to_the_wire(pair):
    """A cancelled recv still takes its message, into memory that lives until then; the next is in order."""
    first = asyncio.create_task(pair.b.qp.recv(pair.b.region(8)))
    second_inbox = pair.b.region(8)
    await asyncio.sleep(0)
    second = asyncio.create_task(pair.b.qp.recv(second_inbox))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gc.collect()
    await pair.a.qp.send(pair.a.region(b"to no-one"[:8]))
    await pair.a.qp.send(pair.a.region(b"to there"))
    assert (await asyncio.wait_for(second, DEADLINE_S)).byte_count == 8
    assert bytes(memoryview(second_inbox)) == b"to there"


async def test_raw_polling_never_sees_tracked_completions(pair):
    """Tracked and raw requests share the queues, and each gets its own completions only."""
    target, local = pair.b.region(8), pair.a.region(8)
    pair.a.qp.post_send(write(local, target.remote, wr_id=1))
    await pair.a.qp.write(local, target.remote)
    pair.a.qp.post_send(write(local, target.remote, wr_id=2))
    await pair.a.qp.fetch_add(target.remote, 1)
    assert [c.wr_id for c in drain(pair.a.cq, 2)] == [1, 2]
    assert pair.a.cq.poll() == []


async def test_the_event_loop_stays_free(pair):
    """While an operation is awaited other tasks run."""
    inbox = pair.b.region(8)
    receiving = asyncio.create_task(pair.b.qp.recv(inbox))
    turns = 0
    while turns < 100:
        turns += 1
        await asyncio.sleep(0)
    assert not receiving.done()
    await pair.a.qp.send(pair.a.region(8))
    await asyncio.wait_for(receiving, DEADLINE_S)


def test_blocking_operations_have_the_same_results(pair):
    """qp.sync has the same operations without asyncio."""
    target, local = pair.b.region(pattern(64)), pair.a.region(64)
    pair.a.qp.sync.read(local, target.remote, timeout_s=DEADLINE_S)
    assert bytes(memoryview(local)) == pattern(64)
    memoryview(target)[:] = bytes(64)
    pair.a.qp.sync.write(local, target.remote, timeout_s=DEADLINE_S)
    pair.a.settle()
    assert bytes(memoryview(target)) == pattern(64)
    memoryview(target)[:8] = bytes(8)
    assert pair.a.qp.sync.fetch_add(target.remote[:8], 7, timeout_s=DEADLINE_S) == 0
    assert pair.a.qp.sync.compare_swap(target.remote[:8], 7, 8, timeout_s=DEADLINE_S) == 7
    with pytest.raises(errors.DeniedError):
        pair.a.qp.sync.read(local, RemoteMemory(target.addr, target.rkey ^ 0x77, 64), timeout_s=DEADLINE_S)


def test_blocking_operations_leave_other_threads_free(pair):
    """A thread blocked in qp.sync.recv holds no lock that Python or the other end needs."""
    got = []
    inbox = pair.b.region(8)
    thread = threading.Thread(target=lambda: got.append(pair.b.qp.sync.recv(inbox, timeout_s=DEADLINE_S)))
    thread.start()
    pair.a.qp.sync.send(pair.a.region(b"wake up!"), timeout_s=DEADLINE_S)
    thread.join(DEADLINE_S)
    assert [received.byte_count for received in got] == [8]


def test_a_blocking_operation_times_out(pair):
    """Without a message a bounded recv raises TimedOutError."""
    with pytest.raises(errors.TimedOutError):
        pair.a.qp.sync.recv(pair.a.region(8), timeout_s=0.02)


def test_batches_move_many_pieces_in_one_call(pair):
    """read_many and write_many take (local offset, remote offset, length) triples and return their number."""
    count = 1000
    target, local = pair.b.region(16 * count), pair.a.region(pattern(16 * count))
    backwards = [v for i in range(count) for v in (16 * i, 16 * (count - 1 - i), 16)]
    ops = memoryview(array.array("Q", backwards)).cast("B").cast("Q", (count, 3))
    assert pair.a.qp.sync.write_many(local, target.remote, ops) == count
    back = pair.a.region(16 * count)
    assert pair.a.qp.sync.read_many(back, target.remote, ops) == count
    assert bytes(memoryview(back)) == pattern(16 * count)
    assert bytes(memoryview(target)[-16:]) == pattern(16 * count)[:16]


def test_a_failed_batch_reports_how_many_operations_were_done(pair):
    """The error carries how many pieces were done before the one that failed."""
    needs(pair.a.context, "acknowledged")
    target, local = pair.b.region(64), pair.a.region(pattern(64))
    beyond = RemoteMemory(target.addr, target.rkey, 4096)
    ops = (
        memoryview(array.array("Q", [0, 0, 16, 16, 16, 16, 0, 1024, 16, 32, 32, 16]))
        .cast("B")
        .cast("Q", (4, 3))
    )
    with pytest.raises(errors.DeniedError) as failure:
        pair.a.qp.sync.write_many(local, beyond, ops)
    assert failure.value.completed == 2
    assert bytes(memoryview(target)) == pattern(64)[:32] + bytes(32)
    wait_until(lambda: pair.a.qp.state is QpState.ERR, "ERR")
