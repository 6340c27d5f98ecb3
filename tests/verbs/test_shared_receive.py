"""A3: shared receive queues: several queue pairs fed from one pool of receives."""

import pytest
from support.rdma.devices import Case, expected, needs, refusal
from support.rdma.link import (
    End,
    connect_endpoints,
    drain,
    make_end,
    send,
    statuses,
)

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import QpState, RecvWorkRequest

pytestmark = pytest.mark.rule("A3")

SPOKES = 3


@pytest.fixture
def star(ends):
    """Three queue pairs on one shared receive queue, each with a peer: (srq, recv_cq, pd, hubs, spokes)."""
    pd, cq = ends.b.pd, ends.b.recv_cq
    srq = pd.create_srq(max_recv=32, max_sge=2)
    hubs, spokes = [], []
    for _ in range(SPOKES):
        hub = End(ends.b.context, pd, ends.b.cq, cq, pd.create_qp(send_cq=ends.b.cq, recv_cq=cq, srq=srq))
        spoke = make_end(ends.a.context)
        connect_endpoints(spoke, hub, rnr_retry=7)
        hubs.append(hub)
        spokes.append(spoke)
    return srq, cq, pd, hubs, spokes


def test_a_message_of_any_queue_pair_takes_the_oldest_shared_receive(star):
    """Each message, whoever's, takes the oldest receive; the completion names the queue pair."""
    srq, cq, pd, hubs, spokes = star
    inbox = pd.allocate(16 * 6)
    srq.post_recv(*(RecvWorkRequest(local=inbox[16 * i : 16 * i + 16], wr_id=i) for i in range(6)))
    for turn in range(6):
        who = (turn * 2) % SPOKES
        spokes[who].do(send(spokes[who].region(bytes([turn]) * 16)))
        (arrived,) = drain(cq, 1)
        assert (arrived.wr_id, arrived.qp_num, arrived.byte_count) == (turn, hubs[who].qp.number, 16)
        assert bytes(memoryview(inbox)[16 * turn : 16 * turn + 16]) == bytes([turn]) * 16


def test_receives_may_scatter(star):
    """A shared receive with several elements is filled one element after the other."""
    srq, cq, pd, _, spokes = star
    inbox = pd.allocate(32)
    srq.post_recv(RecvWorkRequest(local=(inbox[20:24], inbox[0:12])))
    spokes[0].do(send(spokes[0].region(b"head" + b"and the tail")))
    assert drain(cq, 1)[0].byte_count == 16
    assert bytes(memoryview(inbox)[20:24]) + bytes(memoryview(inbox)[:12]) == b"headand the tail"


def test_an_empty_shared_queue_makes_the_sender_wait(star):
    """Without a receive the sender is told to retry; one posted later takes the message."""
    srq, cq, pd, _, spokes = star
    needs(spokes[1].context, "acknowledged")
    spokes[1].qp.post_send(send(spokes[1].region(b"wait for me")))
    assert spokes[1].cq.poll() == []
    srq.post_recv(RecvWorkRequest(local=pd.allocate(16)))
    assert drain(spokes[1].cq, 1)[0].ok
    assert drain(cq, 1)[0].byte_count == 11


def test_a_full_shared_queue_is_back_pressure(star):
    """Posting beyond the queue's depth raises QueueFullError with the number accepted."""
    srq, _, pd, _, _ = star
    mr = pd.allocate(8)
    with pytest.raises(errors.QueueFullError) as refusal:
        srq.post_recv(*[RecvWorkRequest(local=mr)] * 5000)
    assert 32 <= refusal.value.accepted < 5000


def test_a_queue_pair_with_a_shared_queue_has_no_receives_of_its_own(star):
    """post_recv on such a queue pair is refused."""
    _, _, pd, hubs, _ = star
    with pytest.raises(errors.VerbenaError):
        hubs[0].qp.post_recv(RecvWorkRequest(local=pd.allocate(8)))


def test_one_broken_queue_pair_leaves_the_shared_receives_to_the_others(star):
    """ERR flushes no shared receive: the next message of another queue pair takes it."""
    srq, cq, pd, hubs, spokes = star
    srq.post_recv(*(RecvWorkRequest(local=pd.allocate(8), wr_id=i) for i in range(2)))
    hubs[0].qp.modify(QpState.ERR)
    for turn in range(2):
        assert spokes[2].do(send(spokes[2].region(8)))[0].ok
        (arrived,) = drain(cq, 1)
        assert (arrived.wr_id, arrived.ok, arrived.qp_num) == (turn, True, hubs[2].qp.number)


def test_a_shared_receive_that_is_too_small_fails_its_message_only(star):
    """A message too long for the receive breaks its queue pair; the other users go on."""
    srq, cq, pd, hubs, spokes = star
    srq.post_recv(
        RecvWorkRequest(local=pd.allocate(4), wr_id=1), RecvWorkRequest(local=pd.allocate(64), wr_id=2)
    )
    status = expected(spokes[0].context, Case.SENDER_OF_TOO_LONG, WcStatus.REM_INV_REQ_ERR)
    request = send(spokes[0].region(32))
    assert statuses(spokes[0].do(request)) == [refusal(spokes[0].context, request, status)]
    (failed,) = drain(cq, 1)
    status = expected(hubs[0].context, Case.RECEIVER_OF_TOO_LONG, WcStatus.LOC_LEN_ERR)
    assert (failed.wr_id, failed.status, failed.qp_num) == (1, status, hubs[0].qp.number)
    assert spokes[1].do(send(spokes[1].region(32)))[0].ok
    assert drain(cq, 1)[0].wr_id == 2
