"""A9: errors as completion statuses, seen from both ends, each explained."""

import pytest
from support.rdma.devices import Case, expected, refusal
from support.rdma.link import (
    REMOTE_ALL,
    compare_swap,
    drain,
    fetch_add,
    pattern,
    read,
    send,
    statuses,
    wait_until,
    write,
)

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import Access, QpState, RemoteMemory

pytestmark = pytest.mark.rule("A9")

ATOMICS = [lambda mr, to: fetch_add(mr, to, 1), lambda mr, to: compare_swap(mr, to, 0, 1)]
ONE_SIDED = [write, read, *ATOMICS]
NAMES = ["write", "read", "fetch_add", "compare_swap"]


def refused(end, request, status=WcStatus.REM_ACCESS_ERR):
    """The request fails with the status and the requester's queue pair is in ERR."""
    (done,) = end.do(request)
    assert done.status is refusal(end.context, request, status)
    assert done.ok is (done.status is WcStatus.SUCCESS)
    wait_until(lambda: end.qp.state is QpState.ERR, "ERR at the requester")


def test_a_message_longer_than_the_receive(pair):
    """The receiver completes LOC_LEN_ERR, the sender REM_INV_REQ_ERR, both break, the rest is flushed."""
    guard = pair.b.region(b"." * 32)
    pair.b.expect(guard[8:16], guard[16:24])
    status = expected(pair.a.context, Case.SENDER_OF_TOO_LONG, WcStatus.REM_INV_REQ_ERR)
    refused(pair.a, send(pair.a.region(b"x" * 9)), status)
    status = expected(pair.b.context, Case.RECEIVER_OF_TOO_LONG, WcStatus.LOC_LEN_ERR)
    assert statuses(drain(pair.b.recv_cq, 2)) == [status, WcStatus.WR_FLUSH_ERR]
    assert pair.b.qp.state is QpState.ERR
    content = bytes(memoryview(guard))
    assert content[:8] + content[16:] == b"." * 24


def test_a_message_as_long_as_the_receive_is_fine(pair):
    """Exactly full is not too long."""
    pair.b.expect(pair.b.region(8))
    assert pair.a.do(send(pair.a.region(8)))[0].ok
    assert drain(pair.b.recv_cq, 1)[0].byte_count == 8


@pytest.mark.parametrize("request_for", ONE_SIDED, ids=NAMES)
def test_a_wrong_key(pair, request_for):
    """An rkey that was never handed out is REM_ACCESS_ERR and moves no byte."""
    target, local = pair.b.region(pattern(8)), pair.a.region(8)
    refused(pair.a, request_for(local, RemoteMemory(target.addr, target.rkey ^ 0x10101, 8)))
    assert (bytes(memoryview(target)), bytes(memoryview(local))) == (pattern(8), bytes(8))


@pytest.mark.parametrize("offset", [-8, -1, 57, 64, 1 << 20, 1 << 40], ids=lambda n: f"at{n:+}")
@pytest.mark.parametrize("request_for", [write, read], ids=["write", "read"])
def test_outside_the_region(pair, request_for, offset):
    """A range that leaves the region at either end is REM_ACCESS_ERR and moves no byte, not even inside."""
    target, local = pair.b.region(pattern(64)), pair.a.region(8)
    refused(pair.a, request_for(local, RemoteMemory(target.addr + offset, target.rkey, 8)))
    assert (bytes(memoryview(target)), bytes(memoryview(local))) == (pattern(64), bytes(8))


@pytest.mark.parametrize("fault", ["key", "place", "right", "local right"])
def test_a_failed_unsignalled_read_flushes_those_behind_it(pair, fault):
    """Those before it are done, it fails itself, and those behind it are flushed and move no byte."""
    source, into = pair.b.region(pattern(24)), pair.a.region(24)
    secret = pair.b.region(8, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE)
    constant = pair.a.region(8, access=Access(0))
    local, remote = into[8:16], source.remote[8:16]
    if fault == "key":
        remote = RemoteMemory(source.addr, source.rkey ^ 0x10101, 8)
    elif fault == "place":
        remote = RemoteMemory(source.addr + 17, source.rkey, 8)
    elif fault == "right":
        remote = secret.remote
    else:
        local = constant
    pair.a.qp.post_send(
        read(into[:8], source.remote[:8], wr_id=1, signaled=False),
        read(local, remote, wr_id=2, signaled=False),
        read(into[16:], source.remote[16:], wr_id=3, signaled=False),
        read((), source.remote[:0], wr_id=4),
    )
    status = WcStatus.LOC_PROT_ERR if fault == "local right" else WcStatus.REM_ACCESS_ERR
    done = [(each.wr_id, each.status) for each in drain(pair.a.cq, 3)]
    assert done == [(2, status), (3, WcStatus.WR_FLUSH_ERR), (4, WcStatus.WR_FLUSH_ERR)]
    assert bytes(memoryview(into)) == pattern(24)[:8] + bytes(16)
    assert pair.a.qp.state is QpState.ERR


def test_an_address_that_wraps_around(pair):
    """Address plus length beyond 2^64 is outside, not a small number."""
    target = pair.b.region(64)
    refused(pair.a, write(pair.a.region(64), RemoteMemory(2**64 - 32, target.rkey, 64)))


