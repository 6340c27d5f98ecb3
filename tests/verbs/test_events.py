"""A4: completion by event: an armed queue wakes a file descriptor, once."""

import select

import pytest
from support.rdma.devices import Case, expected
from support.rdma.link import DEADLINE_S, drain, read, send, write

from verbena.errors import WcStatus
from verbena.verbs import QpState, RemoteMemory

pytestmark = pytest.mark.rule("A4")


def rings(cq, timeout_s=0.0):
    poll = select.poll()
    poll.register(cq.fileno(), select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def test_an_armed_queue_wakes_its_descriptor(pair):
    """After arm() the next completion makes fileno() readable; acknowledge() takes the event back."""
    inbox = pair.b.region(8)
    pair.b.expect(inbox)
    pair.b.recv_cq.arm()
    assert not rings(pair.b.recv_cq)
    pair.a.qp.post_send(send(pair.a.region(8)))
    assert rings(pair.b.recv_cq, DEADLINE_S)
    pair.b.recv_cq.acknowledge()
    assert not rings(pair.b.recv_cq)
    assert drain(pair.b.recv_cq, 1)[0].ok


def test_the_sender_is_woken_too(pair):
    """Send completions ring like receives."""
    pair.a.cq.arm()
    pair.a.qp.post_send(write(pair.a.region(8), pair.b.region(8).remote))
    assert rings(pair.a.cq, DEADLINE_S)
    assert drain(pair.a.cq, 1)[0].ok


def test_a_queue_that_is_not_armed_stays_silent(pair):
    """Completions of an unarmed queue are found by polling and ring nothing."""
    target = pair.b.region(8)
    assert pair.a.do(write(pair.a.region(8), target.remote))[0].ok
    assert not rings(pair.a.cq)


def test_arming_rings_once(pair):
    """One arm() is one event: further completions are silent until the queue is armed again."""
    local, target = pair.a.region(8), pair.b.region(8)
    pair.a.cq.arm()
    pair.a.qp.post_send(write(local, target.remote))
    assert rings(pair.a.cq, DEADLINE_S)
    pair.a.cq.acknowledge()
    drain(pair.a.cq, 1)
    pair.a.do(write(local, target.remote))
    assert not rings(pair.a.cq)
    pair.a.cq.arm()
    pair.a.qp.post_send(write(local, target.remote))
    assert rings(pair.a.cq, DEADLINE_S)


def test_arm_then_poll_then_wait_never_misses_a_completion(pair):
    """The loop arm, poll, wait on the descriptor, acknowledge sees every completion, whenever it comes."""
    local, target = pair.a.region(8), pair.b.region(8)
    for turn in range(200):
        pair.a.qp.post_send(write(local, target.remote, wr_id=turn))
        pair.a.cq.arm()
        done = pair.a.cq.poll()
        if not done:
            assert rings(pair.a.cq, DEADLINE_S)
            pair.a.cq.acknowledge()
            done = drain(pair.a.cq, 1)
        assert [c.wr_id for c in done] == [turn]


def test_solicited_only_ignores_ordinary_messages(pair):
    """Armed for solicited events, a queue sleeps through ordinary messages and wakes for a solicited one."""
    pair.b.expect(*[pair.b.region(8)] * 3)
    pair.b.recv_cq.arm(solicited_only=True)
    pair.a.do(send(pair.a.region(8)))
    assert drain(pair.b.recv_cq, 1)[0].ok
    assert not rings(pair.b.recv_cq)
    pair.a.qp.post_send(send(pair.a.region(8), solicited=True))
    assert rings(pair.b.recv_cq, DEADLINE_S)


def test_a_solicited_write_with_immediate_wakes(pair):
    """WRITE with immediate may solicit an event as a SEND does."""
    pair.b.expect(())
    pair.b.recv_cq.arm(solicited_only=True)
    pair.a.qp.post_send(write(pair.a.region(8), pair.b.region(8).remote, immediate=3, solicited=True))
    assert rings(pair.b.recv_cq, DEADLINE_S)
    assert drain(pair.b.recv_cq, 1)[0].immediate == 3


def test_a_failure_wakes_even_a_queue_armed_for_solicited_events(pair):
    """A completion in error always counts as solicited."""
    wakes = expected(pair.a.context, Case.FAILURE_WAKES_SOLICITED, True)
    target = pair.b.region(8)
    pair.a.cq.arm(solicited_only=True)
    pair.a.qp.post_send(read(pair.a.region(8), RemoteMemory(target.addr, target.rkey ^ 0x7777, 8)))
    assert not wakes or rings(pair.a.cq, DEADLINE_S)
    assert drain(pair.a.cq, 1)[0].status is WcStatus.REM_ACCESS_ERR
    assert rings(pair.a.cq) is wakes


def test_flushed_requests_wake(pair):
    """Going to ERR wakes who waits for the flushed receives."""
    pair.b.expect(pair.b.region(8))
    pair.b.recv_cq.arm()
    pair.b.qp.modify(QpState.ERR)
    assert rings(pair.b.recv_cq, DEADLINE_S)
    assert drain(pair.b.recv_cq, 1)[0].status is WcStatus.WR_FLUSH_ERR


def test_each_queue_has_its_own_descriptor(pair):
    """A completion on one queue does not wake another."""
    pair.a.cq.arm()
    pair.a.recv_cq.arm()
    assert pair.a.cq.fileno() != pair.a.recv_cq.fileno()
    pair.a.qp.post_send(write(pair.a.region(8), pair.b.region(8).remote))
    assert rings(pair.a.cq, DEADLINE_S)
    assert not rings(pair.a.recv_cq)


def test_waiting_blocks_until_a_completion(pair):
    """wait_blocking returns the completions that came, without asyncio."""
    pair.b.expect(pair.b.region(8))
    pair.a.qp.post_send(send(pair.a.region(8), wr_id=4))
    (arrived,) = pair.b.recv_cq.wait_blocking(timeout_s=DEADLINE_S)
    assert arrived.ok
    assert [c.wr_id for c in pair.a.cq.wait_blocking(timeout_s=DEADLINE_S, spin_us=0)] == [4]


async def test_waiting_from_asyncio(pair):
    """await cq.wait() sleeps on the event loop and returns the completions that came."""
    pair.b.expect(pair.b.region(8))
    pair.a.qp.post_send(send(pair.a.region(8), wr_id=4))
    (arrived,) = await pair.b.recv_cq.wait(timeout_s=DEADLINE_S)
    assert arrived.ok
    assert [c.wr_id for c in await pair.a.cq.wait(timeout_s=DEADLINE_S)] == [4]


async def test_a_wait_that_times_out_gives_nothing(pair):
    """Without a completion a bounded wait ends, blocking or not, with an empty list."""
    assert pair.a.cq.wait_blocking(timeout_s=0.01) == []
    assert await pair.a.cq.wait(timeout_s=0.01) == []
