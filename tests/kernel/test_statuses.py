"""Each error status that Soft-RoCE can be made to give, against rdma-core's pyverbs, with its explanation."""

import pytest
from support.rdma.devices import Case, expected
from support.rdma.link import drain, fetch_add, read, send, statuses, wait_until, write

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import Access, Opcode, QpState, RecvWorkRequest, RemoteMemory

IMPATIENT = {"rnr_retry": 1}
NOTHING = {"access": 0}


def explained(end, request, status, *words):
    """Our request fails with the status, its error says these words, and what follows is flushed."""
    end.qp.post_send(request, request)
    first, second = drain(end.cq, 2)
    assert (first.status, second.status) == (status, WcStatus.WR_FLUSH_ERR)
    with pytest.raises(errors.VerbenaError) as failure:
        first.raise_for_status("request", "10.9.0.2")
    assert failure.value.code == status.name
    for part in ("10.9.0.2", status.name, "cause: ", "remedy: ", *words):
        assert part in str(failure.value)
    with pytest.raises(errors.VerbenaError, match="the status of that request is the real error"):
        second.raise_for_status("request")
    wait_until(lambda: end.qp.state is QpState.ERR, "ERR after the failure")


def wrong(memory):
    return RemoteMemory(memory.addr, memory.rkey ^ 0x10101, memory.length)


@pytest.mark.parametrize("request_for", [read, write], ids=["read", "write"])
def test_a_wrong_key_at_the_peer(pyverbs, met, request_for):
    """REM_ACCESS_ERR; the peer's memory and ours stay as they were."""
    end = met()
    target, remote = pyverbs.memory(b"theirs..")
    local = end.region(b"ours....")
    explained(end, request_for(local, wrong(remote)), WcStatus.REM_ACCESS_ERR, "the rkey is wrong")
    assert (pyverbs.bytes_of(target, 8), bytes(memoryview(local))) == (b"theirs..", b"ours....")


@pytest.mark.parametrize("opcode", [Opcode.READ, Opcode.WRITE, Opcode.FETCH_ADD], ids=lambda o: o.name)
def test_a_wrong_key_at_ours(pyverbs, met, opcode):
    """We answer a foreign requester likewise."""
    end = met()
    ours = end.region(b"ours....")
    local, _ = pyverbs.memory(b"theirs..")
    assert pyverbs.do(opcode, local, 8, wrong(ours.remote)) is WcStatus.REM_ACCESS_ERR
    assert bytes(memoryview(ours)) == b"ours...."


def test_rights_that_the_peers_region_lacks(pyverbs, met):
    """REM_ACCESS_ERR for a WRITE into memory that may only be read."""
    end = met()
    _, remote = pyverbs.memory(bytes(8), access=int(Access.LOCAL_WRITE | Access.REMOTE_READ))
    explained(end, write(end.region(8), remote), WcStatus.REM_ACCESS_ERR, "REMOTE_WRITE")


@pytest.mark.parametrize(
    "request_for", [read, write, lambda mr, to: fetch_add(mr, to, 1)], ids=["read", "write", "atomic"]
)
def test_a_queue_pair_that_allows_nothing(pyverbs, met, request_for):
    """REM_INV_REQ_ERR when the peer's queue pair, not its region, forbids it."""
    end = met(theirs=NOTHING)
    _, remote = pyverbs.memory(bytes(8))
    explained(
        end,
        request_for(end.region(8), remote),
        WcStatus.REM_INV_REQ_ERR,
        "the access flags of the peer's queue pair",
    )


def test_our_queue_pair_allows_nothing(pyverbs, met):
    """We answer a foreign requester likewise."""
    end = met(ours={"access": Access(0)})
    local, _ = pyverbs.memory(bytes(8))
    assert pyverbs.do(Opcode.WRITE, local, 8, end.region(8).remote) is WcStatus.REM_INV_REQ_ERR


def test_no_receive_at_the_peer(pyverbs, met):
    """RNR_RETRY_EXC_ERR once rnr_retry is used up."""
    end = met(ours=IMPATIENT)
    explained(
        end, send(end.region(8)), WcStatus.RNR_RETRY_EXC_ERR, "no receive posted", "post receives before"
    )


def test_no_receive_at_ours(pyverbs, met):
    """We answer a foreign requester likewise."""
    end = met(theirs=IMPATIENT)
    local, _ = pyverbs.memory(bytes(8))
    assert pyverbs.do(Opcode.SEND, local, 8) is WcStatus.RNR_RETRY_EXC_ERR
    assert end.recv_cq.poll() == []


def test_memory_of_another_domain(pyverbs, met):
    """LOC_PROT_ERR for data that would land in a region of another domain."""
    end = met()
    _, remote = pyverbs.memory(bytes(8))
    with end.context.alloc_pd() as other, other.allocate(8) as foreign:
        explained(end, read(foreign, remote), WcStatus.LOC_PROT_ERR, "different protection domains")


def test_a_source_in_another_domain(pyverbs, met):
    """LOC_PROT_ERR, or what Soft-RoCE says instead: LOC_QP_OP_ERR."""
    end = met()
    _, remote = pyverbs.memory(bytes(8))
    status = expected(end.context, Case.SOURCE_IN_ANOTHER_DOMAIN, WcStatus.LOC_PROT_ERR)
    with end.context.alloc_pd() as other, other.allocate(8) as foreign:
        explained(end, write(foreign, remote), status)


def test_a_message_too_long_for_the_peer(pyverbs, met):
    """REM_INV_REQ_ERR here and LOC_LEN_ERR there, or what Soft-RoCE says instead."""
    end = met()
    inbox, _ = pyverbs.memory(bytes(8))
    pyverbs.receive(index=inbox, length=8, wr_id=3)
    status = expected(end.context, Case.SENDER_OF_TOO_LONG, WcStatus.REM_INV_REQ_ERR)
    explained(end, send(end.region(9)), status)
    theirs = expected(end.context, Case.RECEIVER_OF_TOO_LONG, WcStatus.LOC_LEN_ERR)
    assert pyverbs.completions(1, receives=True)[0][:2] == [3, theirs]


def test_a_message_too_long_for_us(pyverbs, met):
    """LOC_LEN_ERR here and REM_INV_REQ_ERR there, or what Soft-RoCE says; the next receive is flushed."""
    end = met()
    end.expect(end.region(8), end.region(8))
    local, _ = pyverbs.memory(bytes(9))
    theirs = expected(end.context, Case.SENDER_OF_TOO_LONG, WcStatus.REM_INV_REQ_ERR)
    assert pyverbs.do(Opcode.SEND, local, 9) is theirs
    status = expected(end.context, Case.RECEIVER_OF_TOO_LONG, WcStatus.LOC_LEN_ERR)
    assert statuses(drain(end.recv_cq, 2)) == [status, WcStatus.WR_FLUSH_ERR]


def test_receives_of_a_closed_queue_pair(pyverbs, met):
    """WR_FLUSH_ERR for receives that nobody will fill any more."""
    end = met()
    end.qp.post_recv(RecvWorkRequest(local=end.region(8), wr_id=5))
    end.qp.modify(QpState.ERR)
    (done,) = drain(end.recv_cq, 1)
    assert (done.wr_id, done.status) == (5, WcStatus.WR_FLUSH_ERR)
