"""rdma-core's pyverbs at the cable's other end: every operation, each way."""

import pytest
from support.rdma.link import compare_swap, drain, fetch_add, pattern, read, send, word, write

from verbena.errors import WcStatus
from verbena.verbs import Opcode, RecvWorkRequest

SIZE = 5000  # several packets, and not a whole number of them


@pytest.fixture
def end(met):
    return met()


def little(value):
    return value.to_bytes(8, "little")


@pytest.mark.parametrize("immediate", [None, 0xDEADBEEF])
def test_our_messages_arrive(pyverbs, end, immediate):
    """SEND and SEND_WITH_IMM: the bytes, their number and the immediate are what the peer receives."""
    inbox, _ = pyverbs.memory(bytes(SIZE + 8))
    pyverbs.receive(index=inbox, length=SIZE + 8, wr_id=7)
    assert end.do(send(end.region(pattern(SIZE)), immediate=immediate))[0].ok
    assert pyverbs.completions(1, receives=True) == [[7, WcStatus.SUCCESS, SIZE, immediate]]
    assert pyverbs.bytes_of(inbox, SIZE) == pattern(SIZE)


@pytest.mark.parametrize("immediate", [None, 0xDEADBEEF])
def test_its_messages_arrive(pyverbs, end, immediate):
    """SEND and SEND_WITH_IMM the other way."""
    inbox = end.region(SIZE + 8)
    end.qp.post_recv(RecvWorkRequest(local=inbox, wr_id=7))
    outbox, _ = pyverbs.memory(pattern(SIZE))
    opcode = Opcode.SEND if immediate is None else Opcode.SEND_WITH_IMM
    assert pyverbs.do(opcode, outbox, SIZE, immediate=immediate or 0) is WcStatus.SUCCESS
    (done,) = drain(end.recv_cq, 1)
    assert (done.wr_id, done.status, done.byte_count, done.immediate) == (
        7,
        WcStatus.SUCCESS,
        SIZE,
        immediate,
    )
    assert bytes(memoryview(inbox))[:SIZE] == pattern(SIZE)


def test_we_read_its_memory(pyverbs, end):
    """READ brings what its memory holds."""
    _, remote = pyverbs.memory(pattern(SIZE))
    local = end.region(SIZE)
    assert end.do(read(local, remote))[0].ok
    assert bytes(memoryview(local)) == pattern(SIZE)


def test_it_reads_our_memory(pyverbs, end):
    """READ the other way."""
    ours = end.region(pattern(SIZE))
    sink, _ = pyverbs.memory(bytes(SIZE))
    assert pyverbs.do(Opcode.READ, sink, SIZE, ours.remote) is WcStatus.SUCCESS
    assert pyverbs.bytes_of(sink, SIZE) == pattern(SIZE)


@pytest.mark.parametrize("immediate", [None, 0x01020304])
def test_we_write_its_memory(pyverbs, end, immediate):
    """WRITE says nothing to the peer; WRITE_WITH_IMM takes one of its receives."""
    target, remote = pyverbs.memory(bytes(SIZE))
    pyverbs.receive(index=target, length=0, wr_id=9)
    assert end.do(write(end.region(pattern(SIZE)), remote, immediate=immediate))[0].ok
    assert pyverbs.bytes_of(target, SIZE) == pattern(SIZE)
    if immediate is None:
        assert pyverbs.poll(receives=True) == []
    else:
        ((number, status, _, told),) = pyverbs.completions(1, receives=True)
        assert (number, status, told) == (9, WcStatus.SUCCESS, immediate)


@pytest.mark.parametrize("immediate", [None, 0x01020304])
def test_it_writes_our_memory(pyverbs, end, immediate):
    """WRITE and WRITE_WITH_IMM the other way."""
    ours = end.region(SIZE)
    end.expect(())
    source, _ = pyverbs.memory(pattern(SIZE))
    opcode = Opcode.WRITE if immediate is None else Opcode.WRITE_WITH_IMM
    assert pyverbs.do(opcode, source, SIZE, ours.remote, immediate=immediate or 0) is WcStatus.SUCCESS
    assert bytes(memoryview(ours)) == pattern(SIZE)
    if immediate is None:
        assert end.recv_cq.poll() == []
    else:
        assert drain(end.recv_cq, 1)[0].immediate == immediate


def test_we_do_atomics_on_its_memory(pyverbs, end):
    """FETCH_ADD and COMPARE_SWAP return what the word held; a comparison that fails stores nothing."""
    target, remote = pyverbs.memory(little(40))
    local = end.region(8)
    for request, held, left in (
        (fetch_add(local, remote, 2), 40, 42),
        (compare_swap(local, remote, 42, 7), 42, 7),
        (compare_swap(local, remote, 42, 9), 7, 7),
    ):
        assert end.do(request)[0].ok
        assert word(local) == held
        assert pyverbs.bytes_of(target, 8) == little(left)


def test_it_does_atomics_on_our_memory(pyverbs, end):
    """FETCH_ADD and COMPARE_SWAP the other way."""
    ours = end.region(little(40))
    result, _ = pyverbs.memory(bytes(8))
    for opcode, options, held, left in (
        (Opcode.FETCH_ADD, {"compare_add": 2}, 40, 42),
        (Opcode.COMPARE_SWAP, {"compare_add": 42, "swap": 7}, 42, 7),
        (Opcode.COMPARE_SWAP, {"compare_add": 42, "swap": 9}, 7, 7),
    ):
        assert pyverbs.do(opcode, result, 8, ours.remote, **options) is WcStatus.SUCCESS
        assert pyverbs.bytes_of(result, 8) == little(held)
        assert word(ours) == left
