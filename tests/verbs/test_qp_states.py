"""A2: what each state of a queue pair lets through, holds back, flushes or forgets."""

import pytest
from support.rdma.link import (
    IMPATIENT,
    REMOTE_ALL,
    connect_endpoints,
    drain,
    pattern,
    read,
    reconnect,
    send,
    statuses,
    wait_until,
    write,
)

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import QpState, RecvWorkRequest

pytestmark = pytest.mark.rule("A2")


def to_init(end):
    end.qp.modify(QpState.INIT, port=1, pkey_index=0, access_flags=REMOTE_ALL)


def to_rtr(end, peer):
    to_init(end)
    to = peer.qp.endpoint
    end.qp.modify(
        QpState.RTR,
        dest_gid=to.gid,
        dest_lid=to.lid,
        dest_qp_num=to.qp_num,
        rq_psn=to.psn,
        path_mtu=1024,
        max_dest_rd_atomic=1,
        min_rnr_timer=12,
    )


def test_nothing_can_be_posted_in_reset(ends):
    """In RESET both queues refuse."""
    mr = ends.a.region(8)
    for post in (
        lambda: ends.a.qp.post_send(send(mr)),
        lambda: ends.a.qp.post_recv(RecvWorkRequest(local=mr)),
    ):
        with pytest.raises(errors.StateError):
            post()
    assert ends.a.qp.state is QpState.RESET


@pytest.mark.parametrize("state", [QpState.INIT, QpState.RTR], ids=lambda s: s.name)
def test_before_rts_only_receives_can_be_posted(ends, state):
    """INIT and RTR take receives and refuse sends."""
    if state is QpState.INIT:
        to_init(ends.a)
    else:
        to_rtr(ends.a, ends.b)
    mr = ends.a.region(8)
    ends.a.qp.post_recv(RecvWorkRequest(local=mr))
    with pytest.raises(errors.StateError):
        ends.a.qp.post_send(send(mr))
    assert ends.a.qp.state is state
    assert ends.a.recv_cq.poll() == []


def test_a_receive_posted_in_init_takes_a_later_message(ends):
    """Receives posted in INIT are filled once the queue pair can receive."""
    to_init(ends.b)
    target = ends.b.region(16)
    ends.b.qp.post_recv(RecvWorkRequest(local=target, wr_id=9))
    connect_endpoints(ends.a, ends.b)
    assert ends.a.do(send(ends.a.region(b"before the link!")))[0].ok
    (arrived,) = drain(ends.b.recv_cq, 1)
    assert (arrived.wr_id, arrived.status, bytes(memoryview(target))) == (
        9,
        WcStatus.SUCCESS,
        b"before the link!",
    )


def test_in_rtr_a_queue_pair_answers_its_peer(ends):
    """RTR receives messages and serves READ and WRITE, before it may send itself."""
    to_rtr(ends.b, ends.a)
    target, inbox = ends.b.region(b"readable"), ends.b.region(8)
    ends.b.qp.post_recv(RecvWorkRequest(local=inbox))
    ends.a.qp.connect_to(ends.b.qp.endpoint)
    local = ends.a.region(8)
    assert ends.a.do(read(local, target.remote))[0].ok
    assert bytes(memoryview(local)) == b"readable"
    assert ends.a.do(send(local), write(ends.a.region(b"written!"), target.remote))[1].ok
    assert drain(ends.b.recv_cq, 1)[0].ok
    assert (bytes(memoryview(inbox)), bytes(memoryview(target))) == (b"readable", b"written!")
    assert ends.b.qp.state is QpState.RTR


def test_in_init_a_queue_pair_answers_nothing(ends):
    """A peer that is only in INIT does not answer: the request ends in RETRY_EXC_ERR."""
    to_init(ends.b)
    target = ends.b.region(8)
    ends.a.qp.connect_to(ends.b.qp.endpoint, **IMPATIENT)
    (failed,) = ends.a.do(write(ends.a.region(b"too soon"), target.remote))
    assert failed.status is WcStatus.RETRY_EXC_ERR
    assert bytes(memoryview(target)) == bytes(8)
    assert ends.b.qp.state is QpState.INIT


