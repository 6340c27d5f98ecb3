"""The store over sessions: one-sided reads, messages, and memory that changes meanwhile."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from support.kv.store import Store
from support.leaks import descriptors

from verbena.kv import AsyncClient, Client, CommandError
from verbena.kv.frontends.sessions import SessionFrontend
from verbena.kv.server.server import Server
from verbena.transport import Node


@pytest.fixture(params=["shm", "iwarp"])
def client(store: Store, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(store.sessions, wire=request.param) as client:
        client.execute("FLUSHALL")
        yield client


def test_a_get_is_one_sided(client: Client) -> None:
    """A stored value is read from the server's memory, and a missing one is detected there."""
    client.set("key", "value")
    assert client.get("key") == b"value"
    assert client.get("nothing") is None
    assert (client.stats().one_sided, client.stats().by_message) == (2, 0)


def test_a_get_needs_no_server(store: Store) -> None:
    """On one host the memory of a stopped server can still be read."""
    with Client(store.sessions, wire="shm") as client:
        client.set("key", "value")
        assert client.get("key") == b"value"
        # Not stopped(), which waits: a READ comes after messages that the session sends by timer meanwhile.
        os.kill(store.process.pid, signal.SIGSTOP)
        try:
            assert client.get("key") == b"value"
            assert client.get("nothing") is None
            assert client.mget(["key", "nothing"]) == [b"value", None]
        finally:
            os.kill(store.process.pid, signal.SIGCONT)
        assert client.stats().by_message == 0
        assert client.set("key", "other")
        assert client.get("key") == b"other"


@pytest.mark.parametrize("size", [0, 1, 100, 4000, 4096, 70_000, 3 << 20])
def test_values_of_any_size_come_back(client: Client, size: int) -> None:
    """The first request of a long value computes its checksum; from then on it is read one-sided."""
    value = os.urandom(size)
    client.set("key", value)
    assert [client.get("key") for _ in range(3)] == [value] * 3
    buffer = bytearray(size + 1)
    assert client.get_into("key", buffer) == size
    assert buffer[:size] == value
    assert client.stats().by_message <= 1
    if size:
        with pytest.raises(ValueError, match="the buffer"):
            client.get_into("key", bytearray(size - 1))


def test_changes_are_seen_at_once(client: Client) -> None:
    """A read after a write's reply returns what was written, deleted, renewed or flushed."""
    for round_number in range(200):
        client.set("key", f"value {round_number}" * (round_number % 7 + 1))
        assert client.get("key") == (f"value {round_number}" * (round_number % 7 + 1)).encode()
    client.delete("key")
    assert client.get("key") is None
    client.set("key", "again")
    client.execute("APPEND", "key", "!")
    assert client.get("key") == b"again!"
    assert client.incr("count", 5) == 5
    assert client.get("count") == b"5"


