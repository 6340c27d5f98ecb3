"""A12: memory windows: a region lent to the peer of one queue pair."""

from contextlib import contextmanager

import pytest
from support.rdma.devices import refusal
from support.rdma.link import (
    IMPATIENT,
    connect_endpoints,
    drain,
    fetch_add,
    make_end,
    pattern,
    read,
    reconnect,
    send,
    statuses,
    word,
    write,
)

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import Access, MemoryWindow, QpState, RemoteMemory

pytestmark = pytest.mark.rule("A12")

LENDABLE = Access.LOCAL_WRITE | Access.WINDOW
REMOTE = Access.REMOTE_READ | Access.REMOTE_WRITE


def lend(pair, region, access=Access.REMOTE_READ):
    """A window of b's region for a. The message behind the bind tells a that the device has bound it."""
    window = pair.b.pd.bind_window(region, pair.b.qp, access=access)
    pair.a.expect(())
    pair.b.do(send(()))
    assert drain(pair.a.recv_cq, 1)[0].ok
    return window


def second_pair(pair):
    """Another connection between the same domains."""
    ends = []
    for end in (pair.a, pair.b):
        other = make_end(end.context)
        other.pd = end.pd
        other.qp = end.pd.create_qp(send_cq=other.cq, recv_cq=other.recv_cq)
        ends.append(other)
    connect_endpoints(*ends, **IMPATIENT)
    return type(pair)(*ends)


def assert_refused(pair, request):
    assert statuses(pair.a.do(request)) == [refusal(pair.a.context, request, WcStatus.REM_ACCESS_ERR)]


def windows_of(context):
    """How the wire provides windows; a device without them lends by registrations."""
    return context.attributes.capabilities["memory_windows"]


@contextmanager
def refused_locally():
    with pytest.raises(errors.VerbenaError) as refused:
        yield
    assert refused.value.code == "invalid_argument"


def test_a_wire_reports_whether_it_has_windows(context):
    """The capability memory_windows is "yes", a type of windows, or "none" and what follows from that."""
    assert windows_of(context).split(":")[0] in {"yes", "type 2A", "type 2B", "none"}


def test_the_peer_uses_a_window_as_a_region(pair):
    """READ, WRITE and atomics reach the region through its window, as far as the window's access goes."""
    region = pair.b.region(pattern(64), LENDABLE)
    access = REMOTE if windows_of(pair.b.context).startswith("none") else REMOTE | Access.REMOTE_ATOMIC
    window = lend(pair, region, access)
    assert window.remote == RemoteMemory(region.addr, window.rkey, 64)
    local = pair.a.region(64)
    assert pair.a.do(read(local, window.remote))[0].ok
    assert bytes(memoryview(local)) == pattern(64)
    assert pair.a.do(write(pair.a.region(b"by a window"), window.remote[8:19]))[0].ok
    assert bytes(memoryview(region)) == pattern(64)[:8] + b"by a window" + pattern(64)[19:]
    if pair.a.qp.capabilities.get("atomics", "no").startswith("yes"):
        before = word(region)
        assert pair.a.do(fetch_add(local[:8], window.remote[:8], 3))[0].ok
        assert word(region) == (before + 3) % 2**64


def test_a_region_without_rights_of_its_own_can_be_lent(pair):
    """WINDOW alone lends for reading, and the region's own key is refused."""
    region = pair.b.pd.register(pattern(64), access=Access.WINDOW)
    window = lend(pair, region)
    local = pair.a.region(64)
    assert pair.a.do(read(local, window.remote))[0].ok
    assert bytes(memoryview(local)) == pattern(64)
    assert_refused(pair, read(local, region.remote))


def test_the_key_is_refused_through_another_queue_pair(pair):
    """Another queue pair of the same domain answers REM_ACCESS_ERR; the window's own one still serves it."""
    if windows_of(pair.b.context).startswith("none"):
        pytest.skip(windows_of(pair.b.context))
    region = pair.b.region(pattern(64), LENDABLE)
    window = lend(pair, region, REMOTE)
    stranger = second_pair(pair)
    local = pair.a.region(64)
    request = read(local, window.remote)
    assert statuses(stranger.a.do(request)) == [WcStatus.REM_ACCESS_ERR]
    assert bytes(memoryview(local)) == bytes(64)
    assert pair.a.do(request)[0].ok
    assert bytes(memoryview(local)) == pattern(64)


