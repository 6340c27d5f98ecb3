"""Replication between processes: contents are compared in full, whatever happened to an end or the link."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from support.kv.replicas import Served, everything, in_step, served, until
from support.kv.resp import Connection, RespConnection

from verbena import transport
from verbena.kv.replication.link import METHOD, VERSION

ALWAYS = "--kv-persistence-fsync=always"
BY_MESSAGES = "--no-replication-rdma-use-rdma-write"
SMALL_RING = ("--replication-rdma-max-inline-size=0", "--replication-rdma-ring-size=64KiB")
FILL = """\
SET string value
SET timed value PX 10000000
RPUSH list a b c
SADD set x
HSET hash f 1 g 2
ZADD zset 1 one 2 two
SELECT 3
RPUSH elsewhere 1 2 3
SELECT 0"""
MORE = """\
APPEND string more
RPUSH list d
LPOP list
HINCRBY hash f 41
ZINCRBY zset 5 one
MULTI
INCR counter
RPUSH list e
EXEC
RENAME string renamed
SWAPDB 0 3
COPY list copy"""


def fill(store: Served, text: str = FILL) -> None:
    for line in text.splitlines():
        reply = store.run(*line.split())
        assert not str(reply).startswith(("ERR", "READONLY", "NOREPLICAS")), (line, reply)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="write"),
        pytest.param((BY_MESSAGES,), id="messages"),
        pytest.param(SMALL_RING, id="ring"),
        pytest.param(("--replication-transport=tcp",), id="tcp"),
    ],
)
def test_a_replica_has_what_its_primary_has(flags: tuple[str, ...]) -> None:
    """Data from before and after it follows, of every type, on every path that the log can take."""
    with served(*flags) as primary, served(*flags) as replica:
        fill(primary)
        long = "x" * 300_000  # longer than the small ring
        primary.run("SET", "long", long)
        replica.run("SET", "stale", "gone after the copy")
        replica.follow(primary)
        in_step(primary, replica)
        assert everything(replica) == everything(primary)
        fill(primary, MORE)
        for i in range(2000):
            primary.connection.send(b"SET", b"key%d" % i, b"v" * (i % 700))
        for _ in range(2000):
            assert primary.connection.receive() == "OK"
        primary.run("APPEND", "long", long)
        in_step(primary, replica)
        assert everything(replica) == everything(primary)
        assert len(everything(replica)) > 2000
        ends = f"port={replica.port},state=online,offset={primary.info()['master_repl_offset']},lag=0"
        until(lambda: ends in primary.info()["slave0"], "the receipt, which has some milliseconds")
        info, row = replica.info(), primary.info()
        assert info["role"] == "slave"
        assert info["master_link_wire"] == ("iwarp" if "--replication-transport=tcp" in flags else "shm")
        assert row["connected_slaves"] == "1"
        by_write = int(info["replica_written_bytes"]) > 0
        assert by_write == (BY_MESSAGES not in flags)
        assert replica.run("ROLE")[:4] == [b"slave", b"127.0.0.1", primary.port, b"connected"]
        assert primary.run("ROLE")[0] == b"master"
        assert primary.run("ROLE")[2][0][1] == b"%d" % replica.port


def test_a_replica_reads_and_does_not_write_until_it_leads() -> None:
    """READONLY, also inside a transaction; the primary expires keys; REPLICAOF NO ONE ends all that."""
    with served() as primary, served() as replica:
        primary.run("SET", "k", "v")
        replica.follow(primary)
        in_step(primary, replica)
        assert replica.run("GET", "k") == b"v"
        assert replica.run("SET", "k", "w").startswith("READONLY ")
        assert replica.run("RPUSH", "l", "w").startswith("READONLY ")
        assert replica.run("WAIT", "1", "10").startswith("ERR WAIT cannot")
        primary.run("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        primary.run("SET", "short", "lived", "PX", "1")
        in_step(primary, replica)
        until(lambda: replica.run("GET", "short") is None, "it has expired")
        assert replica.run("DBSIZE") == 2  # reads find nothing, but only the primary deletes it
        assert primary.run("GET", "short") is None
        in_step(primary, replica)
        assert replica.run("DBSIZE") == 1
        assert replica.run("CONFIG", "SET", "replica-read-only", "no") == "OK"
        assert replica.run("SET", "own", "1") == "OK"
        assert replica.run("CONFIG", "SET", "replica-read-only", "yes") == "OK"
        assert replica.run("REPLICAOF", "NO", "ONE") == "OK"
        assert replica.info()["role"] == "master"
        assert replica.info()["master_replid2"] == primary.info()["master_replid"]
        assert replica.run("SET", "k", "w") == "OK"
        until(lambda: primary.info()["connected_slaves"] == "0", "the primary notices")


def test_wait_and_min_replicas() -> None:
    """WAIT counts replicas that have the writes; writes are refused if too few replicas follow."""
    with served() as primary, served() as replica:
        assert primary.run("WAIT", "0", "0") == 0
        assert primary.run("WAIT", "1", "20") == 0
        assert primary.run("CONFIG", "SET", "min-replicas-to-write", "1") == "OK"
        assert primary.run("SET", "k", "v").startswith("NOREPLICAS ")
        assert primary.run("RPUSH", "l", "v").startswith("NOREPLICAS ")
        replica.follow(primary)
        in_step(primary, replica)
        until(lambda: primary.run("SET", "k", "v") == "OK", "a replica is here")
        for i in range(200):
            primary.run("SET", "k", str(i))
            assert primary.run("WAIT", "1", "0") == 1
            assert replica.run("GET", "k") == b"%d" % i
        assert primary.info()["min_slaves_good_slaves"] == "1"
        assert primary.run("WAIT", "2", "20") == 1


def test_redis_py_and_redis_cli_see_what_they_expect() -> None:
    """Through common clients: ROLE, exact fields of INFO, WAIT, READONLY, NOREPLICAS, and no LOADING."""
    import redis

    with served() as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        with redis.Redis(port=primary.port) as leader, redis.Redis(port=replica.port) as follower:
            assert leader.wait(1, 0) == 1
            for i in range(50):
                leader.set("counter", i)
                leader.rpush("list", "x" * i)
            assert leader.wait(1, 0) == 1
            assert follower.get("counter") == b"49"
            assert follower.llen("list") == 50
            ours, theirs = leader.info("replication"), follower.info("replication")
            offset = ours["master_repl_offset"]
            assert offset == theirs["slave_repl_offset"] == theirs["slave_read_repl_offset"]
            assert offset == theirs["master_repl_offset"] == ours["slave0"]["offset"]
            first, length = ours["repl_backlog_first_byte_offset"], ours["repl_backlog_histlen"]
            assert first + length == offset + 1
            assert ours["master_replid"] == theirs["master_replid"]
            assert (ours["role"], theirs["role"]) == ("master", "slave")
            assert theirs["master_link_status"] == "up"
            leader.set("counter", 50)  # a SET with two short arguments, and the overhead of a record
            leader.wait(1, 0)
            assert leader.info("replication")["master_repl_offset"] == offset + record_bytes(
                b"SET", b"counter", b"50"
            )
            with pytest.raises(redis.exceptions.ReadOnlyError):
                follower.set("k", "v")
            with pytest.raises(redis.exceptions.ReadOnlyError):
                follower.pipeline().set("k", "v").execute()
            leader.config_set("min-replicas-to-write", 2)
            with pytest.raises(redis.exceptions.ResponseError, match="Not enough good replicas"):
                leader.set("k", "v")
            assert leader.get("counter") == b"50"
            leader.config_set("min-replicas-to-write", 0)
            with pytest.raises(redis.exceptions.ResponseError, match="unknown command"):
                leader.execute_command("FAILOVER")
        said = cli(primary, "WAIT", "1", "0"), cli(replica, "SET", "k", "v"), cli(replica, "ROLE")
        assert said[0] == "1"
        assert said[1].startswith("READONLY You can't write against a read only replica.")
        assert said[2].split() == [
            *("slave", "127.0.0.1", str(primary.port), "connected"),
            primary.info()["master_repl_offset"],
        ]


def cli(store: Served, *words: str) -> str:
    command = ["redis-cli", "-p", str(store.port), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.strip()


def record_bytes(*words: bytes) -> int:
    """A header of 24 bytes, four before each argument, padded to eight."""
    return 24 + (sum(4 + len(word) for word in words) + 7) // 8 * 8


def test_waitaof_counts_replicas_that_have_it_on_disk(tmp_path: Path) -> None:
    """Only a replica with persistence counts, once it has the data on disk."""
    with served() as primary, served(f"--kv-persistence-dir={tmp_path}", ALWAYS) as replica:
        replica.follow(primary)
        in_step(primary, replica)
        for i in range(3):
            primary.run("SET", "k", str(i))
            assert primary.run("WAITAOF", "0", "1", "0") == [0, 1]


def test_a_replica_that_is_killed_catches_up_when_it_is_back(tmp_path: Path) -> None:
    """With or without its data on disk, it ends up with the primary's contents."""
    with served("--session-resume-timeout-s=1") as primary:
        fill(primary)
        flags = (f"--kv-persistence-dir={tmp_path}", f"--replication-replicaof={primary.address}")
        replica = Served(*flags)
        in_step(primary, replica)
        replica.kill()
        fill(primary, MORE)
        replica.stop()
        with served(*flags) as again:
            in_step(primary, again)
            assert everything(again) == everything(primary)
            until(lambda: "slave1" not in primary.info(), "the former one has been forgotten")
            assert primary.info()["connected_slaves"] == "1"