def test_err_flushes_both_queues(pair):
    """Going to ERR completes everything outstanding on both queues with WR_FLUSH_ERR, in order."""
    mr = pair.a.region(8)
    pair.a.expect(*[mr] * 5)
    pair.a.qp.modify(QpState.SQD)
    pair.a.qp.post_send(*(send(mr, wr_id=i, signaled=i % 2 == 0) for i in range(6)))
    pair.a.qp.modify(QpState.ERR)
    sent, received = drain(pair.a.cq, 6), drain(pair.a.recv_cq, 5)
    assert statuses(sent + received) == [WcStatus.WR_FLUSH_ERR] * 11
    assert [c.wr_id for c in sent] == list(range(6))
    assert [c.wr_id for c in received] == list(range(5))


def test_what_is_posted_in_err_is_flushed(pair):
    """ERR accepts requests on both queues and completes them at once with WR_FLUSH_ERR."""
    pair.a.qp.modify(QpState.ERR)
    mr = pair.a.region(8)
    pair.a.qp.post_send(send(mr, wr_id=1), write(mr, pair.b.region(8).remote, wr_id=2))
    pair.a.expect(mr)
    assert [(c.wr_id, c.status) for c in drain(pair.a.cq, 2)] == [(n, WcStatus.WR_FLUSH_ERR) for n in (1, 2)]
    assert statuses(drain(pair.a.recv_cq, 1)) == [WcStatus.WR_FLUSH_ERR]
    assert pair.a.qp.state is QpState.ERR


def test_reset_forgets_what_was_posted(pair):
    """RESET drops outstanding requests without completions: later messages take new receives."""
    old, new = pair.b.region(8), pair.b.region(8)
    pair.b.expect(old, old, old)
    reconnect(pair)
    pair.b.qp.post_recv(RecvWorkRequest(local=new, wr_id=77))
    assert pair.a.do(send(pair.a.region(b"afresh!!")))[0].ok
    (arrived,) = drain(pair.b.recv_cq, 1)
    assert (arrived.wr_id, arrived.status) == (77, WcStatus.SUCCESS)
    assert (bytes(memoryview(old)), bytes(memoryview(new))) == (bytes(8), b"afresh!!")
    assert pair.b.recv_cq.poll() == []


def test_a_broken_pair_works_again_after_reset(pair):
    """ERR is left by RESET only, and then the same queue pairs connect and carry data again."""
    forged = pair.b.region(8).remote
    pair.b.region(8)
    assert not pair.a.do(read(pair.a.region(8), type(forged)(forged.addr, forged.rkey ^ 0x5A5A, 8)))[0].ok
    wait_until(lambda: pair.a.qp.state is QpState.ERR, "ERR at the requester")
    reconnect(pair)
    for _ in range(3):
        target = pair.b.region(4096)
        assert pair.a.do(write(pair.a.region(pattern(4096)), target.remote))[0].ok
        assert bytes(memoryview(target)) == pattern(4096)


def test_sqd_holds_sends_and_rts_resumes_them(pair):
    """In SQD posted sends wait; back in RTS they go out, in order. Receives are served all the while."""
    inbox = [pair.b.region(1) for _ in range(4)]
    pair.b.expect(*inbox)
    pair.a.expect(pair.a.region(8))
    pair.a.qp.modify(QpState.SQD)
    pair.a.qp.post_send(*(send(pair.a.region(bytes([i])), wr_id=i) for i in range(4)))

    assert pair.b.do(send(pair.b.region(b"incoming")))[0].ok
    assert drain(pair.a.recv_cq, 1)[0].ok
    # The answered message went the other way after the sends were posted: nothing of them has moved.
    assert (pair.a.cq.poll(), pair.b.recv_cq.poll()) == ([], [])

    pair.a.qp.modify(QpState.RTS)
    assert [(c.wr_id, c.ok) for c in drain(pair.a.cq, 4)] == [(i, True) for i in range(4)]
    assert [c.wr_id for c in drain(pair.b.recv_cq, 4)] == list(range(4))
    assert b"".join(bytes(memoryview(mr)) for mr in inbox) == bytes(range(4))


def test_a_peer_in_err_no_longer_answers(make_pair):
    """When one end is in ERR the other's requests end in RETRY_EXC_ERR, then it is in ERR too."""
    pair = make_pair(attributes=IMPATIENT)
    target = pair.b.region(8)
    pair.b.qp.modify(QpState.ERR)
    (failed,) = pair.a.do(write(pair.a.region(b"anybody?"), target.remote))
    assert failed.status is WcStatus.RETRY_EXC_ERR
    assert bytes(memoryview(target)) == bytes(8)
    assert pair.a.qp.state is QpState.ERR