def test_an_invalidated_key_is_refused(pair):
    """After invalidate() the key is refused, and other windows of the region stay valid."""
    region = pair.b.region(pattern(64), LENDABLE)
    other, window = lend(pair, region), lend(pair, region, REMOTE)
    local = pair.a.region(64)
    assert pair.a.do(read(local, window.remote))[0].ok
    remote = window.remote
    window.invalidate()
    window.invalidate()
    with pytest.raises(errors.ClosedError):
        _ = window.rkey
    assert pair.a.do(read(local, other.remote))[0].ok
    assert_refused(pair, write(pair.a.region(8), remote[:8]))
    assert bytes(memoryview(region)) == pattern(64)


def test_a_window_ends_with_its_context_manager(pair):
    """Leaving the block invalidates the window."""
    region = pair.b.region(pattern(64), LENDABLE)
    with lend(pair, region) as window:
        remote = window.remote
        assert pair.a.do(read(pair.a.region(64), remote))[0].ok
    assert window.closed
    assert_refused(pair, read(pair.a.region(64), remote))


def test_a_window_ends_with_its_region(pair):
    """Closing the region invalidates its windows; its memory is free afterwards."""
    buffer = bytearray(pattern(64))
    region = pair.b.pd.register(buffer, access=LENDABLE)
    window = lend(pair, region, REMOTE)
    remote = window.remote
    assert pair.a.do(write(pair.a.region(8), remote[:8]))[0].ok
    region.close()
    buffer.extend(b"free to be resized")
    assert_refused(pair, write(pair.a.region(64), remote))
    assert bytes(buffer[:64]) == bytes(8) + pattern(64)[8:]


def test_a_window_ends_when_its_queue_pair_gets_another_peer(pair):
    """After RESET the queue pair may have another peer, for which the key was not meant."""
    region = pair.b.region(pattern(64), LENDABLE)
    window = lend(pair, region)
    local = pair.a.region(64)
    assert pair.a.do(read(local, window.remote))[0].ok
    reconnect(pair)
    assert_refused(pair, read(local, window.remote))


def test_closing_a_queue_pair_ends_its_windows(pair):
    """The key is refused wherever it is used; the region stays registered."""
    region = pair.b.region(pattern(64), LENDABLE | Access.REMOTE_READ)
    window = lend(pair, region)
    remote = window.remote
    other = second_pair(pair)
    pair.b.qp.close()
    assert window.closed
    local = pair.a.region(64)
    assert other.a.do(read(local, region.remote))[0].ok
    assert statuses(other.a.do(read(local, remote))) == [WcStatus.REM_ACCESS_ERR]


def test_more_than_the_window_allows_is_refused(pair):
    """A WRITE through a window for reading is REM_ACCESS_ERR, although the region's own key allows it."""
    region = pair.b.region(pattern(64), LENDABLE | REMOTE)
    window = lend(pair, region)
    assert_refused(pair, write(pair.a.region(64), window.remote))
    assert bytes(memoryview(region)) == pattern(64)


@pytest.mark.parametrize(("start", "length"), [(-8, 16), (56, 16), (64, 8), (2**40, 8)])
def test_a_window_has_the_bounds_of_its_region(pair, start, length):
    """Bytes outside the region are refused, and none of them moves."""
    region = pair.b.region(pattern(64), LENDABLE)
    window = lend(pair, region)
    local = pair.a.region(64)
    outside = RemoteMemory(window.remote.addr + start, window.rkey, length)
    assert_refused(pair, read(local[:length], outside))
    assert bytes(memoryview(local)) == bytes(64)


def test_a_region_without_the_right_cannot_be_lent(pair):
    """A window needs a region that was registered with WINDOW, whatever else peers may do with it."""
    region = pair.b.region(64, Access.ALL)
    with refused_locally():
        pair.b.pd.bind_window(region, pair.b.qp)
    assert pair.b.qp.state is QpState.RTS


