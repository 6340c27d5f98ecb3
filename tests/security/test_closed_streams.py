"""Streams of sessions that the store has closed, and session clients that do not acknowledge replies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from support.kv.kv_store import Store, running
from support.rdma.link import wait_until

from verbena.errors import ClosedError
from verbena.kv import AsyncClient, Client


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running("--session-listen-port", "0") as started:
        yield started


@pytest.fixture
def admin(store: Store) -> Iterator[redis.Redis]:
    with store.client(decode_responses=True) as connected:
        connected.flushall()
        yield connected


def sessions(store: Store) -> str:
    return store.banner.split("  sessions")[1].split()[0]


def kill(admin: redis.Redis, name: str) -> None:
    (number,) = [row["id"] for row in admin.client_list() if row["name"] == name]
    assert admin.client_kill_filter(_id=number) == 1
    wait_until(lambda: all(row["name"] != name for row in admin.client_list()), "the client to be closed")


def test_a_killed_stream_begins_no_other_one(store: Store, admin: redis.Redis) -> None:
    """Its next command would run in database 0, as the user `default` and outside of its transaction."""
    with Client(sessions(store), database=3) as client:
        client.execute("CLIENT", "SETNAME", "victim")
        kill(admin, "victim")
        for _ in range(2):
            with pytest.raises(ClosedError, match="the store has closed the stream"):
                client.set("key", "value")
        with Client(client.session) as other:  # the session and its other streams continue
            assert other.execute("PING") == "PONG"
    assert admin.exists("key") == 0
    assert admin.info("keyspace") == {}


async def test_a_killed_stream_fails_for_asyncio(store: Store, admin: redis.Redis) -> None:
    async with AsyncClient(sessions(store)) as client:
        await client.execute("CLIENT", "SETNAME", "victim")
        kill(admin, "victim")
        with pytest.raises(ClosedError, match="the store has closed the stream"):
            await client.set("key", "value")
        with pytest.raises(ClosedError):
            await client._fetch_layout()


def test_a_waiting_command_of_a_killed_stream_fails(store: Store, admin: redis.Redis) -> None:
    """It does not wait for ever."""
    with Client(sessions(store)) as client:
        client.execute("CLIENT", "SETNAME", "victim")
        kill_it = [sys.executable, "-c", KILL_BLOCKED, str(store.port)]
        with subprocess.Popen(kill_it) as killer:
            with pytest.raises(ClosedError):
                client.execute("BLPOP", "nothing", 0)
            assert killer.wait(20) == 0


KILL_BLOCKED = """
import redis, sys
with redis.Redis(port=int(sys.argv[1]), decode_responses=True) as admin:
    while not (rows := [row for row in admin.client_list() if "b" in row["flags"]]):
        pass
    assert admin.client_kill_filter(_id=rows[0]["id"]) == 1
"""


# Sends requests, each in a message of its own, and stops without taking a reply.
STOPPED = """
import asyncio, os, signal, sys
import verbena
address, requests, wire = sys.argv[1], int(sys.argv[2]), sys.argv[3]
async def main():
    stream = (7).to_bytes(4, "little")
    payload = stream + b"*2\\r\\n$3\\r\\nGET\\r\\n$3\\r\\nbig\\r\\n"
    async with verbena.connect(address, wire=wire) as session:
        calls = [asyncio.ensure_future(session.call("kv", payload)) for _ in range(requests)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        print("sent", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        total = sum(map(len, await asyncio.gather(*calls)))
        while total < requests * VALUE:
            total += len(await session.call("kv.receive", stream))
        print(total, flush=True)
asyncio.run(main())
"""
VALUE_BYTES = 4 << 20


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
def test_replies_for_a_stopped_client_take_bounded_memory(
    store: Store, admin: redis.Redis, wire: str
) -> None:
    """A session whose peer acknowledges nothing holds 16 MiB of replies and those of the last turn."""
    admin.set("big", "x" * VALUE_BYTES)
    reply = len(f"${VALUE_BYTES}\r\n") + VALUE_BYTES + 2
    requests = 100
    before = _resident_bytes(store)
    program = STOPPED.replace("VALUE", str(reply))
    command = [sys.executable, "-c", program, sessions(store), str(requests), wire]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "sent\n"
            os.waitid(os.P_PID, client.pid, os.WSTOPPED | os.WNOWAIT)
            until = time.monotonic() + 1
            while time.monotonic() < until:
                assert admin.ping()
                assert _resident_bytes(store) - before < 80 << 20
            os.kill(client.pid, signal.SIGCONT)
            assert client.stdout.readline() == f"{requests * reply}\n"
            assert client.wait(20) == 0
        finally:
            client.kill()


def _resident_bytes(store: Store) -> int:
    return int(Path(f"/proc/{store.process.pid}/statm").read_text().split()[1]) * 4096
