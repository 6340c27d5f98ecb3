"""Clients of the store whose commands time out, are cancelled, or have lost their store."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.kv.kv_store import running
from support.kv.store import Store
from support.stopped import stopped

from verbena.errors import BrokenLinkError, ClosedError, TimedOutError
from verbena.kv import AsyncClient, Client


def test_a_long_command_that_was_interrupted(store: Store) -> None:
    """Its remaining parts are missing, and nothing that is sent later is taken for them."""
    with Client(store.sessions, database=3) as client:
        client.set("key", "value")
        with stopped(store.process.pid), pytest.raises(TimedOutError):
            client.execute("SET", "key", bytes(130 << 20), timeout_s=0.2)
        assert client.execute("PING") == "PONG"
        assert client.execute("GET", "key") == b"value"


async def test_a_long_command_that_was_cancelled(store: Store) -> None:
    async with AsyncClient(store.sessions, database=3) as client:
        assert await client.set("key", "value")
        with stopped(store.process.pid), pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.execute("PING"), 0.1)
        assert await client.execute("PING") == "PONG"
        with stopped(store.process.pid), pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.set("key", bytes(130 << 20)), 0.5)
        assert await client.execute("PING") == "PONG"
        assert await client.execute("GET", "key") == b"value"


def test_a_late_reply_is_not_taken_for_the_next_one(store: Store) -> None:
    """A command that blocks times out: the store forgets it, and what it would have taken stays."""
    with Client(store.sessions) as client, Client(store.sessions) as other:
        with pytest.raises(TimedOutError):
            client.execute("BLPOP", "queue", 0, timeout_s=0.1)
        deadline = time.monotonic() + 10
        while b"blocked_clients:0" not in other.execute("INFO", "clients"):
            assert time.monotonic() < deadline
        other.execute("RPUSH", "queue", "late")
        assert client.execute("ECHO", "mine") == b"mine"
        assert other.execute("DEL", "queue") == 1


async def test_a_late_reply_is_not_taken_for_the_next_one_by_asyncio(store: Store) -> None:
    async with AsyncClient(store.sessions) as client, AsyncClient(store.sessions) as other:
        with pytest.raises(TimedOutError):
            await client.execute("BLPOP", "queue", 0, timeout_s=0.1)
        assert await client.execute("ECHO", "mine") == b"mine"
        await other.execute("RPUSH", "queue", "late")
        assert await other.execute("DEL", "queue") == 1


def test_a_client_whose_state_would_be_lost_is_closed(store: Store) -> None:
    """After a timeout the stream begins anew: not in the midst of a transaction, nor in another database."""
    for words in (("MULTI",), ("select", 2), ("CLIENT", "SETNAME", "one")):
        with Client(store.sessions) as client:
            client.execute(*words)
            with stopped(store.process.pid), pytest.raises(TimedOutError):
                client.execute("PING", timeout_s=0.05)
            with pytest.raises(ClosedError, match="changed the connection's state"):
                client.set("key", "value")


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
def test_every_operation_obeys_the_timeout(store: Store, wire: str) -> None:
    """Commands, one-sided reads over a network, and the opening of a client."""
    with Client(store.sessions, wire=wire, timeout_s=0.3) as client:
        client.set("key", "value")
        assert client.get("key") == b"value"
        operations = [
            lambda: client.set("key", "other"),
            lambda: client.execute("PING"),
            lambda: client.run([["PING"], ["PING"]]),
            lambda: client.mset({"a": 1}),
            lambda: client.delete("a"),
            lambda: client.pipeline().incr("n").execute(),
        ]
        if wire == "iwarp":
            operations += [lambda: client.get("key"), lambda: client.mget(["key"])]
        with stopped(store.process.pid):
            for operation in operations:
                start = time.monotonic()
                with pytest.raises(TimedOutError):
                    operation()
                assert 0.2 < time.monotonic() - start < 2
        deadline = time.monotonic() + 20
        while client.execute("PING", timeout_s=10) != "PONG":
            assert time.monotonic() < deadline


def test_a_killed_store_is_reported_as_it_is() -> None:
    """Not as a client that was closed: the program can see that it must connect anew."""
    with running("--session-listen-port", "0") as store:
        address = store.banner.split("  sessions")[1].split()[0]
        with Client(address, timeout_s=5) as client:
            client.set("key", "value")
            store.process.kill()
            store.process.wait()
            with pytest.raises((BrokenLinkError, TimedOutError)) as raised:
                client.set("key", "other")
            assert not isinstance(raised.value, ClosedError)
