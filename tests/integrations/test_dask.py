"""Dask by verbena://: a real cluster of processes on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator

import cloudpickle
import dask
import distributed
import numpy
import pytest
from distributed import Client, LocalCluster
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

from verbena.integrations import dask_frames
from verbena.integrations.dask import Comm
from verbena.transport import RemoteRegion

MiB = 1 << 20
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import the tests


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 5}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            protocol="verbena://",
            dashboard_address=None,
            worker_dashboard_address=None,
        ) as cluster,
        Client(cluster) as opened,
    ):
        yield opened


def workers(client: Client) -> list[str]:
    return sorted(client.scheduler_info()["workers"])


def wires(dask_worker: distributed.Worker) -> str:
    return str(dask_worker.batched_stream.comm.extra_info["wire"])


def test_a_cluster_of_processes_talks_by_shared_memory(client: Client) -> None:
    """Scheduler, workers and client have verbena:// addresses, and the best wire of one host."""
    assert client.scheduler.address.startswith("verbena://127.0.0.1:")
    assert all(address.startswith("verbena://") for address in workers(client))
    assert set(client.run(wires).values()) == {"shm"}
    assert len(set(client.run(os.getpid).values()) | {os.getpid()}) == 3


def test_many_small_tasks_return_their_answers(client: Client) -> None:
    """Messages of a few bytes, in batches, both ways."""
    futures = client.map(lambda number: number * number, range(200))
    assert client.gather(futures) == [number * number for number in range(200)]


def test_arrays_move_to_workers_between_them_and_back(client: Client) -> None:
    """Long frames are pulled: client to worker, worker to worker, worker to client; all bytes are right."""
    there, other = workers(client)
    array = numpy.random.default_rng(7).standard_normal(4 * MiB // 8)
    sent = client.scatter(array, workers=[there])
    doubled = client.submit(lambda values: values * 2, sent, workers=[other], pure=False)
    assert numpy.array_equal(doubled.result(), array * 2)
    kept = client.who_has([sent, doubled])
    assert other in kept[sent.key]  # it came from its peer


def test_an_array_that_came_can_be_written_to(client: Client) -> None:
    """As with Dask's own comms, for short frames and long ones."""
    for length in (10, 2 * MiB):
        array = client.submit(numpy.zeros, length, pure=False).result()
        array[:] = 1
        assert array.all()


def test_a_failing_task_tells_its_error(client: Client) -> None:
    def fail() -> None:
        raise ValueError("as it should")

    with pytest.raises(ValueError, match="as it should"):
        client.submit(fail, pure=False).result()


def test_a_killed_worker_is_noticed_and_its_work_done_again(client: Client) -> None:
    """SIGKILL amid tasks: the scheduler hears of it by the session, and another worker does them."""
    victim = workers(client)[0]
    kept = client.submit(lambda: 21, workers=[victim], allow_other_workers=True, pure=False)
    assert kept.result() == 21
    process = client.run(os.getpid, workers=[victim])[victim]
    os.kill(process, signal.SIGKILL)
    assert client.submit(lambda value: 2 * value, kept, pure=False).result(timeout=50) == 42
    client.wait_for_workers(2, timeout=50)  # the nanny starts another
    assert process not in client.run(os.getpid).values()


# Comms by themselves


async def echo(comm: Comm) -> None:
    try:
        while True:
            await comm.write(await comm.read())
    except CommClosedError:
        pass


async def test_a_comm_carries_messages_of_any_length() -> None:
    """None, short, around the limit of what is copied, and longer than a message of a session may be."""
    async with listen("verbena://127.0.0.1:0", echo) as listener:
        comm = await connect(listener.contact_address)
        for length in (0, 1, dask_frames.SHORT_BYTES, dask_frames.SHORT_BYTES + 1, 80 * MiB):
            data = numpy.arange(length, dtype="u1")
            await comm.write({"data": to_serialize(data)})
            back = await comm.read()
            assert numpy.array_equal(back["data"], data)
        assert comm.extra_info["wire"] == "shm"
        await comm.close()
        assert comm.closed()


async def test_what_was_written_before_closing_is_read() -> None:
    """The peer's farewell does not overtake its messages; after the last one the comm is closed."""
    served = asyncio.get_running_loop().create_future()

    async def read_all(comm: Comm) -> None:
        found = []
        try:
            while True:
                found.append(await comm.read())
        except CommClosedError:
            served.set_result(found)

    async with listen("verbena://127.0.0.1:0", read_all) as listener:
        comm = await connect(listener.contact_address)
        for number in range(100):
            await comm.write(number)
        await comm.close()
        assert await served == list(range(100))


async def test_a_reader_of_an_aborted_comm_is_told() -> None:
    """Both ends: nobody waits for ever."""
    ends: asyncio.Queue[Comm] = asyncio.Queue()

    async def keep(comm: Comm) -> None:
        await ends.put(comm)

    async with listen("verbena://127.0.0.1:0", keep) as listener:
        comm = await connect(listener.contact_address)
        peer = await ends.get()
        reading = asyncio.ensure_future(peer.read())
        comm.abort()
        with pytest.raises(CommClosedError, match="the session ended"):
            await reading
        with pytest.raises(CommClosedError, match="aborted"):
            await comm.write(1)


async def test_nobody_there_is_an_oserror_in_time() -> None:
    async with listen("verbena://127.0.0.1:0", echo) as listener:
        address = listener.contact_address
    with pytest.raises(OSError, match="Timed out trying to connect"):
        await connect(address, timeout=1)


async def test_certificates_of_dasks_are_refused_not_ignored() -> None:
    """Asking for encryption without certificates in the configuration fails before any byte is sent."""
    with pytest.raises(RuntimeError, match=r"verbena\.toml"):
        listen("verbena://127.0.0.1:0", echo, require_encryption=True)


# The message's form


def whole(frame: dask_frames.Frame) -> bytes:
    assert frame.data is not None
    return bytes(frame.data)


def test_short_frames_travel_in_the_message() -> None:
    frames = [memoryview(b""), memoryview(b"abc"), memoryview(bytes(1000))]
    assert [whole(frame) for frame in dask_frames.decode(dask_frames.encode(frames, lambda _: []))] == [
        bytes(frame) for frame in frames
    ]


def test_long_frames_are_lent() -> None:
    long = memoryview(bytes(dask_frames.SHORT_BYTES + 1))
    region = RemoteRegion(1, long.nbytes, 2, 3)
    first, second = dask_frames.decode(dask_frames.encode([long, memoryview(b"x")], lambda _: [region]))
    assert first.regions == (region,)
    assert first.data is None
    assert whole(second) == b"x"


@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: m + b"x", lambda m: m[:3], lambda m: b""])
def test_what_is_no_message_is_refused(change) -> None:
    message = dask_frames.encode([memoryview(b"abc")], lambda _: [])
    with pytest.raises(ValueError, match=r"message|bytes too many"):
        dask_frames.decode(change(message))
