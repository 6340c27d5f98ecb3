"""A3: queues of work requests, worked off in order; several queue pairs on one completion queue."""

from collections import Counter

import pytest
from support.rdma.devices import needs
from support.rdma.link import (
    End,
    Pair,
    connect_endpoints,
    drain,
    make_end,
    pattern,
    read,
    send,
    statuses,
    wait_until,
    word,
    write,
)

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import QpState, RecvWorkRequest

pytestmark = pytest.mark.rule("A3")


def test_posting_returns_before_the_work_is_done(pair):
    """A send without a receive at the peer waits: it completes when the receive comes."""
    needs(pair.a.context, "acknowledged")
    pair.a.qp.post_send(send(pair.a.region(b"patience")))
    assert pair.a.cq.poll() == []
    inbox = pair.b.region(8)
    pair.b.expect(inbox)
    assert drain(pair.a.cq, 1)[0].ok
    assert drain(pair.b.recv_cq, 1)[0].ok
    assert bytes(memoryview(inbox)) == b"patience"


def test_both_ends_complete_in_the_order_posted(pair):
    """Sends complete in order, receives are used in order, and the n-th message fills the n-th receive."""
    count = 100
    inbox, outbox = (
        pair.b.region(8 * count),
        pair.a.region(b"".join(i.to_bytes(8, "little") for i in range(count))),
    )
    pair.b.expect(*(inbox[8 * i : 8 * i + 8] for i in range(count)))
    pair.a.qp.post_send(*(send(outbox[8 * i : 8 * i + 8], wr_id=1000 + i) for i in range(count)))
    assert [c.wr_id for c in drain(pair.a.cq, count)] == [1000 + i for i in range(count)]
    assert [c.wr_id for c in drain(pair.b.recv_cq, count)] == list(range(count))
    assert bytes(memoryview(inbox)) == bytes(memoryview(outbox))


def test_poll_gives_at_most_what_was_asked_for_oldest_first(pair):
    """poll(max) takes the oldest completions and leaves the rest; an empty queue gives an empty list."""
    target, local = pair.b.region(8), pair.a.region(8)
    pair.a.qp.post_send(*(write(local, target.remote, wr_id=i) for i in range(10)))
    first = drain(pair.a.cq, 1)
    rest = drain(pair.a.cq, 9)
    assert [c.wr_id for c in first + rest] == list(range(10))
    assert pair.a.cq.poll(max=4) == []


def test_a_completion_names_its_queue_pair_and_length(pair):
    """A completion carries the request's and the queue pair's number and, for a receive, the byte count."""
    pair.b.qp.post_recv(RecvWorkRequest(local=pair.b.region(64), wr_id=2**62))
    pair.a.do(send(pair.a.region(33), wr_id=5))
    (arrived,) = drain(pair.b.recv_cq, 1)
    assert (arrived.wr_id, arrived.qp_num, arrived.byte_count) == (2**62, pair.b.qp.number, 33)


def test_several_queue_pairs_share_one_completion_queue(provider, pair):
    """Completions of many queue pairs arrive in one queue, told apart by qp_num, each pair's in order."""
    hub = pair.b
    spokes = [pair.a] + [make_end(pair.a.context) for _ in range(3)]
    hub_qps = [hub.qp]
    for spoke in spokes[1:]:
        qp = hub.pd.create_qp(send_cq=hub.cq, recv_cq=hub.recv_cq)
        connect_endpoints(spoke, End(hub.context, hub.pd, hub.cq, hub.recv_cq, qp))
        hub_qps.append(qp)
    inbox = hub.region(8)
    for qp in hub_qps:
        qp.post_recv(*(RecvWorkRequest(local=inbox, wr_id=i) for i in range(20)))
    for spoke in spokes:
        spoke.qp.post_send(*(send(spoke.region(8), wr_id=i) for i in range(20)))
    arrived = drain(hub.recv_cq, 80)
    assert Counter(c.qp_num for c in arrived) == Counter({qp.number: 20 for qp in hub_qps})
    for qp in hub_qps:
        assert [c.wr_id for c in arrived if c.qp_num == qp.number] == list(range(20))
    for spoke in spokes:
        assert all(c.ok for c in drain(spoke.cq, 20))


def test_one_queue_may_serve_sends_and_receives(make_pair):
    """With one completion queue for both, each completion says by its opcode which it was."""
    pair = make_pair(shared_cq=True)
    pair.b.expect(pair.b.region(8))
    pair.a.expect(pair.a.region(8))
    pair.a.qp.post_send(send(pair.a.region(8), wr_id=10))
    pair.b.qp.post_send(send(pair.b.region(8), wr_id=10))
    for end in (pair.a, pair.b):
        assert sorted((c.wr_id, c.opcode.name) for c in drain(end.cq, 2)) == [(0, "RECV"), (10, "SEND")]


def test_both_directions_flow_at_once(pair):
    """Each end sends while it receives; neither waits for the other."""
    for end in (pair.a, pair.b):
        end.expect(*[end.region(64)] * 64)
    for end in (pair.a, pair.b):
        end.qp.post_send(*[send(end.region(64))] * 64)
    for end in (pair.a, pair.b):
        assert all(c.ok for c in drain(end.cq, 64) + drain(end.recv_cq, 64))