@pytest.mark.parametrize("access", [Access.REMOTE_WRITE, Access.REMOTE_ATOMIC, REMOTE])
def test_a_window_for_writing_needs_a_writable_region(pair, access):
    """A region without LOCAL_WRITE is lent for reading only."""
    region = pair.b.pd.register(pattern(64), access=Access.WINDOW | Access.REMOTE_READ)
    with refused_locally():
        pair.b.pd.bind_window(region, pair.b.qp, access=access)
    assert isinstance(lend(pair, region), MemoryWindow)


@pytest.mark.parametrize("access", [Access(0), Access.LOCAL_WRITE, Access.REMOTE_READ | Access.WINDOW])
def test_a_window_gives_remote_access_only(pair, access):
    """Local rights, WINDOW, and no right at all are refused as the access of a window."""
    region = pair.b.region(64, LENDABLE)
    with refused_locally():
        pair.b.pd.bind_window(region, pair.b.qp, access=access)


def test_region_queue_pair_and_window_belong_to_one_domain(pair):
    """Neither a region nor a queue pair of another domain is accepted."""
    region = pair.b.region(64, LENDABLE)
    other = pair.b.context.alloc_pd()
    foreign = other.allocate(64, access=LENDABLE)
    for attempt in (
        lambda: pair.b.pd.bind_window(foreign, pair.b.qp),
        lambda: other.bind_window(region, pair.b.qp),
        lambda: other.bind_window(foreign, pair.b.qp),
    ):
        with refused_locally():
            attempt()


def test_a_queue_pair_without_a_peer_gets_no_window(ends):
    """Only a connected queue pair has a peer to lend to."""
    region = ends.b.region(64, LENDABLE)
    with refused_locally():
        ends.b.pd.bind_window(region, ends.b.qp)


def test_a_window_of_a_broken_queue_pair_is_of_no_use(pair):
    """A server may bind before it learns that the connection has broken: that is no error, and no peer, not
    even the next one of this queue pair, can use the window."""
    region = pair.b.region(pattern(64), LENDABLE)
    pair.b.qp.modify(QpState.ERR)
    window = pair.b.pd.bind_window(region, pair.b.qp)
    remote = window.remote
    reconnect(pair)
    assert_refused(pair, read(pair.a.region(64), remote))


def test_binds_take_no_room_from_the_program(make_pair):
    """A program can bind between its own requests and still post max_send of them; all complete."""
    pair = make_pair(max_send=16)
    region = pair.b.region(pattern(64), LENDABLE)
    depth = pair.b.qp.limits.max_send
    for _ in range(3):
        windows = [pair.b.pd.bind_window(region, pair.b.qp) for _ in range(20)]
        pair.a.expect(*[()] * depth)
        pair.b.qp.post_send(*(send((), wr_id=i) for i in range(depth)))
        windows += [pair.b.pd.bind_window(region, pair.b.qp) for _ in range(20)]
        assert [(c.wr_id, c.ok) for c in drain(pair.b.cq, depth)] == [(i, True) for i in range(depth)]
        drain(pair.a.recv_cq, depth)
        assert pair.a.do(read(pair.a.region(64), windows[-1].remote))[0].ok
        assert pair.b.cq.poll() == []
        for window in windows:
            window.close()


def test_many_windows_come_and_go(pair):
    """Windows are returned to the device: thousands of them, one after another, leave nothing behind."""
    region = pair.b.region(pattern(64), LENDABLE)
    for _ in range(3000):
        pair.b.pd.bind_window(region, pair.b.qp).close()
    window = lend(pair, region)
    local = pair.a.region(64)
    assert pair.a.do(read(local, window.remote))[0].ok
    assert bytes(memoryview(local)) == pattern(64)


def test_a_window_keeps_its_region_alive(pair):
    """Dropping the region while a window of it is in use does not end it."""
    window = lend(pair, pair.b.pd.register(pattern(64), access=Access.WINDOW))
    local = pair.a.region(64)
    assert pair.a.do(read(local, window.remote))[0].ok
    assert bytes(memoryview(local)) == pattern(64)


def test_a_dropped_window_is_invalid(pair):
    """The window ends with its last reference, as a region does."""
    region = pair.b.region(pattern(64), LENDABLE)
    remote = lend(pair, region).remote
    assert_refused(pair, read(pair.a.region(64), remote))
