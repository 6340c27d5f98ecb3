"""Named regions: a listener publishes arrays, and sessions use them by name, on each wire."""

from __future__ import annotations

import array
import asyncio
from collections.abc import AsyncIterator, Callable

import numpy
import pytest

import verbena
from verbena import errors
from verbena.integrations.tensors import array_in
from verbena.transport import Listener, RemoteArray, RemoteRegion, Session
from verbena.verbs import Access


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0") as listening:
        yield listening


@pytest.fixture(params=["shm", "iwarp"])
async def session(request: pytest.FixtureRequest, listener: Listener) -> AsyncIterator[Session]:
    async with verbena.connect(listener.address, wire=request.param) as connected:
        yield connected


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds. Fails the test after ten seconds."""
    deadline = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


def weights() -> numpy.ndarray:
    return numpy.arange(24, dtype="f4").reshape(4, 3, 2)


async def test_a_published_array_arrives_with_dtype_and_shape(listener: Listener, session: Session) -> None:
    """The array itself is exposed: what the publisher writes later is what a peer reads."""
    ours = weights()
    listener.publish("weights", ours)
    remote = await session.region("weights")
    assert isinstance(remote, RemoteArray)
    assert (remote.dtype, remote.shape, remote.ndim, remote.nbytes) == (ours.dtype, (4, 3, 2), 3, 96)
    ours[3, 2, 1] = -5
    copy = await session.pull("weights")
    assert copy.dtype == ours.dtype
    assert numpy.array_equal(copy, ours)
    assert copy.flags.writeable
    assert not numpy.shares_memory(copy, ours)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "<i8", ">i4", "f2", "c16", "M8[ns]", "S5", "U3", "V8"])
async def test_every_plain_type_travels(listener: Listener, session: Session, dtype: str) -> None:
    ours = numpy.frombuffer(bytes(range(240)), dtype="u1").view(numpy.dtype(dtype)).copy()
    listener.publish("array", ours)
    copy = await session.pull("array")
    assert copy.dtype == ours.dtype
    assert copy.shape == ours.shape
    assert copy.tobytes() == ours.tobytes()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "int4"])
async def test_types_of_ml_dtypes_travel_by_name(listener: Listener, session: Session, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    ours = numpy.arange(6).astype(getattr(ml_dtypes, name)).reshape(2, 3)
    listener.publish("halves", ours)
    copy = await session.pull("halves")
    assert copy.dtype == ours.dtype
    assert numpy.array_equal(copy, ours)


async def test_a_long_array_is_pulled_in_fragments(listener: Listener, session: Session) -> None:
    ours = numpy.random.default_rng(1).random(600_000)
    listener.publish("long", ours)
    assert numpy.array_equal(await session.pull("long"), ours)


async def test_pull_fills_an_array_of_the_same_form(listener: Listener, session: Session) -> None:
    """And returns it. Another dtype or shape is an error that shows both."""
    listener.publish("weights", weights())
    into = numpy.empty((4, 3, 2), dtype="f4")
    assert await session.pull("weights", into=into) is into
    assert numpy.array_equal(into, weights())
    for other in (numpy.empty((4, 6), dtype="f4"), numpy.empty((4, 3, 2), dtype="i4")):
        with pytest.raises(errors.StateError, match=r"into is .* the region <f4 of shape \(4, 3, 2\)"):
            await session.pull("weights", into=other)
    plain = bytearray(96)
    assert await session.pull("weights", into=plain) is plain
    assert bytes(plain) == weights().tobytes()
    with pytest.raises(errors.StateError, match="into has 95 bytes, the region 96"):
        await session.pull("weights", into=bytearray(95))


async def test_rows_are_parts_of_the_array(listener: Listener, session: Session) -> None:
    """A slice of rows and a row are read and pulled like the whole."""
    listener.publish("weights", weights())
    remote = await session.region("weights")
    assert isinstance(remote, RemoteArray)
    assert numpy.array_equal(await session.pull(remote[1:3]), weights()[1:3])
    assert numpy.array_equal(await session.pull(remote[-1]), weights()[-1])
    assert numpy.array_equal(remote[2].asarray(await session.read(remote[2])), weights()[2])
    assert await session.pull(remote[2][1][0]) == weights()[2, 1, 0]


async def test_bytes_have_no_form(listener: Listener, session: Session) -> None:
    """A published bytearray is a RemoteRegion, of which pull() returns bytes."""
    listener.publish("text", bytearray(b"hello, world"))
    remote = await session.region("text")
    assert type(remote) is RemoteRegion
    assert await session.pull("text") == b"hello, world"
    assert await session.read(remote[7:]) == b"world"


async def test_typed_buffers_and_regions_are_published_too(listener: Listener, session: Session) -> None:
    listener.publish("doubles", array.array("d", [1.5, 2.5]))
    assert (await session.pull("doubles")).tolist() == [1.5, 2.5]
    region = listener.node.allocate(8)
    region[:] = b"8 bytes!"
    listener.publish("region", region)
    assert await session.pull("region") == b"8 bytes!"
    listener.publish("view", array_in(region, "u1", (2, 4)))
    assert (await session.pull("view")).tobytes() == b"8 bytes!"


async def test_empty_arrays_are_published(listener: Listener, session: Session) -> None:
    listener.publish("none", numpy.empty((0, 3), dtype="f8"))
    assert (await session.pull("none")).shape == (0, 3)
    listener.publish("nothing", b"")
    assert await session.pull("nothing") == b""


async def test_atomics_work_on_elements(listener: Listener, session: Session) -> None:
    counters = numpy.zeros(4, dtype="i8")
    listener.publish("counters", counters, access=Access.ALL)
    remote = await session.region("counters")
    assert isinstance(remote, RemoteArray)
    assert await session.fetch_add(remote[2], 5) == 0
    assert await session.fetch_add(remote[2], 1) == 5
    await session.write(remote[:2], numpy.array([7, 8]))
    assert counters.tolist() == [7, 8, 6, 0]


async def test_a_region_is_read_only_unless_access_says_otherwise(
    listener: Listener, session: Session
) -> None:
    ours = weights()
    listener.publish("weights", ours)
    with pytest.raises(errors.DeniedError):
        await session.write(await session.region("weights"), b"overwritten")
    assert numpy.array_equal(ours, weights())


async def test_what_cannot_be_published_is_named(listener: Listener) -> None:
    """Python objects, records, gaps, read-only memory for writing, names of control characters."""
    for wrong in (numpy.array([{}, None]), numpy.zeros(2, dtype="i4,f4")):
        with pytest.raises(errors.StateError, match="cannot be shared"):
            listener.publish("wrong", wrong)
    with pytest.raises(ValueError, match=r"numpy.ascontiguousarray\(array\)"):
        listener.publish("wrong", weights()[:, ::2])
    with pytest.raises(BufferError, match="read-only"):
        listener.publish("wrong", b"constant", access=Access.ALL)
    with pytest.raises(TypeError):
        listener.publish("wrong", [1, 2, 3])  # type: ignore[arg-type]
    for name in ("", "a\n", "x" * 256, 5):
        with pytest.raises(errors.StateError, match="printable"):
            listener.publish(name, weights())  # type: ignore[arg-type]
    with pytest.raises(errors.StateError, match="remote rights"):
        listener.publish("wrong", weights(), access=Access(0))


async def test_an_unknown_name_lists_the_known_ones(listener: Listener, session: Session) -> None:
    listener.publish("weights", weights())
    listener.publish("biases", weights())
    assert await session.regions() == ["biases", "weights"]
    with pytest.raises(errors.UnsupportedError, match="this session may use: biases, weights") as raised:
        await session.region("wieghts")
    assert raised.value.code == "no_such_region"
    with pytest.raises(errors.UnsupportedError, match="no_such_region"):
        await session.pull("wieghts")


async def test_unpublished_memory_is_refused_at_once(listener: Listener, session: Session) -> None:
    """Also to a session that has its key; the session continues."""
    listener.publish("weights", weights())
    remote = await session.region("weights")
    assert await session.read(remote[0])
    listener.unpublish("weights")
    with pytest.raises(errors.DeniedError):
        await session.read(remote[0])
    with pytest.raises(errors.UnsupportedError):
        await session.pull("weights")
    assert await session.regions() == []
    with pytest.raises(errors.UnsupportedError, match="no_such_region"):
        listener.unpublish("weights")


async def test_a_name_gets_new_memory(listener: Listener, session: Session) -> None:
    """The former memory is refused, and pull() looks the name up again."""
    first = listener.publish("weights", weights())
    former = await session.region("weights")
    assert numpy.array_equal(await session.pull("weights"), weights())
    listener.publish("weights", numpy.arange(3))
    assert first.closed
    assert (await session.pull("weights")).tolist() == [0, 1, 2]
    with pytest.raises(errors.DeniedError):
        await session.pull(former)
    first.close()  # does not end the name's new meaning
    assert await session.regions() == ["weights"]


async def test_pull_of_a_region_asks_the_publisher_nothing(listener: Listener, session: Session) -> None:
    """Only the look-up is a call: reading is one-sided."""
    decisions: list[bool] = []
    listener.publish("weights", weights(), allow=lambda principal: decisions.append(True) or True)
    remote = await session.region("weights")
    for _ in range(5):
        assert numpy.array_equal(await session.pull(remote), weights())
    assert len(decisions) == 1


async def test_replacing_costs_a_reader_nothing(listener: Listener, session: Session) -> None:
    """A reader by name keeps its link: it never reads memory that the name no longer has."""
    for number in range(20):
        listener.publish("weights", numpy.full(10, number))
        assert (await session.pull("weights")).tolist() == [number] * 10
    assert session.links == 1


async def test_watch_yields_the_version_and_each_change(listener: Listener, session: Session) -> None:
    """changed(), and new memory under the name; several changes at once may be one."""
    publication = listener.publish("weights", weights())
    versions = session.watch("weights")
    assert await anext(versions) == publication.version
    waiting = asyncio.ensure_future(anext(versions))
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.05)
    publication.changed()
    assert publication.changed() == publication.version
    assert await waiting <= publication.version
    again = listener.publish("weights", weights())
    seen = 0
    while seen < again.version:
        seen = await anext(versions)
    waiting = asyncio.ensure_future(anext(versions))
    listener.unpublish("weights")
    with pytest.raises(errors.UnsupportedError, match="no_such_region"):
        await waiting


async def test_watch_ends_after_its_time(listener: Listener, session: Session) -> None:
    listener.publish("weights", weights())
    versions = session.watch("weights", timeout_s=0.05)
    await anext(versions)
    with pytest.raises(TimeoutError):
        await anext(versions)


async def test_a_cancelled_watch_leaves_nothing_at_the_publisher(
    listener: Listener, session: Session
) -> None:
    publication = listener.publish("weights", weights())
    versions = session.watch("weights")
    await anext(versions)
    for _ in range(100):  # more than the limit of watches
        waiting = asyncio.ensure_future(anext(session.watch("weights")))
        assert await waiting
    waiting = asyncio.ensure_future(anext(versions))
    await until(lambda: bool(publication._waiting))
    waiting.cancel()
    await until(lambda: not publication._waiting)
    assert not listener._publisher._watches


async def test_the_number_of_watches_of_a_session_is_bounded(listener: Listener, session: Session) -> None:
    publication = listener.publish("weights", weights())
    version = publication.version
    watches = []
    for _ in range(64):
        versions = session.watch("weights")
        assert await anext(versions) == version
        watches.append(asyncio.ensure_future(anext(versions)))
    await until(lambda: len(publication._waiting) == 64)
    with pytest.raises(errors.StateError, match="64 watches"):
        await anext(session.watch("weights"))
    publication.changed()
    assert {await watch for watch in watches} == {publication.version}


async def test_a_closed_listener_publishes_nothing() -> None:
    async with verbena.listen("127.0.0.1:0") as listening:
        publication = listening.publish("weights", weights())
    assert publication.closed
    with pytest.raises(errors.ClosedError):
        listening.publish("weights", weights())