def test_a_full_send_queue_is_back_pressure(make_pair):
    """A batch beyond the queue's depth raises QueueFullError with the number that went in, and loses none."""
    pair = make_pair(max_send=16)
    needs(pair.a.context, "acknowledged")  # else nothing makes the sends wait
    depth = pair.a.qp.limits.max_send
    mr = pair.a.region(8)
    with pytest.raises(errors.QueueFullError) as refusal:
        pair.a.qp.post_send(*(send(mr, wr_id=i) for i in range(depth + 3)))
    assert refusal.value.accepted == depth
    assert pair.a.qp.state is QpState.RTS
    with pytest.raises(errors.QueueFullError) as refusal:
        pair.a.qp.post_send(send(mr))
    assert refusal.value.accepted == 0

    inbox = pair.b.region(8)
    pair.b.expect(*[inbox] * depth)
    assert [(c.wr_id, c.ok) for c in drain(pair.a.cq, depth)] == [(i, True) for i in range(depth)]
    drain(pair.b.recv_cq, depth)
    pair.b.expect(inbox)
    assert pair.a.do(send(mr))[0].ok


def test_a_full_receive_queue_is_back_pressure(make_pair):
    """Receives beyond the queue's depth raise QueueFullError; a used one makes room."""
    pair = make_pair(max_recv=16)
    depth = pair.b.qp.limits.max_recv
    inbox = pair.b.region(8)
    with pytest.raises(errors.QueueFullError) as refusal:
        pair.b.expect(*[inbox] * (depth + 1))
    assert refusal.value.accepted == depth
    pair.a.do(send(pair.a.region(8)))
    drain(pair.b.recv_cq, 1)
    pair.b.expect(inbox)


def test_the_depth_can_be_used_over_and_over(make_pair):
    """Rounds of full queues wrap every ring many times; order and content stay."""
    pair = make_pair(max_send=8, max_recv=8)
    depth = min(pair.a.qp.limits.max_send, pair.b.qp.limits.max_recv)
    inbox, outbox = pair.b.region(8 * depth), pair.a.region(8 * depth)
    for turn in range(50):
        for i in range(depth):
            memoryview(outbox)[8 * i : 8 * i + 8] = (turn * depth + i).to_bytes(8, "little")
        pair.b.expect(*(inbox[8 * i : 8 * i + 8] for i in range(depth)))
        assert statuses(pair.a.do(*(send(outbox[8 * i : 8 * i + 8]) for i in range(depth)))) == [0] * depth
        drain(pair.b.recv_cq, depth)
        assert [word(inbox, 8 * i) for i in range(depth)] == [turn * depth + i for i in range(depth)]


def test_a_completion_queue_that_is_too_small_breaks_its_queue_pairs(make_pair):
    """When completions do not fit, some are lost: the queue says so and the queue pair goes to ERR."""
    pair = make_pair(cq_depth=4, max_send=512, max_recv=512)
    capacity = pair.a.cq.capacity
    local, target = pair.a.region(8), pair.b.region(8)
    for _ in range(capacity + 1):
        pair.a.qp.post_send(write(local, target.remote))
    # Polling would make room, so the queue's own word is watched.
    wait_until(lambda: pair.a.cq.overrun, "the overrun")
    wait_until(lambda: pair.a.qp.state is QpState.ERR, "ERR")


@pytest.mark.parametrize("request_for", [write, read])
def test_requests_after_a_failed_one_are_flushed(pair, request_for):
    """Before the failure all succeed, the failed one has its status, all after it are flushed, in order."""
    if request_for is write:
        needs(pair.a.context, "acknowledged")
    target, local = pair.b.region(8), pair.a.region(pattern(8))
    stranger = type(target.remote)(target.addr, target.rkey ^ 0x1111, 8)
    batch = [request_for(local, stranger if i == 3 else target.remote, wr_id=i) for i in range(8)]
    done = pair.a.do(*batch)
    assert [c.wr_id for c in done] == list(range(8))
    expected = [WcStatus.SUCCESS] * 3 + [WcStatus.REM_ACCESS_ERR] + [WcStatus.WR_FLUSH_ERR] * 4
    assert statuses(done) == expected


def test_closing_a_queue_pair_leaves_the_others_alone(pair):
    """Closing one queue pair neither disturbs another on the same queues nor leaves completions for it."""
    other = Pair(make_end(pair.a.context), make_end(pair.b.context))
    connect_endpoints(other.a, other.b)
    pair.a.expect(*[pair.a.region(8)] * 4)
    pair.a.qp.close()
    target = other.b.region(8)
    assert other.a.do(write(other.a.region(b"still up"), target.remote))[0].ok
    assert bytes(memoryview(target)) == b"still up"


@pytest.mark.parametrize("wr_id", [2**63, 2**64 - 1])
def test_request_numbers_of_tracked_operations_are_reserved(pair, wr_id):
    """The highest bit of wr_id belongs to tracked operations: posting it is a ValueError."""
    mr = pair.a.region(8)
    with pytest.raises(ValueError, match="wr_id"):
        pair.a.qp.post_send(send(mr, wr_id=wr_id))
    with pytest.raises(ValueError, match="wr_id"):
        pair.a.qp.post_recv(RecvWorkRequest(local=mr, wr_id=wr_id))