def test_after_a_short_break_only_what_was_missed_is_sent() -> None:
    """REPLICAOF the same primary by another name: the history is known, so no new copy is made. If the
    backlog is too short for what was missed, everything is copied."""
    with served("--replication-backlog-size=64KiB") as primary, served() as replica:
        fill(primary)
        replica.follow(primary)
        in_step(primary, replica)
        assert replica.run("REPLICAOF", "localhost", str(primary.port)) == "OK"
        primary.run("SET", "meanwhile", "1")
        in_step(primary, replica)
        assert replica.info()["replica_partial_syncs"] == "1"
        assert replica.info()["replica_full_syncs"] == "0"
        assert everything(replica) == everything(primary)
        # A link that is refused for some time: nothing listens at that port.
        assert replica.run("REPLICAOF", "127.0.0.1", "1") == "OK"
        for i in range(1000):
            primary.run("SET", f"key{i}", "x" * 1000)
        assert replica.run("REPLICAOF", "127.0.0.1", str(primary.port)) == "OK"
        in_step(primary, replica)
        assert replica.info()["replica_full_syncs"] == "1"
        assert everything(replica) == everything(primary)


def test_links_that_break_lose_nothing_and_repeat_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wire is broken on purpose under load: each append is in the replica exactly once."""
    monkeypatch.setenv("VERBENA_SESSION_SECRET", "only those who know it may")
    with served("--session-allow-drill") as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        stop = threading.Event()

        def write() -> None:
            with Connection(primary.port) as connection:
                for i in itertools.count():
                    connection.run(b"APPEND", b"key%d" % (i % 50), b"%d," % i)
                    connection.run(b"RPUSH", b"list%d" % (i % 50), b"%d" % i, b"x" * 600)
                    if stop.is_set():
                        return

        writer = threading.Thread(target=write)
        writer.start()
        try:
            break_links(primary)
        finally:
            stop.set()
            writer.join()
        in_step(primary, replica)
        assert everything(replica) == everything(primary)
        assert replica.info()["replica_full_syncs"] == "1"


def break_links(primary: Served) -> None:
    """Breaks the links three times, as `verbena failover-drill` does."""
    for _ in range(3):
        command = [sys.executable, "-m", "verbena", "failover-drill", "--rest=0"]
        command += [f"127.0.0.1:{primary.sessions}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_primary_that_is_killed_loses_nothing_that_wait_has_acknowledged() -> None:
    """At random instants under load, the replica has every write that WAIT acknowledged."""
    rng = random.Random(9)
    counts = [[0] * 4 for _ in range(3)]
    for number in range(3):
        primary = Served()
        with served() as replica:
            try:
                replica.follow(primary)
                in_step(primary, replica)
                acknowledged = counts[number]
                threads = [
                    threading.Thread(target=write_and_wait, args=(primary.port, i, acknowledged))
                    for i in range(4)
                ]
                for thread in threads:
                    thread.start()
                until(partial(all_have, acknowledged), "writes are acknowledged")
                threading.Event().wait(rng.random() / 5)
                primary.kill()
                for thread in threads:
                    thread.join()
                assert replica.run("REPLICAOF", "NO", "ONE") == "OK"
                for i, count in enumerate(acknowledged):
                    found = replica.run("LRANGE", f"list{i}", "0", "-1")
                    assert found[:count] == [b"%d" % n for n in range(count)]
                    assert len(found) <= count + 1
            finally:
                primary.stop()


def all_have(counts: list[int]) -> bool:
    return min(counts) > 5


def write_and_wait(port: int, number: int, acknowledged: list[int]) -> None:
    try:
        with Connection(port) as connection:
            for i in itertools.count():
                connection.run(b"RPUSH", b"list%d" % number, b"%d" % i)
                if connection.run(b"WAIT", b"1", b"0") != 1:
                    return
                acknowledged[number] = i + 1
    except OSError:
        pass


def test_a_replica_killed_at_random_instants_under_load_ends_up_the_same(tmp_path: Path) -> None:
    """SIGKILL repeatedly during appends and pushes: compared in full, each element is there once."""
    rng = random.Random(19)
    stop = threading.Event()
    with served("--session-resume-timeout-s=1") as primary:
        fill(primary)
        flags = (f"--kv-persistence-dir={tmp_path}", f"--replication-replicaof={primary.address}")
        writer = threading.Thread(target=append_until, args=(primary.port, stop))
        writer.start()
        try:
            for _ in range(4):
                replica = Served(*flags)
                threading.Event().wait(rng.random() / 2)  # a random instant, not a wait for a condition
                replica.kill()
                replica.stop()
        finally:
            stop.set()
            writer.join()
        with served(*flags) as again:
            in_step(primary, again)
            assert everything(again) == everything(primary)
            assert len(again.run("LRANGE", "list0", "0", "-1")) > 10


def append_until(port: int, stop: threading.Event) -> None:
    with Connection(port) as connection:
        for i in itertools.count():
            connection.run(b"APPEND", b"key%d" % (i % 20), b"%d," % i)
            connection.run(b"RPUSH", b"list%d" % (i % 20), b"%d" % i)
            if stop.is_set():
                return


async def test_a_replica_of_another_version_is_refused_with_the_reason() -> None:
    """It is refused before it has received a byte; the primary continues."""
    with served() as primary:
        primary.run("SET", "k", "v")
        async with transport.connect(f"127.0.0.1:{primary.sessions}") as session:
            for version in (0, VERSION + 1, None, "2"):
                sync_request = {"version": version, "replid": "", "lsn": 0, "offset": 0, "databases": 16}
                answer = json.loads(await session.call(METHOD, json.dumps(sync_request).encode()))
                assert answer["version"] == VERSION
                assert f"replicates with version {VERSION}, not {version}" in answer["error"]
        assert primary.info()["connected_slaves"] == "0"
        assert primary.run("GET", "k") == b"v"


def test_what_does_not_fit_is_refused_with_the_reason() -> None:
    """A replica of a replica, a server with fewer databases, and a port without a listener."""
    with served() as primary, served() as replica, served("--kv-databases=4") as small, served() as third:
        small.follow(primary)
        until(lambda: "kv.databases" in small.info()["master_link_error"], "databases")
        replica.follow(primary)
        in_step(primary, replica)
        third.follow(replica)
        until(lambda: "follow its primary" in third.info()["master_link_error"], "chains are refused")
        assert third.info()["master_link_status"] == "down"
        assert int(third.info()["master_link_down_since_seconds"]) >= 0
        assert third.run("SET", "k", "v").startswith("READONLY ")
        third.run("REPLICAOF", "127.0.0.1", "1")
        until(lambda: "127.0.0.1:1" in third.info()["master_link_error"], "nobody is there")


def test_a_wrong_secret_is_refused(tmp_path: Path) -> None:
    """A replica that cannot authenticate receives no byte."""
    flags = []
    for name in ("one", "other"):
        path = tmp_path / name
        path.write_text(name * 10)
        path.chmod(0o600)
        flags.append(f"--session-secret-file={path}")
    with served(flags[0]) as primary, served(flags[1]) as replica:
        primary.run("SET", "k", "v")
        replica.follow(primary)
        until(lambda: "the proof is wrong" in replica.info()["master_link_error"], "it is refused")
        assert replica.run("DBSIZE") == 0
        assert primary.info()["connected_slaves"] == "0"


def test_changes_in_the_log_invalidate_keys_tracked_at_the_replica() -> None:
    """For native commands, commands in Python, and a new base copy."""
    with served() as primary, served() as replica:
        fill(primary)
        replica.follow(primary)
        in_step(primary, replica)
        with RespConnection(replica.port) as wire:
            wire("HELLO", 3)
            wire("CLIENT", "TRACKING", "on")
            for read, change in (
                (("GET", "string"), ("SET", "string", "new")),
                (("LLEN", "list"), ("RPUSH", "list", "d")),
                (("HGETALL", "hash"), ("DEL", "hash")),
            ):
                wire(*read)
                primary.run(*change)
                assert wire.read() == [b"invalidate", [read[1].encode()]]
            primary.run("FLUSHALL")
            assert wire.read() == [b"invalidate", None]