@pytest.mark.parametrize(
    ("request_for", "missing"),
    [
        (read, Access.REMOTE_READ),
        (write, Access.REMOTE_WRITE),
        *((atomic, Access.REMOTE_ATOMIC) for atomic in ATOMICS),
    ],
    ids=["read", "write", "fetch_add", "compare_swap"],
)
def test_access_that_was_not_granted(pair, request_for, missing):
    """Every right but the needed one: REM_ACCESS_ERR, and nothing changes."""
    target = pair.b.region(pattern(8), access=Access.ALL & ~missing)
    refused(pair.a, request_for(pair.a.region(8), target.remote))
    assert bytes(memoryview(target)) == pattern(8)


def test_write_with_immediate_without_the_right(pair):
    """A refused WRITE with immediate is not announced: the receive is flushed, never completed."""
    target = pair.b.region(pattern(8), access=Access.REMOTE_READ)
    pair.b.expect(())
    refused(pair.a, write(pair.a.region(8), target.remote, immediate=1))
    pair.b.qp.modify(QpState.ERR)
    status = expected(pair.b.context, Case.RECEIVE_OF_A_REFUSED_WRITE, WcStatus.WR_FLUSH_ERR)
    assert statuses(drain(pair.b.recv_cq, 1)) == [status]
    assert bytes(memoryview(target)) == pattern(8)


@pytest.mark.parametrize("request_for", ONE_SIDED, ids=NAMES)
def test_a_freed_region(pair, request_for):
    """The rkey of a closed region is REM_ACCESS_ERR."""
    target = pair.b.region(8)
    remote = target.remote
    target.close()
    refused(pair.a, request_for(pair.a.region(8), remote))


@pytest.mark.parametrize(
    ("request_for", "bit"),
    [
        (read, Access.REMOTE_READ),
        (write, Access.REMOTE_WRITE),
        *((atomic, Access.REMOTE_ATOMIC) for atomic in ATOMICS),
    ],
    ids=["read", "write", "fetch_add", "compare_swap"],
)
def test_a_queue_pair_that_does_not_allow_the_operation(make_pair, request_for, bit):
    """A right that the target's queue pair lacks is REM_INV_REQ_ERR, whatever the region grants."""
    pair = make_pair(attributes={"access": REMOTE_ALL & ~bit})
    target = pair.b.region(pattern(8))
    refused(pair.a, request_for(pair.a.region(8), target.remote), WcStatus.REM_INV_REQ_ERR)
    assert bytes(memoryview(target)) == pattern(8)


@pytest.mark.parametrize("atomic", ATOMICS, ids=["fetch_add", "compare_swap"])
@pytest.mark.parametrize("offset", [1, 4, 7])
def test_a_misaligned_atomic(pair, atomic, offset):
    """An atomic whose address is not a multiple of 8 is REM_INV_REQ_ERR, or refused when posted by a device
    that looks then; it changes nothing."""
    target = pair.b.region(pattern(16))
    request = atomic(pair.a.region(8), target.remote[offset : offset + 8])
    outcome = expected(pair.a.context, Case.MISALIGNED_ATOMIC, WcStatus.REM_INV_REQ_ERR)
    if outcome is errors.StateError:
        with pytest.raises(errors.StateError) as refusal:
            pair.a.qp.post_send(send(), request, send())
        assert (refusal.value.code, refusal.value.accepted) == ("invalid_argument", 1)
        assert pair.a.qp.state is QpState.RTS
    else:
        refused(pair.a, request, outcome)
    assert bytes(memoryview(target)) == pattern(16)


def test_reading_into_memory_that_may_not_be_written(pair):
    """A READ into a region without LOCAL_WRITE is LOC_PROT_ERR; the region keeps its bytes."""
    target, local = pair.b.region(pattern(8)), pair.a.region(8, access=Access.REMOTE_READ)
    refused(pair.a, read(local, target.remote), WcStatus.LOC_PROT_ERR)
    assert bytes(memoryview(local)) == bytes(8)


def test_receiving_into_memory_that_may_not_be_written(pair):
    """The receiver completes LOC_PROT_ERR, the sender REM_OP_ERR, both break; no byte lands."""
    inbox = pair.b.region(8, access=Access.REMOTE_READ)
    pair.b.expect(inbox)
    refused(pair.a, send(pair.a.region(pattern(8))), WcStatus.REM_OP_ERR)
    status = expected(pair.b.context, Case.RECEIVE_INTO_FORBIDDEN_MEMORY, WcStatus.LOC_PROT_ERR)
    assert statuses(drain(pair.b.recv_cq, 1)) == [status]
    assert pair.b.qp.state is QpState.ERR
    assert bytes(memoryview(inbox)) == bytes(8)


def test_a_failed_completion_raises_with_causes_and_remedy(pair):
    """raise_for_status raises the status with operation, causes and remedy; a success is silent."""
    good, bad = pair.b.region(8), pair.b.region(8)
    remote = bad.remote
    bad.close()
    done = pair.a.do(read(pair.a.region(8), good.remote), read(pair.a.region(8), remote))
    done[0].raise_for_status(operation="READ")
    with pytest.raises(errors.DeniedError) as failure:
        done[1].raise_for_status(operation="READ")
    assert (failure.value.status, failure.value.operation) == (WcStatus.REM_ACCESS_ERR, "READ")
    assert failure.value.causes
    assert failure.value.remedy in str(failure.value)


@pytest.mark.parametrize(
    "status", [status for status in WcStatus if status is not WcStatus.SUCCESS], ids=lambda s: s.name
)
def test_every_status_has_an_explanation(status):
    """Each status explains itself: what happened, why it may have, what to do."""
    explanation = errors.explain(status)
    assert explanation.what
    assert explanation.causes
    assert explanation.remedy
    assert errors.completion_error(status, operation="SEND").status is status
