"""A8: scatter/gather lists, inline data, signalled and unsignalled requests."""

import pytest
from support.rdma.link import drain, pattern, read, send, statuses, wait_until, write

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import QpState, RecvWorkRequest, RemoteMemory

pytestmark = pytest.mark.rule("A8")


def test_a_gathered_message_arrives_as_one(pair):
    """Pieces of several regions leave as one message, in the order of the list."""
    first, second, inbox = pair.a.region(b"abcdef"), pair.a.region(b"123456"), pair.b.region(16)
    pair.b.expect(inbox)
    pair.a.do(send((second[2:4], first[0:3], second[5:6], first[:0])))
    assert drain(pair.b.recv_cq, 1)[0].byte_count == 6
    assert bytes(memoryview(inbox)[:6]) == b"34abc6"


def test_a_message_scatters_over_the_receive_list(pair):
    """A receive's pieces are filled one after the other; what is left over stays as it was."""
    inbox = pair.b.region(b"." * 20)
    pair.b.qp.post_recv(RecvWorkRequest(local=(inbox[10:13], inbox[0:2], inbox[15:20])))
    pair.a.do(send(pair.a.region(b"1234567")))
    assert drain(pair.b.recv_cq, 1)[0].byte_count == 7
    assert bytes(memoryview(inbox)) == b"45........123..67..."


def test_a_read_scatters_and_a_write_gathers(pair):
    """The local list of a READ or WRITE may have several pieces; the remote side is one range."""
    target, local = pair.b.region(pattern(12)), pair.a.region(20)
    pieces = (local[16:20], local[0:3], local[8:13])
    assert pair.a.do(read(pieces, target.remote))[0].ok
    data = bytes(memoryview(local))
    assert data[16:20] + data[0:3] + data[8:13] == pattern(12)
    memoryview(target)[:] = bytes(12)
    assert pair.a.do(write(pieces, target.remote))[0].ok
    assert bytes(memoryview(target)) == pattern(12)


def test_more_pieces_than_the_queue_pair_has_are_refused(make_pair):
    """A list longer than the limit is refused when posted and takes no slot."""
    pair = make_pair(max_send_sge=2, max_recv_sge=2)
    mr = pair.a.region(64)
    pieces = tuple(mr[i : i + 1] for i in range(pair.a.qp.limits.max_send_sge + 1))
    with pytest.raises(errors.StateError):
        pair.a.qp.post_send(send(pieces))
    with pytest.raises(errors.StateError):
        pair.a.qp.post_recv(
            RecvWorkRequest(local=tuple(mr[i : i + 1] for i in range(pair.a.qp.limits.max_recv_sge + 1)))
        )
    assert pair.a.qp.state is QpState.RTS
    assert pair.a.do(write(mr, pair.b.region(64).remote))[0].ok


@pytest.mark.parametrize("over", [-1, 0], ids=["limit-1", "limit"])
def test_inline_data_is_taken_when_posted(pair, over):
    """Inline data, up to the limit, is copied by the post: the buffer may change at once."""
    length = pair.a.qp.limits.max_inline + over
    source, inbox = pair.a.region(pattern(length)), pair.b.region(length)
    pair.b.expect(inbox)
    pair.a.qp.post_send(send(source, inline=True))
    memoryview(source)[:] = b"\xff" * length
    assert drain(pair.a.cq, 1)[0].ok
    assert drain(pair.b.recv_cq, 1)[0].byte_count == length
    assert bytes(memoryview(inbox)) == pattern(length)


def test_inline_data_beyond_the_limit_is_refused(pair):
    """One byte over the inline limit is refused when posted; the queue pair stays in RTS."""
    too_long = pair.a.region(pair.a.qp.limits.max_inline + 1)
    with pytest.raises(errors.StateError):
        pair.a.qp.post_send(send(too_long, inline=True))
    assert pair.a.qp.state is QpState.RTS


