"""Persistence: everything is recovered from the log alone and from a snapshot with the log after it, at any
moment; and what the store reports about it."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kv.grammar import TEMPLATES, expand
from kv.storage.keeping import contents, kept, serving
from support.kv.resp import Connection, pack

from verbena import _native
from verbena.errors import BusyError
from verbena.kv.commands.declare import COMMANDS
from verbena.kv.commands.replies import CommandError
from verbena.kv.server.server import Server
from verbena.kv.storage.persistence import Persistence, Settings

NATIVE = """
SET K V
SET K V NX
SET K V XX KEEPTTL
SET K V PXAT 4000000000000
GETSET K V
SETNX K V
MSET K V K V
MSETNX K V K V
APPEND K V
SETRANGE K I V
INCR K
DECRBY K I
INCRBYFLOAT K X
GETDEL K
GETEX K PERSIST
GETEX K PXAT 4000000000000
DEL K K
UNLINK K
EXPIRE K 1000000
PEXPIREAT K 4000000000001
EXPIREAT K 1
PERSIST K
"""


class Live:
    """A server in this process with a running loop, and a connection to it."""

    def __init__(self, directory: Path) -> None:
        self.server = Server()
        self.persistence = Persistence(self.server, Settings(dir=str(directory), fsync="no"))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            self.server.engine.listen(listener.fileno())
            port = listener.getsockname()[1]
        self.server.start()
        self.persistence.open()
        self.connection = Connection(port)

    def close(self) -> None:
        self.connection.close()
        self.server.stop()
        self.persistence.close()
        self.server.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path / "store")
    yield live
    live.close()


def copied(live: Live, to: Path) -> Path:
    """A copy of the directory as a crash would leave it now. Only a snapshot may be in progress."""
    directory = live.persistence.directory
    while True:
        before = (directory / "manifest.json").read_bytes()
        shutil.rmtree(to, ignore_errors=True)
        try:
            shutil.copytree(directory, to)
        except shutil.Error:  # a snapshot has just replaced another
            continue
        if (directory / "manifest.json").read_bytes() == before:
            return to


@pytest.mark.parametrize("seed", range(6))
def test_random_commands_come_back_from_log_and_snapshot_at_any_moment(
    live: Live, tmp_path: Path, seed: int
) -> None:
    """After every batch, whatever part a running snapshot has read by then, the files give the contents."""
    chance = random.Random(seed)
    templates = [*TEMPLATES, *filter(None, NATIVE.splitlines())]
    blocking = ("BLPOP", "BRPOP", "BLM", "BZ", "BRPOPLPUSH")
    templates = [template for template in templates if not template.startswith(blocking)]
    connection = live.connection
    for _ in range(12):
        batch = [expand(chance.choice(templates), chance.getrandbits(32)) for _ in range(60)]
        begin = chance.randrange(60)
        packed = [pack(*words) for words in batch if words]
        packed.insert(begin, pack(b"BGSAVE"))
        connection.socket.sendall(b"".join(packed))
        for _ in packed:
            connection.receive()
        now = contents(live.server)
        with kept(copied(live, tmp_path / "copy")) as (server, _, said):
            assert contents(server) == now
            assert said == []
    live.close()
    with kept(tmp_path / "store") as (server, _, _):
        assert contents(server) == now


def test_a_command_that_is_written_down_as_it_came_has_one_key_in_the_second_place() -> None:
    """Snapshots, slots and replicas rely on this to find the key of a record."""
    for name, command in COMMANDS.items():
        if command.is_write and command.function is not None and not command.explicit:
            assert (command.keys, command.find_keys) == ((1, 1, 1), None), name


def test_time_stands_still_while_the_log_is_read(tmp_path: Path) -> None:
    """A key that was persisted before its expiry is kept, although that time is over now."""
    with kept(tmp_path) as (server, _, _):
        log = server.engine.log
        log(0, (b"SET", b"kept", b"v", b"PXAT", b"1000"))
        log(0, (b"APPEND", b"kept", b"w"))
        log(0, (b"PERSIST", b"kept"))
        log(0, (b"SET", b"over", b"v", b"PXAT", b"1000"))
    with kept(tmp_path) as (server, _, _):
        assert server.databases[0].string(b"kept") == b"vw"
        assert server.databases[0].string(b"over") is None


def store(server: Server, database: int, key: bytes, value: bytes) -> None:
    server.databases[database].put(key, value)
    server.engine.log(database, (b"SET", key, value))


def test_databases_that_are_flushed_and_swapped(tmp_path: Path) -> None:
    """Their effect records name no key, and an earlier snapshot stays correct."""
    with kept(tmp_path) as (server, persistence, _):
        for number in range(3):
            store(server, number, b"k", b"%d" % number)
        persistence.save()
        store(server, 0, b"a", b"1")
        server.engine.swap(0, 2)
        server.engine.log(0, (b"SWAPDB", b"0", b"2"))
        server.databases[1].clear()
        server.engine.log(1, (b"FLUSHDB",))
        before = contents(server)
        assert {key: value for key, (_, value, _) in before.items()} == {
            (2, b"a"): b"1",
            (2, b"k"): b"0",
            (0, b"k"): b"2",
        }
    with kept(tmp_path) as (server, _, _):
        assert contents(server) == before
        for database in server.databases:
            database.clear()
        server.engine.log(5, (b"FLUSHALL",))
    with kept(tmp_path) as (server, _, _):
        assert contents(server) == {}


@pytest.mark.parametrize("cut", [1, 20, 300, 400])
def test_a_command_that_was_torn_is_not_there_at_all(tmp_path: Path, cut: int) -> None:
    """MSET's keys are separate records; all of them are recovered, or none."""
    with serving(tmp_path, "no") as (process, port), Connection(port) as connection:
        assert connection.run(b"SET", b"before", b"1") == "OK"
        assert connection.run(b"MSET", *(word for i in range(9) for word in (b"k%d" % i, b"v"))) == "OK"
        process.kill()
    path = max(tmp_path.glob("log-*"))
    os.truncate(path, path.stat().st_size - cut)
    with kept(tmp_path) as (server, _, said):
        assert contents(server) == {(0, b"before"): ("string", b"1", 0)}
        assert len(said) == 1
        assert "the log ended in the middle of a write" in said[0]
    with kept(tmp_path) as (server, _, said):
        assert len(contents(server)) == 1
        assert said == []


