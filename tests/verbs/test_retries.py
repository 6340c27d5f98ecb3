"""A9: retries: a peer that is gone, and a peer that is not ready to receive."""

import pytest
from support.rdma.devices import needs
from support.rdma.link import (
    IMPATIENT,
    connect_endpoints,
    drain,
    fetch_add,
    pattern,
    read,
    send,
    statuses,
    write,
)

from verbena.errors import WcStatus
from verbena.verbs import QpState

pytestmark = pytest.mark.rule("A9")

NOT_READY = {"rnr_retry": 1, "min_rnr_timer": 1}
ANY = [
    lambda mr, to: send(mr),
    write,
    read,
    lambda mr, to: fetch_add(mr, to, 1),
]


@pytest.mark.parametrize("request_for", ANY, ids=["send", "write", "read", "fetch_add"])
def test_a_closed_peer_ends_requests_with_retry_exc_err(make_pair, request_for):
    """When the peer's queue pair is closed, the first request ends in RETRY_EXC_ERR, the rest is flushed."""
    pair = make_pair(attributes=IMPATIENT)
    if request_for is not read:
        needs(pair.a.context, "acknowledged")
    remote, mr = pair.b.region(8).remote, pair.a.region(8)
    pair.b.qp.close()
    done = pair.a.do(*[request_for(mr, remote)] * 3)
    assert statuses(done) == [WcStatus.RETRY_EXC_ERR, WcStatus.WR_FLUSH_ERR, WcStatus.WR_FLUSH_ERR]
    assert pair.a.qp.state is QpState.ERR


def test_waiting_requests_fail_when_the_peer_closes(make_pair):
    """Requests that were already on their way when the peer closed complete in error too; none is lost."""
    pair = make_pair(attributes=IMPATIENT)
    needs(pair.a.context, "acknowledged")
    pair.a.qp.post_send(*(send(pair.a.region(8), wr_id=i) for i in range(5)))
    pair.b.qp.close()
    done = drain(pair.a.cq, 5)
    assert [c.wr_id for c in done] == list(range(5))
    assert statuses(done) == [WcStatus.RETRY_EXC_ERR] + [WcStatus.WR_FLUSH_ERR] * 4


def test_a_peer_that_never_connects_ends_requests_with_retry_exc_err(ends):
    """A queue pair connected to one that never connects back ends in RETRY_EXC_ERR."""
    ends.a.qp.connect_to(ends.b.qp.endpoint, **IMPATIENT)
    assert statuses(ends.a.do(send(ends.a.region(8)))) == [WcStatus.RETRY_EXC_ERR]


def test_a_send_without_a_receive_ends_after_finite_rnr_retries(make_pair):
    """With finite rnr_retry a SEND without a receive ends in RNR_RETRY_EXC_ERR; the peer stays whole."""
    pair = make_pair(attributes=NOT_READY)
    needs(pair.a.context, "acknowledged")
    assert statuses(pair.a.do(send(pair.a.region(8)))) == [WcStatus.RNR_RETRY_EXC_ERR]
    assert pair.a.qp.state is QpState.ERR
    assert (pair.b.qp.state, pair.b.recv_cq.poll()) == (QpState.RTS, [])


def test_a_write_with_immediate_needs_a_receive_too(make_pair):
    """Without one it ends in RNR_RETRY_EXC_ERR and is never announced."""
    pair = make_pair(attributes=NOT_READY)
    target = pair.b.region(8)
    (done,) = pair.a.do(write(pair.a.region(pattern(8)), target.remote, immediate=1))
    assert done.status is WcStatus.RNR_RETRY_EXC_ERR
    assert pair.b.recv_cq.poll() == []


def test_zero_rnr_retries_fail_at_the_first_refusal(make_pair):
    """rnr_retry=0 does not retry."""
    pair = make_pair(attributes={"rnr_retry": 0, "min_rnr_timer": 1})
    needs(pair.a.context, "acknowledged")
    assert statuses(pair.a.do(send(pair.a.region(8)))) == [WcStatus.RNR_RETRY_EXC_ERR]


def test_a_receive_posted_in_time_takes_the_message(ends):
    """While retries last, a receive posted later takes the message and both ends succeed."""
    needs(ends.a.context, "acknowledged")
    connect_endpoints(ends.a, ends.b, rnr_retry=6, min_rnr_timer=31)
    ends.a.qp.post_send(*(send(ends.a.region(pattern(8)), wr_id=i) for i in range(3)))
    inbox = ends.b.region(8)
    ends.b.expect(inbox, inbox, inbox)
    assert [(c.wr_id, c.ok) for c in drain(ends.a.cq, 3)] == [(0, True), (1, True), (2, True)]
    assert statuses(drain(ends.b.recv_cq, 3)) == [WcStatus.SUCCESS] * 3
    assert bytes(memoryview(inbox)) == pattern(8)


def test_rnr_retry_seven_waits_without_limit(make_pair):
    """rnr_retry=7 waits for the receive however often it is refused; what is behind it waits too."""
    pair = make_pair(attributes={"rnr_retry": 7, "min_rnr_timer": 1})
    needs(pair.a.context, "acknowledged")
    target = pair.b.region(8)
    pair.a.qp.post_send(
        send(pair.a.region(8), wr_id=0), write(pair.a.region(pattern(8)), target.remote, wr_id=1)
    )
    for _ in range(2000):
        assert pair.a.cq.poll() == []
    assert bytes(memoryview(target)) == bytes(8)
    pair.b.expect(pair.b.region(8))
    assert [(c.wr_id, c.ok) for c in drain(pair.a.cq, 2)] == [(0, True), (1, True)]
    assert bytes(memoryview(target)) == pattern(8)


@pytest.mark.parametrize("size", [300_000, 3_000_001])
def test_long_writes_wait_behind_a_message_without_a_receive(make_pair, size):
    """They go when it goes, and short messages around them wait for nothing else."""
    pair = make_pair(attributes={"rnr_retry": 7, "min_rnr_timer": 1})
    needs(pair.a.context, "acknowledged")
    target, payload, short = pair.b.region(size), pair.a.region(pattern(size)), pair.a.region(8)
    pair.a.qp.post_send(
        write(payload, target.remote, wr_id=0),
        send(short, wr_id=1),
        write(payload, target.remote, wr_id=2),
        send(short, wr_id=3),
    )
    assert [(c.wr_id, c.ok) for c in drain(pair.a.cq, 1)] == [(0, True)]
    memoryview(target)[:] = bytes(size)
    pair.b.expect(pair.b.region(8), pair.b.region(8))
    assert [(c.wr_id, c.ok) for c in drain(pair.a.cq, 3)] == [(1, True), (2, True), (3, True)]
    assert bytes(memoryview(target)) == pattern(size)
