"""A3, A8: properties over random splits, interleavings and sizes, against small models."""

import array
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rdma.devices import needs
from support.rdma.link import drain, pattern, read, send, write

from verbena import errors
from verbena.verbs import RecvWorkRequest

PIECES = 4


def cuts(total, points):
    """The slices of [0, total) between sorted cut points: at most PIECES, empty ones included."""
    edges = [0, *sorted(point % (total + 1) for point in points), total]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


split = st.lists(st.integers(0, 1 << 20), min_size=0, max_size=PIECES - 1)


@pytest.mark.rule("A8")
@given(length=st.integers(0, 9000), gather=split, scatter=split)
def test_any_split_of_a_message_equals_its_concatenation(pair, length, gather, scatter):
    """However a message is cut at the sender and at the receiver, the bytes in list order are the same."""
    data = pattern(length, 3)
    with pair.a.pd.allocate(max(1, length)) as source, pair.b.pd.allocate(max(1, length)) as inbox:
        memoryview(source)[:length] = data
        spans = cuts(length, scatter)
        # The receive's pieces lie in reverse, so that list order and address order differ.
        places, end = [], length
        for span in spans:
            size = span.stop - span.start
            places.append(slice(end - size, end))
            end -= size
        pair.b.qp.post_recv(RecvWorkRequest(local=tuple(inbox[place] for place in places)))
        pair.a.do(send(tuple(source[span] for span in cuts(length, gather))))
        (arrived,) = drain(pair.b.recv_cq, 1)
        assert (arrived.ok, arrived.byte_count) == (True, length)
        assert b"".join(bytes(memoryview(inbox)[place]) for place in places) == data


@pytest.mark.rule("A8")
@given(length=st.integers(1, 9000), gather=split, scatter=split, start=st.integers(0, 64))
def test_any_split_of_a_one_sided_operation_equals_its_concatenation(pair, length, gather, scatter, start):
    """A gathered WRITE followed by a scattered READ gives the same bytes back."""
    data = pattern(length, 5)
    with (
        pair.a.pd.allocate(length) as source,
        pair.a.pd.allocate(length) as back,
        pair.b.pd.allocate(length + 64) as target,
    ):
        memoryview(source)[:] = data
        place = target.remote[start : start + length]
        requests = (
            write(tuple(source[span] for span in cuts(length, gather)), place, signaled=False),
            read(tuple(back[span] for span in cuts(length, scatter)), place),
        )
        pair.a.qp.post_send(*requests)
        assert drain(pair.a.cq, 1)[0].ok
        assert bytes(memoryview(back)) == data


@pytest.mark.rule("A3")
@settings(max_examples=25)
@given(steps=st.lists(st.sampled_from(["send", "recv", "poll_a", "poll_b"]), max_size=120))
def test_any_interleaving_keeps_order_and_loses_nothing(make_pair, steps):
    """Posts and polls in any order: each message arrives once, in order, and each request completes once."""
    pair = make_pair(max_send=8, max_recv=8)
    needs(pair.a.context, "acknowledged")
    outbox, inbox = pair.a.region(8 * 256), pair.b.region(8 * 256)
    for i in range(256):
        memoryview(outbox)[8 * i : 8 * i + 8] = i.to_bytes(8, "little")
    sent = received = refused = 0
    done_a, done_b = [], []
    for step in steps:
        try:
            if step == "send":
                pair.a.qp.post_send(send(outbox[8 * sent : 8 * sent + 8], wr_id=sent))
                sent += 1
            elif step == "recv":
                pair.b.qp.post_recv(
                    RecvWorkRequest(local=inbox[8 * received : 8 * received + 8], wr_id=received)
                )
                received += 1
            elif step == "poll_a":
                done_a += pair.a.cq.poll()
            else:
                done_b += pair.b.recv_cq.poll()
        except errors.QueueFullError:
            refused += 1
    matched = min(sent, received)
    assert sent + received + refused == sum(step in ("send", "recv") for step in steps)
    done_a += drain(pair.a.cq, matched - len(done_a))
    done_b += drain(pair.b.recv_cq, matched - len(done_b))
    assert [c.wr_id for c in done_a] == list(range(matched))
    assert [c.wr_id for c in done_b] == list(range(matched))
    assert all(c.ok for c in done_a + done_b)
    assert bytes(memoryview(inbox)[: 8 * matched]) == bytes(memoryview(outbox)[: 8 * matched])
    assert (pair.a.cq.poll(), pair.b.recv_cq.poll()) == ([], [])


SIZES = st.sampled_from([0, 1, 8, 63, 64, 65, 255, 1000, 4096, 5000, 16_384, 65_535, 65_536, 65_537])


@pytest.mark.rule("A3")
@settings(max_examples=15)
@given(sizes=st.lists(SIZES | st.integers(0, 70_000), min_size=1, max_size=60), window=st.integers(1, 8))
def test_messages_of_random_sizes_wrap_every_ring(pair, sizes, window):
    """Long sequences of messages of mixed sizes, several in flight, arrive whole and in order."""
    most = max(sizes) or 1
    with pair.a.pd.allocate(most) as source, pair.b.pd.allocate(most * window) as inbox:
        memoryview(source)[:] = pattern(most, 9)
        for start in range(0, len(sizes), window):
            batch = sizes[start : start + window]
            slots = [inbox[most * i : most * i + most] for i in range(len(batch))]
            pair.b.expect(*slots)
            done = pair.a.do(*(send(source[most - size :]) for size in batch))
            assert all(c.ok for c in done)
            assert [c.byte_count for c in drain(pair.b.recv_cq, len(batch))] == batch
            for i, size in enumerate(batch):
                assert bytes(memoryview(inbox)[most * i : most * i + size]) == pattern(most, 9)[most - size :]


ops = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 600)), min_size=1, max_size=200
)


@pytest.mark.rule("A7")
@settings(max_examples=25)
@given(writes=ops, reads=ops)
def test_batches_equal_a_model(pair, writes, reads):
    """write_many then read_many equal the same slice assignments on bytearrays, done one after the other."""
    size = 4096
    with pair.a.pd.allocate(size) as local, pair.b.pd.allocate(size) as target:
        memoryview(local)[:] = pattern(size, 11)
        model_local, model_target = bytearray(pattern(size, 11)), bytearray(size)
        for here, there, length in writes:
            model_target[there : there + length] = model_local[here : here + length]
        assert pair.a.qp.sync.write_many(local, target.remote, triples(writes)) == len(writes)
        pair.a.settle()
        assert bytes(memoryview(target)) == model_target
        # READs in flight together may land in any order, so the model holds for disjoint places only.
        spread = [
            (index * 16 % (size - 16), there, min(length, 16))
            for index, (_, there, length) in enumerate(reads)
        ]
        for here, there, length in spread:
            model_local[here : here + length] = model_target[there : there + length]
        assert pair.a.qp.sync.read_many(local, target.remote, triples(spread)) == len(reads)
        assert bytes(memoryview(local)) == model_local


def triples(rows):
    flat = array.array("Q", [value for row in rows for value in row])
    return memoryview(flat).cast("B").cast("Q", (len(rows), 3))
