"""A11: the documented ways to know that one-sided data has arrived, and to read data that changes."""

import threading
import time

import pytest
from support.rdma.devices import needs
from support.rdma.link import (
    DEADLINE_S,
    drain,
    fetch_add,
    pattern,
    read,
    wait_until,
    word,
    write,
)

pytestmark = pytest.mark.rule("A11")

BODY = 4096


def test_write_with_immediate_announces_data_that_is_in_place(pair):
    """When the receive completes, the WRITE's bytes, and those of all WRITEs before it, are there."""
    target = pair.b.region(BODY * 8)
    pair.b.expect(*[()] * 50)
    for turn in range(50):
        source = pair.a.region(pattern(BODY * 8, turn))
        head, tail = slice(0, BODY * 7), slice(BODY * 7, BODY * 8)
        pair.a.qp.post_send(
            write(source[head], target.remote[head], signaled=False),
            write(source[tail], target.remote[tail], immediate=turn),
        )
        (arrived,) = drain(pair.b.recv_cq, 1)
        assert (arrived.immediate, arrived.byte_count) == (turn, BODY)
        assert bytes(memoryview(target)) == pattern(BODY * 8, turn)
        drain(pair.a.cq, 1)


@pytest.mark.parametrize("how", ["write", "fetch_add"])
def test_a_flag_written_last_is_seen_last(pair, how):
    """Data first, then its flag on the same queue pair: who sees the flag sees the data."""
    target, flag = pair.b.region(BODY), pair.b.region(8)
    old, one = pair.a.region(8), pair.a.region(8)
    for turn in range(1, 51):
        memoryview(one).cast("B").cast("Q")[0] = turn
        raise_flag = write(one, flag.remote) if how == "write" else fetch_add(old, flag.remote, 1)
        pair.a.qp.post_send(
            write(pair.a.region(pattern(BODY, turn)), target.remote, signaled=False), raise_flag
        )
        wait_until(lambda turn=turn: word(flag) == turn, "the flag")
        assert bytes(memoryview(target)) == pattern(BODY, turn)
        assert drain(pair.a.cq, 1)[0].ok


def test_a_versioned_read_is_never_torn(pair):
    """Version, body, version by ordered READs: if the versions are equal and even, the body is whole."""
    shared = pair.b.region(8 + BODY)
    version = memoryview(shared)[:8].cast("B").cast("Q")
    stop = threading.Event()

    def change():
        turn = 0
        while not stop.is_set():
            turn += 1
            version[0] += 1
            memoryview(shared)[8:] = bytes([turn % 256]) * BODY
            version[0] += 1
            time.sleep(0)  # lets the reader look between two changes, too

    before, body, after = pair.a.region(8), pair.a.region(BODY), pair.a.region(8)
    writer = threading.Thread(target=change)
    writer.start()
    accepted = 0
    try:
        for _ in range(3000):
            pair.a.qp.post_send(
                read(before, shared.remote[:8], signaled=False),
                read(body, shared.remote[8 : 8 + BODY], signaled=False),
                read(after, shared.remote[:8]),
            )
            assert drain(pair.a.cq, 1)[0].ok
            if word(before) == word(after) and word(before) % 2 == 0:
                accepted += 1
                content = bytes(memoryview(body))
                assert content == content[:1] * BODY
    finally:
        stop.set()
        writer.join(DEADLINE_S)
    assert accepted


def test_a_lock_by_compare_and_swap_excludes(pair):
    """Two users of one word lock each other out: who holds it reads and writes alone, and no step is lost."""
    needs(pair.a.context, "atomics")
    lock, counter = pair.b.region(8), pair.b.region(8)
    turns = 200

    def work(name):
        local = pair.a.region(8)
        for _ in range(turns):
            wait_until(
                lambda: pair.a.qp.sync.compare_swap(lock.remote, 0, name, timeout_s=DEADLINE_S) == 0,
                "the lock",
                30,
            )
            pair.a.qp.sync.read(local, counter.remote, timeout_s=DEADLINE_S)
            memoryview(local).cast("B").cast("Q")[0] += 1
            pair.a.qp.sync.write(local, counter.remote, timeout_s=DEADLINE_S)
            assert pair.a.qp.sync.compare_swap(lock.remote, name, 0, timeout_s=DEADLINE_S) == name

    threads = [threading.Thread(target=work, args=(name,)) for name in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert word(counter) == 2 * turns