def test_many_keys_are_found_while_the_index_grows(client: Client) -> None:
    """Segments split and the directory doubles during the reads."""
    keys = [f"key {i}" for i in range(20_000)]
    for start in range(0, len(keys), 500):
        some = keys[start : start + 500]
        client.mset({key: key * 2 for key in some})
        assert client.get(some[-1]) == (some[-1] * 2).encode()
        assert client.get(keys[start // 2]) == (keys[start // 2] * 2).encode()
    assert client.mget(keys) == [(key * 2).encode() for key in keys]
    assert client.stats().by_message < len(keys) // 10


def test_what_is_longer_than_a_message(client: Client) -> None:
    """Commands and replies are sent in parts, in order, and the replies after them are correct."""
    value = os.urandom(1 << 20) * 70  # a message is 64 MiB at most
    client.set("long", value)
    assert client.get("long") == value
    replies = client.run([["GET", "long"], ["SET", "short", 1], ["MGET", "long", "long"], ["GET", "short"]])
    assert replies == [value, "OK", [value, value], b"1"]
    assert client.incr("short") == 2


def test_mget_of_short_and_long_values_together(client: Client) -> None:
    """Lengths that the guess misses, some longer than the room of a batch: each value is complete."""
    lengths = [0, 1, 100, 5_000, 3_000_000, 70_000, 20, 2_000_000, 1_000_000, 64] * 20
    values = {f"{i}": bytes([i % 251]) * length for i, length in enumerate(lengths)}
    for key, value in values.items():
        client.set(key, value)
    for keys in (list(values), list(reversed(values)), [*values, "nothing", *values]):
        assert client.mget(keys) == [values.get(key) for key in keys]
    short = [key for key, value in values.items() if len(value) < 10_000]
    before = client.stats().by_message
    for _ in range(3):
        assert client.mget(short) == [values[key] for key in short]
    assert client.stats().by_message == before  # all of them by READs


def test_a_key_that_expires_is_gone(client: Client) -> None:
    """The server decides about expiry, even if clocks differ."""
    client.set("key", "value", px=800)
    assert client.get("key") == b"value"
    deadline = time.monotonic() + 5
    while client.get("key") is not None:
        assert time.monotonic() < deadline
    assert client.execute("EXISTS", "key") == 0


def test_no_read_is_torn(store: Store) -> None:
    """A read always returns one complete stored value, while another client replaces it continuously."""
    patterns = [bytes([i]) * (50 + 37 * i) for i in range(1, 60)]
    stop = threading.Event()
    with Client(store.sessions) as writer, Client(store.sessions) as reader:
        writer.set("torn", patterns[0])

        def write() -> None:
            while not stop.is_set():
                for pattern in patterns:
                    writer.set("torn", pattern)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(5000):
                value = reader.get("torn")
                assert value is not None
                assert value == value[:1] * (50 + 37 * value[0])
        finally:
            stop.set()
            thread.join()
        assert reader.stats().one_sided > 0


def test_no_long_read_is_torn(store: Store) -> None:
    """As above, for values that are read directly into the caller's buffer and checksummed during the
    copy."""
    stop = threading.Event()
    with Client(store.sessions, wire="shm") as writer, Client(store.sessions, wire="shm") as reader:
        patterns = [bytes([i]) * (20_000 + 5_000 * i) for i in range(1, 20)]
        writer.set("torn", patterns[0])

        def write() -> None:
            while not stop.is_set():
                for pattern in patterns:
                    writer.set("torn", pattern)
                    writer.execute("GET", "torn")  # which computes its checksum

        thread = threading.Thread(target=write)
        thread.start()
        buffer = bytearray(200_000)
        try:
            for _ in range(1000):
                length = reader.get_into("torn", buffer)
                assert length == 20_000 + 5_000 * buffer[0]
                assert buffer.count(buffer[0], 0, length) == length
        finally:
            stop.set()
            thread.join()
        assert reader.stats().one_sided > 0


def test_errors_are_raised(client: Client) -> None:
    client.set("key", "text")
    with pytest.raises(CommandError, match="not an integer"):
        client.incr("key")
    replies = client.run([["SET", "a", "1"], ["INCR", "key"], ["GET", "a"]])
    assert replies[0] == "OK"
    assert isinstance(replies[1], CommandError)
    assert replies[2] == b"1"


def test_flushed_keys_are_not_read_any_more(client: Client) -> None:
    client.mset({f"key {i}": "value" for i in range(1000)})
    assert client.get("key 7") == b"value"
    client.execute("FLUSHALL")
    assert client.get("key 7") is None


def test_a_client_may_refuse_to_read_by_itself(store: Store) -> None:
    with Client(store.sessions, one_sided=False) as client:
        client.set("key", "value")
        assert client.get("key") == b"value"
        assert (client.stats().one_sided, client.stats().by_message) == (0, 1)


async def test_asyncio(store: Store) -> None:
    async with AsyncClient(store.sessions) as client:
        assert await client.set("key", "value")
        assert await client.get("key") == b"value"
        assert await client.mget(["key", "nothing"]) == [b"value", None]
        assert await client.run([["SET", "n", 1], ["INCR", "n"]]) == ["OK", 2]
        assert not await client.set("key", "other", nx=True)
        with pytest.raises(CommandError, match="not an integer"):
            await client.execute("INCR", "key")
        assert await client.delete("key") == 1
        assert client.stats().one_sided == 3


async def test_what_is_longer_than_a_message_by_asyncio(store: Store) -> None:
    async with AsyncClient(store.sessions) as client:
        value = os.urandom(1 << 20) * 70
        assert await client.set("long", value)
        assert await client.run([["MGET", "long", "long"], ["STRLEN", "long"]]) == [
            [value, value],
            len(value),
        ]


def test_a_store_that_is_closed_leaves_nothing_open() -> None:
    """The node owns the memory, and the frontend refers to both, so they could keep each other alive."""

    def once() -> None:
        with Node() as node:
            gateway = SessionFrontend(node)
            server = Server(memory=gateway.memory)
            gateway.open(server)
            server.start()
            server.close()

    once()
    gc.collect()  # what other tests have left
    before = descriptors()
    for _ in range(3):
        once()
    assert descriptors() == before
