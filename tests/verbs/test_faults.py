"""Injected faults: each kind of verbena.testing.faulty as a program sees it."""

import asyncio
import contextlib

import pytest
from support.rdma.devices import needs
from support.rdma.link import (
    DEADLINE_S,
    IMPATIENT,
    connect_endpoints,
    connect_managed,
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

from verbena.errors import WcStatus
from verbena.testing import FaultPlan, faulty
from verbena.verbs import Opcode, QpState

pytestmark = pytest.mark.rule("faults")


@pytest.fixture
def faulted(provider):
    """make(kind, **how) -> (a, b, plan): a connected pair on a wire with that one fault."""
    with contextlib.ExitStack() as stack:

        def make(kind, **how):
            plan = FaultPlan()
            plan.add(kind, **how)
            context = stack.enter_context(faulty(provider, plan))
            a, b = make_end(context), make_end(context)
            connect_endpoints(a, b, **IMPATIENT)
            return a, b, plan

        yield make


def test_without_a_plan_nothing_is_different(provider):
    """An empty plan is a plain wire."""
    plan = FaultPlan()
    with faulty(provider, plan) as context:
        a, b = make_end(context), make_end(context)
        connect_endpoints(a, b)
        target = b.region(64)
        assert a.do(write(a.region(pattern(64)), target.remote))[0].ok
        assert bytes(memoryview(target)) == pattern(64)
    assert plan.hits == 0


@pytest.mark.parametrize("nth", [1, 3])
def test_fail_gives_the_nth_request_its_status(faulted, nth):
    """The n-th request of the opcode has the wanted status, moves nothing and breaks the queue pair."""
    a, b, plan = faulted("fail", opcode=Opcode.WRITE, nth=nth, status=WcStatus.REM_OP_ERR)
    target = b.region(4)
    done = a.do(*(write(a.region(b"x"), target.remote[i : i + 1], wr_id=i) for i in range(4)))
    expected = [WcStatus.SUCCESS] * (nth - 1) + [WcStatus.REM_OP_ERR] + [WcStatus.WR_FLUSH_ERR] * (4 - nth)
    assert statuses(done) == expected
    # Plain iWARP completes a WRITE before it has landed.
    received = b"x" * (nth - 1) + bytes(5 - nth)
    wait_until(lambda: bytes(memoryview(target)) == received, "the bytes of those that succeeded")
    wait_until(lambda: a.qp.state is QpState.ERR, "ERR")
    assert plan.hits == 1


def test_a_fault_for_one_opcode_spares_the_others(faulted):
    """A plan for FETCH_ADD leaves WRITE and SEND alone."""
    a, b, plan = faulted("fail", opcode=Opcode.FETCH_ADD, status=WcStatus.REM_OP_ERR)
    b.expect(b.region(8))
    assert all(c.ok for c in a.do(write(a.region(8), b.region(8).remote), send(a.region(8))))
    assert plan.hits == 0


def test_a_dropped_request_runs_out_of_retries(faulted):
    """What the wire loses ends in RETRY_EXC_ERR and never arrives; the queue pair is in ERR."""
    a, b, plan = faulted("drop", opcode=Opcode.SEND, nth=2)
    inbox = b.region(16)
    b.expect(inbox[:8], inbox[8:])
    assert statuses(a.do(send(a.region(b"arrives.")), send(a.region(b"is lost.")))) == [
        0,
        WcStatus.RETRY_EXC_ERR,
    ]
    assert drain(b.recv_cq, 1)[0].ok
    assert bytes(memoryview(inbox)) == b"arrives." + bytes(8)
    assert a.qp.state is QpState.ERR
    assert plan.hits == 1


def test_a_delayed_request_holds_back_what_is_behind_it(faulted):
    """A delay changes nothing but the time: order and content stay."""
    a, b, plan = faulted("delay", opcode=Opcode.SEND, nth=1, delay_us=2000)
    inbox = b.region(16)
    b.expect(inbox[:8], inbox[8:])
    done = a.do(send(a.region(b"delayed!"), wr_id=0), send(a.region(b"on time."), wr_id=1))
    assert [(c.wr_id, c.ok) for c in done] == [(0, True), (1, True)]
    assert all(c.ok for c in drain(b.recv_cq, 2))
    assert bytes(memoryview(inbox)) == b"delayed!on time."
    assert plan.hits == 1


def test_a_duplicated_request_is_done_twice_and_completes_once(faulted):
    """A program that must do things once sees what a replay does: two messages, one completion."""
    a, b, plan = faulted("duplicate", opcode=Opcode.SEND, nth=1)
    inbox = b.region(24)
    b.expect(inbox[:8], inbox[8:16], inbox[16:])
    done = a.do(send(a.region(b"repeated"), wr_id=1), send(a.region(b"the next"), wr_id=2))
    assert [(c.wr_id, c.ok) for c in done] == [(1, True), (2, True)]
    assert all(c.ok for c in drain(b.recv_cq, 3))
    assert bytes(memoryview(inbox)) == b"repeatedrepeatedthe next"
    assert a.cq.poll() == []
    assert plan.hits == 1


def test_a_duplicated_addition_adds_twice(faulted):
    """Atomics are not idempotent, and a duplicate shows it."""
    a, b, plan = faulted("duplicate", opcode=Opcode.FETCH_ADD, nth=1)
    needs(a.context, "atomics")
    counter = b.region(8)
    assert a.do(fetch_add(a.region(8), counter.remote, 5))[0].ok
    assert word(counter) == 10
    assert plan.hits == 1


@pytest.mark.parametrize("opcode", [Opcode.SEND, Opcode.WRITE, Opcode.READ], ids=lambda o: o.name)
def test_a_corrupted_request_succeeds_with_one_wrong_bit(faulted, opcode):
    """What a checksum end to end must catch: success on both ends, one bit wrong, the source untouched."""
    a, b, plan = faulted("corrupt", opcode=opcode, nth=1)
    ours, theirs = a.region(64), b.region(64)
    source, received = (theirs, ours) if opcode is Opcode.READ else (ours, theirs)
    memoryview(source)[:] = pattern(64)
    b.expect(theirs)
    request = {
        Opcode.SEND: send(ours),
        Opcode.WRITE: write(ours, theirs.remote),
        Opcode.READ: read(ours, theirs.remote),
    }
    assert a.do(request[opcode])[0].ok
    if opcode is Opcode.SEND:
        assert drain(b.recv_cq, 1)[0].ok
    assert bytes(memoryview(source)) == pattern(64)
    difference = int.from_bytes(memoryview(received), "little") ^ int.from_bytes(pattern(64), "little")
    assert difference.bit_count() == 1
    assert plan.hits == 1


def test_a_broken_link_breaks_both_ends(faulted):
    """The request at hand and all behind it are flushed; the peer's receives are flushed too."""
    a, b, plan = faulted("break_link", opcode=Opcode.SEND, nth=2)
    needs(a.context, "acknowledged")
    b.expect(*[b.region(8)] * 3)
    done = a.do(*(send(a.region(8), wr_id=i) for i in range(4)))
    assert statuses(done) == [WcStatus.SUCCESS] + [WcStatus.WR_FLUSH_ERR] * 3
    assert statuses(drain(b.recv_cq, 3)) == [WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR, WcStatus.WR_FLUSH_ERR]
    assert (a.qp.state, b.qp.state) == (QpState.ERR, QpState.ERR)
    assert plan.hits == 1


async def test_a_broken_link_disconnects_a_managed_connection(provider):
    """break_link ends the connection on both sides."""
    plan = FaultPlan()
    plan.add("break_link", opcode=Opcode.WRITE)
    with faulty(provider, plan) as context:
        a, b = make_end(context), make_end(context)
        connect_managed(a, b)
        assert not a.do(write(a.region(8), b.region(8).remote))[0].ok
        for end in (a, b):
            await asyncio.wait_for(end.connection.wait_disconnected(), DEADLINE_S)


def test_faults_come_back_as_often_as_planned(faulted):
    """count=2 hits twice, then the wire is plain again."""
    a, b, plan = faulted("delay", opcode=Opcode.WRITE, nth=2, count=2, delay_us=100)
    target = b.region(8)
    assert all(c.ok for c in a.do(*[write(a.region(8), target.remote)] * 6))
    assert plan.hits == 2
