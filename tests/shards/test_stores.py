"""The map stores, SQLite and a real etcd with the same tests: swaps, watches, leases."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import at_once
from support.etcd import ETCD, etcd, etcd_process
from support.stopped import stopped

from verbena.errors import AddressError, BusyError, StateError, TimedOutError
from verbena.shards.cluster_map import ClusterMap, Member
from verbena.shards.stores import MapStore, change, open_store

A, B = "a" * 40, "b" * 40
PROCESSES: dict[str, int] = {}  # of etcd, by address


@pytest.fixture(scope="module")
def etcd_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("etcd")
    with etcd(folder) as address:
        PROCESSES[address] = etcd_process(folder)
        yield address


@pytest.fixture(params=["sqlite", "etcd"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/map.db"
    if ETCD is None:
        pytest.skip("etcd is not installed (apt-get install etcd-server)")
    return f"etcd://{request.getfixturevalue('etcd_address')}/{tmp_path.name}-{time.monotonic_ns()}"


@pytest.fixture
async def store(url: str) -> AsyncIterator[MapStore]:
    found = open_store(url)
    yield found
    await found.close()


def member(id: str) -> Member:
    return Member(id, "127.0.0.1", 7000, "127.0.0.1:7001")


async def test_a_swap_needs_the_current_revision(store: MapStore, url: str) -> None:
    """The second of two swaps fails and changes nothing."""
    empty = await store.load()
    assert (empty.revision, empty.map) == (0, ClusterMap())
    first = await store.compare_and_swap(0, ClusterMap().meet(member(A)))
    other = open_store(url)
    with pytest.raises(BusyError):
        await other.compare_and_swap(0, ClusterMap().meet(member(B)))
    assert await other.load() == first
    second = await other.compare_and_swap(first.revision, first.map.meet(member(B)))
    assert second.revision > first.revision
    assert (await store.load()).map.members.keys() == {A, B}
    await other.close()


@contextlib.contextmanager
def held_up(url: str) -> Iterator[None]:
    """Blocks all changes: etcd is stopped, the file is locked by another process."""
    scheme, _, place = url.partition("://")
    if scheme == "sqlite":
        with contextlib.closing(sqlite3.connect(place, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
        return
    with stopped(PROCESSES[place.partition("/")[0]]):
        yield


async def test_a_swap_that_cannot_begin_in_time_is_never_made(store: MapStore, url: str) -> None:
    """Neither then nor later; with enough time it succeeds."""
    first = await store.compare_and_swap(0, ClusterMap().meet(member(A)), begin_within_s=30)
    with held_up(url):
        for within_s in (0.05, 0.0):
            with pytest.raises(TimedOutError) as caught:
                await store.compare_and_swap(
                    first.revision, first.map.meet(member(B)), begin_within_s=within_s
                )
            assert caught.value.code == "map_not_asked"
    assert await store.load() == first
    with pytest.raises(BusyError):
        await store.compare_and_swap(0, ClusterMap().meet(member(B)), begin_within_s=30)
    second = await store.compare_and_swap(first.revision, first.map.meet(member(B)), begin_within_s=30)
    assert await store.load() == second


async def test_concurrent_changes_all_succeed(url: str) -> None:
    """The final map contains every change, and each has its own epoch."""
    stores = [open_store(url) for _ in range(4)]
    members = [f"{number:040x}" for number in range(16)]

    async def meet(position: int, id: str) -> int:
        return (await change(stores[position % 4], lambda map: map.meet(member(id)))).map.epoch

    epochs = await asyncio.gather(*(meet(i, id) for i, id in enumerate(members)))
    assert sorted(epochs) == list(range(1, 17))
    assert set((await stores[0].load()).map.members) == set(members)
    for store in stores:
        await store.close()


_JOIN = """
import asyncio
from verbena.shards.cluster_map import Member
from verbena.shards.stores import change, open_store
ready()
store = open_store(sys.argv[1])
member = Member(sys.argv[2], "127.0.0.1", 7000, "127.0.0.1:7001")
asyncio.run(change(store, lambda map: map.meet(member)))
"""


def test_many_processes_can_open_a_new_file_at_once(tmp_path: Path) -> None:
    """SQLite reports "locked" to one of two processes that switch the journal mode; the store retries."""
    members = [f"{number:040x}" for number in range(8)]
    for number in range(2):
        url = f"sqlite://{tmp_path}/{number}.db"
        assert at_once.run(_JOIN, [(url, id) for id in members]) == [""] * len(members)
        store = open_store(url)
        assert set(asyncio.run(store.load()).map.members) == set(members)
        asyncio.run(store.close())


async def test_a_watch_yields_every_change_of_other_clients(store: MapStore, url: str) -> None:
    other = open_store(url)
    await change(other, lambda map: map.meet(member(A)))
    async with contextlib.aclosing(store.watch(0)) as changes:  # type: ignore[type-var]
        first = await asyncio.wait_for(anext(changes), 20)
        assert first.map.epoch == 1
        await change(other, lambda map: map.meet(member(B)))
        second = await asyncio.wait_for(anext(changes), 20)
        assert (second.map.epoch, second.revision > first.revision) == (2, True)
        mine = await change(store, lambda map: map.assign([1], A))
        assert await asyncio.wait_for(anext(changes), 20) == mine
    await other.close()


async def test_a_change_that_the_map_rejects_is_not_stored(store: MapStore) -> None:
    with pytest.raises(StateError, match="not a member"):
        await change(store, lambda map: map.assign([1], A))
    assert (await store.load()).revision == 0


async def test_a_swap_fails_while_the_named_member_holds_a_lease(store: MapStore, url: str) -> None:
    """Fencing: the swap and the check of the lease are one transaction."""
    held = await change(store, lambda map: map.meet(member(A)))
    lease = await store.lease(A, 30)
    assert await store.leaseholders() == {A}
    assert 0 < lease.valid_until - time.monotonic() <= 30
    other = open_store(url)
    new = held.map.meet(member(B))
    with pytest.raises(BusyError):
        await other.compare_and_swap(held.revision, new, without_lease=A)
    before = lease.valid_until
    await lease.renew()
    assert lease.valid_until >= before
    await lease.revoke()
    assert await other.leaseholders() == set()
    assert (await other.compare_and_swap(held.revision, new, without_lease=A)).map == new
    with pytest.raises(StateError):
        await lease.renew()
    await other.close()


async def test_an_announcement_lasts_as_long_as_the_lease(store: MapStore, url: str) -> None:
    other = open_store(url)
    lease = await store.lease(A, 30)
    assert await other.announcements() == {A: ""}
    await lease.announce("how far it is")
    await lease.renew()
    assert await other.announcements() == {A: "how far it is"}
    again = await store.lease(A, 30)  # it was restarted, and has said nothing yet
    assert await other.announcements() == {A: ""}
    await again.revoke()
    assert await other.announcements() == {}
    with pytest.raises((StateError, AddressError)):
        await again.announce("too late")
    await other.close()


async def test_a_file_of_an_earlier_version_is_used(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "map.db")) as old:
        old.execute(
            "CREATE TABLE leases (member TEXT PRIMARY KEY, token INTEGER NOT NULL, ends REAL NOT NULL)"
        )
        old.commit()
    store = open_store(f"sqlite://{tmp_path}/map.db")
    await (await store.lease(A, 30)).announce("here")
    assert await store.announcements() == {A: "here"}
    await store.close()


async def test_a_lease_expires(store: MapStore) -> None:
    """The holder's clock expires before the store's."""
    lease = await store.lease(A, 0.3)
    while await store.leaseholders():
        pass
    assert time.monotonic() > lease.valid_until
    with pytest.raises(StateError):
        await lease.renew()


async def test_a_restarted_member_gets_its_lease_at_once(store: MapStore, url: str) -> None:
    former = await store.lease(A, 30)
    other = open_store(url)
    now = await other.lease(A, 30)
    await now.renew()
    assert await store.leaseholders() == {A}
    await former.revoke()
    assert await store.leaseholders() == {A}
    await other.close()


async def test_an_unreachable_store_raises(tmp_path: Path) -> None:
    with pytest.raises(AddressError, match=r"map_store|store"):
        open_store(f"sqlite://{tmp_path}/no/such/folder/map.db")
    nobody = open_store("etcd://127.0.0.1:1")
    with pytest.raises((AddressError, TimedOutError)):
        await nobody.load()
    for wrong in ("", "redis://x", "etcd://", "sqlite://"):
        with pytest.raises(ValueError, match="neither"):
            open_store(wrong)


async def test_invalid_http_responses_are_rejected() -> None:
    """Random bytes, endless lines and invalid lengths."""
    answers = [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}",
        b"x" * (1 << 18),
        b"",
    ]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers.pop(0))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    while answers:
        store = open_store(f"etcd://127.0.0.1:{port}")
        with pytest.raises(AddressError):
            await store.load()
        await store.close()
    server.close()
    await server.wait_closed()


def test_a_url_can_name_a_relative_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite://map.db")
    asyncio.run(change(store, lambda map: replace(map.meet(member(A)), epoch=1)))
    assert (tmp_path / "map.db").exists()
    asyncio.run(store.close())