def test_bytes_can_be_sent_inline_without_registration(pair):
    """With inline=True `local` may be bytes; WRITE may be inline too."""
    inbox, target = pair.b.region(8), pair.b.region(8)
    pair.b.expect(inbox)
    batch = (send(b"unlisted", inline=True), write(b"written.", target.remote, inline=True))
    assert all(c.ok for c in pair.a.do(*batch))
    assert (bytes(memoryview(inbox)), bytes(memoryview(target))) == (b"unlisted", b"written.")


def test_bytes_without_inline_are_refused(pair):
    """Unregistered memory cannot be sent otherwise."""
    with pytest.raises((TypeError, ValueError, errors.VerbenaError)):
        pair.a.qp.post_send(send(b"unlisted"))


def test_unsignalled_requests_leave_no_completion(pair):
    """Of a batch only the signalled requests complete, and their completion covers those before them."""
    local, target = pair.a.region(pattern(80)), pair.b.region(80)
    batch = [
        write(local[8 * i : 8 * i + 8], target.remote[8 * i : 8 * i + 8], wr_id=i, signaled=i in (4, 9))
        for i in range(10)
    ]
    pair.a.qp.post_send(*batch)
    assert [c.wr_id for c in drain(pair.a.cq, 2)] == [4, 9]
    assert pair.a.cq.poll() == []
    pair.a.settle()
    assert bytes(memoryview(target)) == pattern(80)


def test_unsignalled_requests_hold_their_slots_until_a_signalled_one_completes(make_pair):
    """Slots of unsignalled requests come back with the next signalled completion, round after round."""
    pair = make_pair(max_send=16)
    depth = pair.a.qp.limits.max_send
    local, target = pair.a.region(8), pair.b.region(8)
    for _ in range(20):
        pair.a.qp.post_send(*(write(local, target.remote, signaled=i == depth - 1) for i in range(depth)))
        assert drain(pair.a.cq, 1)[0].ok


def test_an_unsignalled_failure_always_completes(pair):
    """A request that fails has a completion, signalled or not; what is flushed behind it too."""
    target, local = pair.b.region(8), pair.a.region(8)
    wrong = RemoteMemory(target.addr, target.rkey ^ 0x2222, 8)
    pair.a.qp.post_send(
        write(local, target.remote, wr_id=0, signaled=False),
        read(local, wrong, wr_id=1, signaled=False),
        write(local, target.remote, wr_id=2, signaled=False),
    )
    done = drain(pair.a.cq, 2)
    assert [c.wr_id for c in done] == [1, 2]
    assert statuses(done) == [WcStatus.REM_ACCESS_ERR, WcStatus.WR_FLUSH_ERR]


def test_signal_all_signals_all(make_pair):
    """A queue pair made with signal_all completes every request, whatever it says."""
    pair = make_pair(signal_all=True)
    local, target = pair.a.region(8), pair.b.region(8)
    pair.a.qp.post_send(*(write(local, target.remote, wr_id=i, signaled=False) for i in range(5)))
    assert [c.wr_id for c in drain(pair.a.cq, 5)] == list(range(5))


def test_a_batch_goes_out_as_one_call_would(pair):
    """post_send of several requests equals several post_sends."""
    local, target = pair.a.region(b"abcdefgh"), pair.b.region(16)
    together = [write(local[i : i + 1], target.remote[i : i + 1]) for i in range(8)]
    pair.a.do(*together)
    for i in range(8):
        pair.a.qp.post_send(write(local[i : i + 1], target.remote[8 + i : 9 + i]))
    drain(pair.a.cq, 8)
    wait_until(lambda: bytes(memoryview(target)) == b"abcdefgh" * 2, "both halves")


def test_an_inline_request_of_a_closed_region_is_refused(pair):
    """Inline bytes are read when the request is posted; from a closed region they are not."""
    mr = pair.a.region(b"x" * 32)
    request = send(mr, inline=True)
    mr.close()
    with pytest.raises(errors.ClosedError):
        pair.a.qp.post_send(request)
    assert pair.a.qp.state is QpState.RTS