def test_two_servers_do_not_share_a_directory(tmp_path: Path) -> None:
    with kept(tmp_path), pytest.raises(BusyError) as caught:
        Persistence(Server(), Settings(dir=str(tmp_path))).open()
    assert caught.value.code == "log_locked"
    assert str(os.getpid()) in caught.value.detail
    with kept(tmp_path):  # the first server has released it
        pass


def test_memory_only_is_the_default() -> None:
    server = Server()
    persistence = Persistence(server, Settings())
    persistence.open()
    assert not persistence.is_on
    assert not server.engine.loading
    with pytest.raises(CommandError):
        persistence.begin()
    assert persistence.info()["aof_enabled"] == 0


def test_clients_get_loading_until_the_store_is_loaded(tmp_path: Path) -> None:
    """From the start until everything is loaded, clients get LOADING."""
    server = Server()
    persistence = Persistence(server, Settings(dir=str(tmp_path)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        server.engine.listen(listener.fileno())
        server.start()
        connection = Connection(listener.getsockname()[1])
        assert connection.run(b"SET", b"a", b"1").startswith("LOADING ")
        assert connection.run(b"HGETALL", b"a").startswith("LOADING ")
        assert connection.run(b"LASTSAVE") == persistence.last_save_s
        persistence.open()
        assert connection.run(b"SET", b"a", b"1") == "OK"
        connection.close()
        server.stop()
    persistence.close()


def test_commands_about_saving(live: Live) -> None:
    connection = live.connection
    connection.run(b"SET", b"a", b"1")
    connection.run(b"RPUSH", b"list", b"x", b"y")
    assert connection.run(b"SAVE") == "OK"
    assert connection.run(b"LASTSAVE") == live.persistence.last_save_s
    assert connection.run(b"BGREWRITEAOF") == "Background append only file rewriting started"
    assert connection.run(b"BGSAVE") == "ERR Background save already in progress"
    assert connection.run(b"BGSAVE", b"NOW") == "ERR syntax error"
    assert connection.run(b"WAITAOF", b"2", b"0", b"0").startswith("ERR value is out of range")
    assert connection.run(b"CONFIG", b"SET", b"appendfsync", b"always") == "OK"
    assert connection.run(b"SET", b"a", b"2") == "OK"
    assert connection.run(b"WAITAOF", b"1", b"0", b"0") == [1, 0]
    assert connection.run(b"WAITAOF", b"1", b"1", b"10") == [1, 0]  # there are no replicas
    info = live.persistence.info()
    assert info["log_lsn"] == info["log_durable_lsn"] == 3
    assert info["aof_last_write_status"] == "ok"


def test_reading_back_on_demand(live: Live) -> None:
    connection = live.connection
    connection.run(b"MSET", b"a", b"1", b"b", b"2")
    connection.run(b"HSET", b"h", b"f", b"v")
    before = contents(live.server)
    for words in ((b"DEBUG", b"LOADAOF"), (b"DEBUG", b"RELOAD"), (b"DEBUG", b"RELOAD", b"NOSAVE")):
        if connection.run(*words).startswith("ERR DEBUG command not allowed"):
            pytest.skip("DEBUG is not allowed here")
        assert contents(live.server) == before
        assert connection.run(b"APPEND", b"a", b"") == 1


def test_waiting_for_the_disk_each_second(tmp_path: Path) -> None:
    """WAITAOF's client waits until the background sync is complete."""
    with serving(tmp_path, "everysec") as (_, port), Connection(port) as connection:
        for i in range(3):
            connection.run(b"SET", b"a", b"%d" % i)
            assert connection.run(b"WAITAOF", b"1", b"0", b"0") == [1, 0]


def test_the_log_begins_anew_when_it_has_grown(tmp_path: Path) -> None:
    """Old segments are deleted, and the contents stay."""
    with kept(tmp_path, fsync="no", snapshot_min_bytes=100_000) as (server, persistence, _):
        persistence.tick()
        assert not persistence.is_saving
        for i in range(3000):
            store(server, 0, b"k%d" % (i % 100), b"v" * 50)
        before = contents(server)
        server.start()  # the loop writes the log and calls Python's tick
        while not list(tmp_path.glob("*.vsnap")):
            server.engine.refresh_time()
        server.stop()
        persistence.close()
        assert [path.name for path in tmp_path.glob("log-*")] == ["log-00000000000000003001.vlog"]
    with kept(tmp_path) as (server, persistence, _):
        assert contents(server) == before
        assert persistence.info()["aof_base_size"] == max(tmp_path.glob("*.vsnap")).stat().st_size


def test_keys_belong_to_the_slots_of_redis_cluster() -> None:
    assert _native.kv.key_slot(b"123456789") == 12739
    assert _native.kv.key_slot(b"{user1000}.followers") == _native.kv.key_slot(b"user1000")
