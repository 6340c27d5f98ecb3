"""Incoming blobs: in order, at offsets, resumed, followed."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.registry import digests
from verbena.registry import incoming as incoming_module
from verbena.registry.blobs import BlobStore
from verbena.registry.extents import Extents
from verbena.registry.incoming import IncomingFailed

CONTENT = random.Random(8).randbytes(3_000_000)


@pytest.fixture
def store(tmp_path: Path):
    opened = BlobStore(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
async def test_appended_bytes_are_hashed_as_they_arrive(store: BlobStore, algorithm: str) -> None:
    incoming = store.incoming(algorithm=algorithm)
    for start in range(0, len(CONTENT), 700_000):
        part = CONTENT[start : start + 700_000]
        await incoming.append([part[:10], b"", part[10:]])
    assert await incoming.digest(algorithm) == digests.of(CONTENT, algorithm)
    assert incoming.path.read_bytes() == CONTENT
    incoming.close()


async def test_another_algorithm_reads_the_file_again(store: BlobStore) -> None:
    incoming = store.incoming()
    await incoming.append([CONTENT])
    assert await incoming.digest("sha512") == digests.of(CONTENT, "sha512")
    assert await incoming.digest("sha256") == digests.of(CONTENT)
    incoming.close()


async def test_a_peer_that_changes_a_piece_after_it_was_written_changes_the_digest_of_nothing(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of an untrusted blob is that of the file's bytes."""
    write_all = incoming_module._write_all

    def write_then_change(fd: int, pieces: list[bytearray], offset: int) -> int:
        end = write_all(fd, pieces, offset)
        pieces[0][:] = bytes(len(pieces[0]))
        return end

    monkeypatch.setattr(incoming_module, "_write_all", write_then_change)
    incoming = store.incoming(size=len(CONTENT))
    incoming.untrusted = True
    for start in range(0, len(CONTENT), 700_000):
        await incoming.write_at(start, bytearray(CONTENT[start : start + 700_000]))
    assert incoming.path.read_bytes() == CONTENT
    assert await incoming.digest("sha256") == digests.of(CONTENT)
    incoming.close()


async def test_ranges_in_any_order_from_several_tasks(store: BlobStore) -> None:
    """Each is hashed in order, from memory or from the file."""
    incoming = store.incoming(size=len(CONTENT))
    starts = list(range(0, len(CONTENT), 10_007))
    random.Random(1).shuffle(starts)

    async def feed(own: list[int]) -> None:
        for start in own:
            buffer = bytearray(CONTENT[start : start + 10_007])
            await incoming.write_at(start, memoryview(buffer))
            buffer[:] = bytes(len(buffer))  # it is ours again

    await asyncio.gather(*(feed(starts[task::5]) for task in range(5)))
    assert incoming.gaps() == []
    assert await incoming.digest("sha256") == digests.of(CONTENT)
    incoming.close()


async def test_a_range_past_the_end_is_rejected(store: BlobStore) -> None:
    incoming = store.incoming(size=10)
    with pytest.raises(ValueError, match="past the end"):
        await incoming.write_at(8, b"abc")
    assert incoming.gaps() == [(0, 10)]
    incoming.close()


async def test_a_new_process_continues_the_file(store: BlobStore) -> None:
    first = store.incoming("one")
    await first.append([CONTENT[:1_000_001]])
    await first.settle()
    first.close()
    again = store.incoming("one")
    assert again.received == 1_000_001
    await again.append([CONTENT[1_000_001:]])
    assert await again.digest("sha256") == digests.of(CONTENT)
    again.close()


async def test_a_reader_follows_arriving_bytes(store: BlobStore) -> None:
    incoming = store.incoming(size=len(CONTENT))

    async def follow() -> bytes:
        data = b""
        while len(data) < len(CONTENT):
            there = await incoming.arrived(len(data))
            data += incoming.read(len(data), there - len(data))
        return data

    readers = [asyncio.create_task(follow()) for _ in range(3)]
    for start in range(0, len(CONTENT), 300_000):
        await incoming.append([CONTENT[start : start + 300_000]])
        await asyncio.sleep(0)
    await incoming.settle()
    assert await asyncio.gather(*readers) == [CONTENT] * 3
    incoming.close()


async def test_a_reader_gets_the_failure(store: BlobStore) -> None:
    incoming = store.incoming(size=10)
    reader = asyncio.create_task(incoming.arrived(0))
    await asyncio.sleep(0)
    incoming.fail(OSError("the peer is gone"))
    with pytest.raises(IncomingFailed, match="the peer is gone"):
        await reader
    incoming.close()


async def test_a_full_disk_fails_the_next_call_and_the_rest_can_be_sent_again(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a worker is raised once to the producer, which continues behind the written bytes."""
    incoming = store.incoming()
    await incoming.append([CONTENT[:1000]])
    await incoming.settle()
    with monkeypatch.context() as patch:
        patch.setattr("verbena.registry.incoming._write_all", _full)
        with pytest.raises(OSError, match="No space"):  # noqa: PT012
            for start in range(1000, 2_000_000, 100_000):
                await incoming.append([CONTENT[start : start + 100_000]])
            await incoming.settle()
    assert (incoming.received, incoming.end, incoming.path.stat().st_size) == (1000, 1000, 1000)
    await incoming.append([CONTENT[1000:]])
    assert await incoming.digest("sha256") == digests.of(CONTENT)
    incoming.close()


async def test_close_waits_for_queued_batches(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor that is closed during a write could already belong to another file."""
    held = threading.Event()
    real = incoming_module._write_all

    def slow(*arguments: object) -> int:
        held.wait(30)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(incoming_module, "_write_all", slow)
    incoming = store.incoming()
    await incoming.append([b"hello"])
    incoming.close()
    assert incoming.fileno() >= 0
    held.set()
    await incoming.settle()
    assert (incoming.fileno(), incoming.path.read_bytes()) == (-1, b"hello")


async def test_a_producer_waits_for_a_slow_disk(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    real = incoming_module._write_all

    def slow(*arguments: object) -> int:
        held.wait(30)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(incoming_module, "_write_all", slow)
    incoming = store.incoming()
    for start in range(0, 500, 100):
        await incoming.append([CONTENT[start : start + 100]], ahead=500)
    sixth = asyncio.create_task(incoming.append([CONTENT[500:]], ahead=500))
    await asyncio.sleep(0)
    assert not sixth.done()
    held.set()
    await sixth
    assert await incoming.digest("sha256") == digests.of(CONTENT)
    incoming.close()


async def test_many_blobs_share_the_workers(store: BlobStore) -> None:
    """More blobs than workers receive batches at once."""

    async def feed(number: int) -> bool:
        content = CONTENT[number * 1000 : number * 1000 + 200_000]
        incoming = store.incoming()
        for start in range(0, len(content), 1700):
            await incoming.append([content[start : start + 1700]], ahead=5000)
        found = await incoming.digest("sha256")
        incoming.close()
        return found == digests.of(content)

    assert all(await asyncio.gather(*(feed(number) for number in range(30))))


def _full(*arguments: object) -> int:
    raise OSError(28, "No space left on device")


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12))))
def test_extents_are_a_set_of_bytes(stretches: list[tuple[int, int]]) -> None:
    extents, model = Extents(), set[int]()
    for start, length in stretches:
        extents.add(start, start + length)
        model |= set(range(start, start + length))
        assert extents.prefix == next(n for n in range(100) if n not in model)
        missing = {byte for a, b in extents.gaps(72) for byte in range(a, b)}
        assert missing == set(range(72)) - model
