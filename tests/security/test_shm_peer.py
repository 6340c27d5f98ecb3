"""What a hostile process of the same user gets over shm: nothing before a session, and afterwards no way to
write memory that it may only read, nor to map memory that was lent to others."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.rdma.link import connect_endpoints, make_end
from support.security.shm_peer import ATTACHED, HELLO, ShmPeer, gid_of, gid_of_listener, make_ring

import verbena
from verbena.transport import Listener, Region, Request
from verbena.verbs import Access, open_device

CONTENT = b"lent over shared memory"

# Runs in another process: reads a region, then tries to get write access to every mapping of shared memory.
# Prints the inodes of the arenas that it maps, by permission, and which attempts succeeded.
CLIENT = """
import asyncio, ctypes, errno, json, mmap, os, sys
import verbena
from verbena.transport import RemoteRegion

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

def mappings(name):
    for line in open("/proc/self/maps"):
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5].startswith("/memfd:verbena-" + name):
            first, _, last = parts[0].partition("-")
            yield parts[0], int(first, 16), int(last, 16), parts[1], int(parts[4])

def attempts(span, first, last):
    yield "mprotect", lambda: libc.mprotect(first, last - first, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    file = os.open(f"/proc/self/map_files/{span}", os.O_RDWR)
    yield "map", lambda: mmap.mmap(file, last - first, mmap.MAP_SHARED, mmap.PROT_WRITE)
    yield "write", lambda: os.pwrite(file, b"overwritten", 0)
    yield "punch", lambda: libc.fallocate(file, 3, ctypes.c_long(0), ctypes.c_long(4096)) == 0
    yield "truncate", lambda: os.ftruncate(file, 0) or True
    os.close(file)

async def main():
    session = await verbena.connect(sys.argv[1], wire="shm")
    for text in sys.argv[2:]:
        await session.read(RemoteRegion.from_bytes(bytes.fromhex(text)))
    done = []
    for span, first, last, permissions, inode in [*mappings("arena"), *mappings("regions")]:
        if permissions[1] == "w":
            continue
        for name, attempt in attempts(span, first, last):
            try:
                if attempt():
                    done.append(name)
            except OSError as error:
                assert error.errno in (errno.EPERM, errno.EACCES), error
    arenas = {kind: [inode for *_, permissions, inode in mappings("arena") if permissions[:2] == kind]
              for kind in ("r-", "rw")}
    print(json.dumps({"done": done, "arenas": arenas, "id": session.id}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await session.close()

asyncio.run(main())
"""


def echo(request: Request) -> bytes:
    return request.payload


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}) as listening:
        yield listening


@contextlib.asynccontextmanager
async def client(listener: Listener, *regions: Region) -> AsyncIterator[dict[str, Any]]:
    """Another process with a session: what it reports, while it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CLIENT,
        listener.address,
        *(region.remote.to_bytes().hex() for region in regions),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(await asyncio.wait_for(process.stdout.readline(), 20))
    finally:
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 20) == 0


def inode_of(memory: memoryview) -> int:
    """The inode of the arena that contains this memory."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, inode, *_ = line.split()
        first, _, last = span.partition("-")
        if int(first, 16) <= address < int(last, 16):
            return int(inode)
    raise AssertionError


def allocate(listener: Listener, access: Access, owner: int | None = None) -> Region:
    session = listener.node._sessions[owner] if owner is not None else None
    region = listener.node.allocate(len(CONTENT), access=access, session=session)
    memoryview(region)[:] = CONTENT
    return region


async def test_memory_that_is_only_read_cannot_be_written_by_the_peer(listener: Listener) -> None:
    """Neither through its mapping nor through another descriptor of the same memory, even as root."""
    region = allocate(listener, Access.REMOTE_READ)
    async with client(listener, region) as report:
        assert report["done"] == []
        assert inode_of(region) in report["arenas"]["r-"]
        assert inode_of(region) not in report["arenas"]["rw"]
        assert bytes(region) == CONTENT


async def test_a_peer_maps_no_memory_that_was_lent_to_another_session(listener: Listener) -> None:
    """Regions of one session, and regions that nobody has resolved, are in arenas that others do not have."""
    shared = allocate(listener, Access.REMOTE_READ)
    unused = allocate(listener, Access.ALL)
    async with client(listener, shared) as first:
        private = allocate(listener, Access.ALL, first["id"])
        async with client(listener, shared) as second:
            for report in (first, second):
                mapped = {*report["arenas"]["r-"], *report["arenas"]["rw"]}
                assert inode_of(shared) in mapped
                assert inode_of(private) not in mapped
                assert inode_of(unused) not in mapped


async def test_memory_of_one_session_shares_no_arena_with_others(listener: Listener) -> None:
    """A peer maps whole arenas, so what it may write lies in an arena of its own."""
    async with client(listener) as first, client(listener) as second:
        regions = [allocate(listener, Access.ALL, report["id"]) for report in (first, second)]
        regions += [allocate(listener, Access.REMOTE_READ, first["id"]), allocate(listener, Access.ALL)]
        inodes = [inode_of(region) for region in regions]
        assert len(set(inodes)) == len(inodes)


# A peer that speaks the protocol below the API


async def test_a_link_gives_nothing(listener: Listener) -> None:
    """Before a session exists, a process of the same user receives an identity: no descriptor, no address."""
    allocate(listener, Access.ALL)

    def attack() -> None:
        with ShmPeer(gid_of_listener(listener)) as peer:
            greeting = peer.receive()
            assert greeting is not None
            assert (greeting.kind, len(greeting.payload), greeting.descriptors) == (HELLO, 24, [])
            peer.hello()
            assert peer.receive() is None

    await asyncio.to_thread(attack)


def attach_to(
    gid: bytes, number: int, *, claimed: bytes | None = None, from_qp: int = 7
) -> list[tuple[int, int]]:
    """The kinds and arguments of the answers; (0, 0): the link was closed."""
    with ShmPeer(gid, claimed=claimed) as peer:
        assert peer.receive() is not None
        peer.hello()
        peer.attach(number, from_qp=from_qp)
        found = []
        try:
            while (message := peer.receive()) is not None:
                found.append((message.kind, message.argument))
        except EOFError:
            found.append((0, 0))
        return found


async def test_attaching_to_queue_pairs_gives_no_memory(listener: Listener) -> None:
    """A queue pair that has a peer refuses. One that the program has not connected yet may take the ring, as
    verbs need it, but the peer receives neither keys nor memory before the program chooses it."""
    async with verbena.connect(listener.address, wire="shm") as session:
        there = listener.node._sessions[session.id]
        assert await session.call("echo", b"the link is up at both ends")
        assert there._link is not None
        wire = listener.node.wires["shm"]
        gid, idle = gid_of_listener(listener), wire.create_qp()
        allocate(listener, Access.ALL)
        assert await asyncio.to_thread(attach_to, gid, there._link.qp.number) == [(ATTACHED, 1)]
        assert await asyncio.to_thread(attach_to, gid, 0x123456) == [(ATTACHED, 1)]
        assert await asyncio.to_thread(attach_to, gid, idle.number) == [(ATTACHED, 0)]
        wire.close_qp(idle)
        assert await session.call("echo", b"undisturbed") == b"undisturbed"


def test_a_gid_counts_only_for_the_process_at_its_address() -> None:
    """A process that claims the GID of another one cannot take its place as the peer of a queue pair, however
    early it comes: its link is closed, and the program reaches the process that it has named."""
    with contextlib.ExitStack() as stack:
        victim, named = (make_end(stack.enter_context(open_device("shm"))) for _ in range(2))
        secret = victim.region(CONTENT)
        claimed = gid_of(named.context)
        found = attach_to(gid_of(victim.context), victim.qp.number, claimed=claimed, from_qp=named.qp.number)
        assert found == [(0, 0)]
        connect_endpoints(victim, named)
        named.qp.sync.read(named.region(len(CONTENT)), secret.remote)


def test_a_ring_that_was_not_requested_is_ignored() -> None:
    """An answer without a request binds no queue pair."""
    with contextlib.ExitStack() as stack:
        victim, named = (make_end(stack.enter_context(open_device("shm"))) for _ in range(2))
        with ShmPeer(gid_of(victim.context), claimed=gid_of(named.context)) as peer:
            peer.hello()
            ring = make_ring()
            peer.send(ATTACHED, from_qp=named.qp.number, to_qp=victim.qp.number, descriptors=(ring,))
            os.close(ring)
            connect_endpoints(victim, named)
            assert {message.kind for message in peer.receive_all()} == {HELLO}


def test_a_hostile_peer_cannot_block_the_doorbell(listener_process: str) -> None:
    """A session of a process that was stopped, and whose eventfds block, delays no other session."""
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(verbena.sync.connect(listener_process, wire="shm"))
        hostile = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", BLOCKER, listener_process], stdout=subprocess.PIPE)
        )
        stack.callback(hostile.kill)
        assert hostile.stdout is not None
        assert hostile.stdout.readline() == b"ready\n"
        hostile.send_signal(signal.SIGSTOP)
        until = time.monotonic() + 2.5  # two heartbeats, which the node sends to the stopped process
        while time.monotonic() < until:
            assert honest.sync.call("echo", b"hello", timeout_s=2) == b"hello"


# Sends calls without reading replies, makes every eventfd that it has a blocking one and keeps it full.
BLOCKER = """
import asyncio, fcntl, os, struct, sys, threading
import verbena

def fill(fd):
    while True:
        os.write(fd, struct.pack("=Q", 2**64 - 2))

async def main():
    session = await verbena.connect(sys.argv[1], wire="shm")
    await session.call("echo", b"hello")
    for name in os.listdir("/proc/self/fd"):
        try:
            kind = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if kind == "anon_inode:[eventfd]":
            fcntl.fcntl(int(name), fcntl.F_SETFL, 0)
            threading.Thread(target=fill, args=(int(name),), daemon=True).start()
    print("ready", flush=True)
    while True:
        asyncio.ensure_future(session.call("echo", b"x" * 1000))
        await asyncio.sleep(0.001)

asyncio.run(main())
"""


@pytest.fixture
def listener_process() -> Iterator[str]:
    """The address of a node that is a process of its own."""
    command = [sys.executable, "-m", "support.node_main"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        try:
            assert process.wait(20) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            raise
