"""The detailed rules of replication: which replicas count, what is copied again, the path of the log,
INFO."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kv.redis_peer import MISSING, SERVER, Peer, redis_server
from support.kv.replicas import Served, everything, in_step, served, until
from support.kv.resp import Connection

ALWAYS = "--kv-persistence-fsync=always"
BY_MESSAGES = "--no-replication-rdma-use-rdma-write"
INLINE = "--replication-rdma-max-inline-size="
ATTENTIVE = ("--session-heartbeat-interval-ms=100", "--session-peer-timeout-ms=500")


def counters(primary: Served) -> dict[str, int]:
    """Counters of how the log has reached the one replica."""
    row = dict(field.split("=", 1) for field in primary.info()["slave0"].split(","))
    return {name: int(row[name]) for name in ("writes", "messages", "inlined", "repeats")}


def is_polite(store: Served) -> bool:
    """Whether a thread of it runs under SCHED_BATCH."""
    threads = map(int, os.listdir(f"/proc/{store.process.pid}/task"))
    return any(os.sched_getscheduler(thread) == os.SCHED_BATCH for thread in threads)


def test_an_idle_replica_runs_under_batch_scheduling() -> None:
    """It runs under SCHED_BATCH after one second without commands of its own, while the log arrives; the
    first command ends it."""
    with served() as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        for _ in range(2):
            assert not is_polite(replica)
            until(lambda: primary.run("INCR", "n") and is_polite(replica), "it lets others go first")
            assert replica.run("PING") == "PONG"
        assert not is_polite(replica)
        assert not is_polite(primary)
        in_step(primary, replica)
        assert replica.run("GET", "n") == primary.run("GET", "n")


@pytest.mark.alone
def test_a_replica_that_is_woken_looks_for_more_until_the_next_message() -> None:
    """The message after a pause wakes it. What is written after that without a message must not wait for the
    next message 20 ms later: three of four pieces here."""
    with served() as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        for _ in range(30):
            time.sleep(0.1)  # by then it has stopped polling
            for n in range(4):
                primary.run("SET", "n", str(n))
                time.sleep(0.001)
        lags = replica.info()
        assert 0 < int(lags["replica_lag_p50_us"]) < 8_000
        assert int(lags["replica_lag_p50_us"]) <= int(lags["replica_lag_p99_us"])
        assert replica.run("GET", "n") == b"3"


def test_waitaof_counts_this_server_and_replicas(tmp_path: Path) -> None:
    """Servers with persistence count, once the data is on disk; counting a local server without persistence
    is an error."""
    here, there = (f"--kv-persistence-dir={tmp_path / name}" for name in ("here", "there"))
    with served(here, ALWAYS) as primary, served(there, ALWAYS) as kept, served() as forgetful:
        primary.run("SET", "k", "v")
        assert primary.run("WAITAOF", "1", "0", "0") == [1, 0]
        for replica in (kept, forgetful):
            replica.follow(primary)
            in_step(primary, replica)
        for i in range(20):
            primary.run("SET", "k", str(i))
            assert primary.run("WAITAOF", "1", "1", "0") == [1, 1]
        assert primary.run("WAIT", "2", "0") == 2
        assert primary.run("WAITAOF", "0", "2", "50") == [1, 1]  # the other one has no persistence
        assert str(kept.run("WAITAOF", "1", "0", "0")).startswith("ERR WAITAOF cannot be used with replica")
        kept.kill()
        kept.stop()
        primary.run("SET", "k", "alone")
        assert primary.run("WAITAOF", "1", "1", "50") == [1, 0]
    with served() as nowhere:
        assert str(nowhere.run("WAITAOF", "1", "0", "0")).startswith(
            "ERR WAITAOF cannot be used when numlocal"
        )


def test_a_replica_that_was_stopped_for_a_while_gets_what_it_missed() -> None:
    """Its session is given up meanwhile: it returns with a new one, and no copy is made, as the counters of
    both ends show. Once the backlog no longer contains what it missed, everything is copied."""
    brief = (*ATTENTIVE, "--session-resume-timeout-s=1")
    with served(*brief, "--replication-backlog-size=256KiB") as primary, served(*brief) as replica:
        replica.follow(primary)
        in_step(primary, replica)
        for value, count, copies in (("short", 20, 1), ("x" * 1000, 1000, 2)):
            replica.process.send_signal(signal.SIGSTOP)
            until(lambda: "slave0" not in primary.info(), "the primary gives it up")
            for i in range(count):
                primary.run("RPUSH", f"list{i}", value)
            replica.process.send_signal(signal.SIGCONT)
            in_step(primary, replica)
            assert everything(replica) == everything(primary)
            assert int(replica.info()["replica_full_syncs"]) == copies
            assert int(replica.info()["replica_partial_syncs"]) == 1
        rows = primary.run("INFO", "stats").decode().splitlines()
        stats = dict(row.split(":", 1) for row in rows if ":" in row)
        assert (stats["sync_full"], stats["sync_partial_ok"], stats["sync_partial_err"]) == ("2", "1", "1")


def test_writes_are_refused_while_replicas_are_silent_for_too_long() -> None:
    """min-replicas-max-lag: a connected replica that sends nothing does not count until it sends again."""
    # By TCP: over shm, a primary gives up the link of a stopped replica after two seconds.
    patient = ("--session-peer-timeout-ms=60000", "--replication-transport=tcp")
    with served(*patient) as primary, served(*patient) as replica:
        replica.follow(primary)
        in_step(primary, replica)
        assert primary.run("CONFIG", "SET", "min-replicas-to-write", "1") == "OK"
        assert primary.run("CONFIG", "SET", "min-replicas-max-lag", "2") == "OK"
        until(lambda: primary.run("SET", "k", "v") == "OK", "it follows")
        replica.process.send_signal(signal.SIGSTOP)
        refused = until(lambda: str(primary.run("SET", "k", "w")).startswith("NOREPLICAS "), "it is silent")
        assert refused
        info = primary.info()
        assert (info["connected_slaves"], info["min_slaves_good_slaves"]) == ("1", "0")
        assert primary.run("GET", "k") in (b"v", b"w")
        # Without a maximum lag, the number of replicas alone has no effect.
        assert primary.run("CONFIG", "SET", "min-replicas-max-lag", "0") == "OK"
        until(lambda: primary.run("SET", "k", "x") == "OK", "the rule is off")
        assert primary.run("CONFIG", "SET", "min-replicas-max-lag", "2") == "OK"
        until(lambda: str(primary.run("SET", "k", "y")).startswith("NOREPLICAS "), "the rule is on")
        replica.process.send_signal(signal.SIGCONT)
        until(lambda: primary.run("SET", "k", "z") == "OK", "it is back")
        in_step(primary, replica)
        assert replica.run("GET", "k") == b"z"


@contextlib.contextmanager
def somebody_waits(primary: Served) -> Iterator[None]:
    """A client waits without a timeout for more replicas than exist, so that each piece requests an
    acknowledgement."""
    with Connection(primary.port) as connection:
        connection.send(b"WAIT", b"9", b"0")
        until(lambda: b"blocked_clients:1" in primary.run("INFO", "clients"), "it waits")
        yield


@pytest.mark.parametrize(
    ("flags", "writes", "inlined"),
    [
        pytest.param((), True, True, id="both"),
        pytest.param((INLINE + "0",), True, False, id="write"),
        pytest.param((BY_MESSAGES,), False, True, id="messages"),
    ],
)
def test_the_configuration_selects_messages_or_writes_for_the_log(
    flags: tuple[str, ...], writes: bool, inlined: bool
) -> None:
    """Short pieces are sent in messages, long ones by WRITE. Without inlining all are written, and without
    WRITE all are in messages: both ends count them."""
    with served(*flags) as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        before = counters(primary)
        primary.run("SET", "long", "x" * 100_000)
        in_step(primary, replica)
        with somebody_waits(primary):
            for i in range(50):
                primary.run("SET", "short", str(i))
                assert primary.run("WAIT", "1", "0") == 1
        taken = {name: count - before[name] for name, count in counters(primary).items()}
        assert (taken["writes"] > 0) == writes
        assert taken["inlined"] >= 50 if inlined else taken["inlined"] == 0
        assert taken["writes"] >= (1 if inlined else 50) * writes
        assert taken["messages"] >= 50
        assert taken["repeats"] == 0
        received = int(replica.info()["replica_received_bytes"])
        written = int(replica.info()["replica_written_bytes"])
        assert received > 100_000
        assert (written > 100_000) == writes
        assert (written == received) == (not inlined)
        assert everything(replica) == everything(primary)


def test_a_length_decides_what_is_inlined() -> None:
    """To the byte: a record of `max_inline_size` bytes is in the message, a longer one is written."""
    record = 24 + 4 + 3 + 4 + 1 + 4 + 160  # SET, a key of one byte, a value of 160 bytes: a multiple of eight
    assert record % 8 == 0
    with served(INLINE + str(record)) as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        with somebody_waits(primary):
            for length, name in ((160, "inlined"), (161, "writes"), (160, "inlined")):
                before = counters(primary)
                primary.run("SET", "k", "v" * length)
                assert primary.run("WAIT", "1", "0") == 1
                now = counters(primary)
                assert now[name] == before[name] + 1
                assert sum(now[way] - before[way] for way in ("inlined", "writes")) == 1


@pytest.mark.skipif(SERVER is None, reason=MISSING)
def test_info_replication_has_the_fields_of_redis(tmp_path: Path) -> None:
    """All fields of redis-server for a primary and for a replica, in its order; Verbena's own fields are
    additional."""
    with redis_server(tmp_path) as path:
        peer = Peer(path, 2)
        leading = names(peer.run("INFO", "replication"))
        peer.run("REPLICAOF", "127.0.0.1", "1")
        following = names(peer.run("INFO", "replication"))
        peer.close()
    with served() as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        ours, theirs = list(primary.info()), list(replica.info())
        replica.run("REPLICAOF", "127.0.0.1", "1")
        until(lambda: replica.info()["master_link_status"] == "down", "nobody is there")
        down = list(replica.info())
    assert "master_replid" in leading
    assert "slave_repl_offset" in following
    assert [name for name in ours if name in leading] == leading
    assert [name for name in down if name in following] == following
    assert [name for name in theirs if name in following] == [
        name for name in following if name != "master_link_down_since_seconds"
    ]


def names(reply: tuple[str, bytes]) -> list[str]:
    return [row.partition(":")[0] for row in reply[1].decode().splitlines() if ":" in row]


def test_offsets_are_the_same_at_both_ends_when_nothing_happens() -> None:
    """The effects of commands, transactions and expiry count equally at both ends; commands without effect do
    not."""
    with served() as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        for effects, lines in (
            (True, ["SET k v"]),
            (False, ["GET k"]),
            (True, ["APPEND k more"]),
            (True, ["RPUSH l a b c"]),
            (False, ["LPOP missing"]),
            (True, ["MULTI", "INCR n", "INCR n", "EXEC"]),
            (False, ["MULTI", "INCR n", "DISCARD"]),
            (True, ["SET short lived PX 100000"]),
            (True, ["GETDEL k"]),
            (False, ["GETDEL k"]),
            (True, ["FLUSHDB"]),
        ):
            before = int(primary.info()["master_repl_offset"])
            for line in lines:
                primary.run(*line.split())
            assert primary.run("WAIT", "1", "0") == 1
            ours, theirs = primary.info(), replica.info()
            offset = ours["master_repl_offset"]
            assert (int(offset) > before) == effects
            assert theirs["master_repl_offset"] == theirs["slave_repl_offset"] == offset
            assert f"offset={offset}," in ours["slave0"]
            first, length = int(ours["repl_backlog_first_byte_offset"]), int(ours["repl_backlog_histlen"])
            assert first + length - 1 == int(offset)


def test_a_replica_that_leads_counts_on_where_its_primary_was() -> None:
    """Offsets continue in INFO and ROLE, with and without a first replica of its own; a server that never had
    a copy has no history to continue."""
    with served() as primary, served() as replica, served() as third:
        replica.follow(primary)
        in_step(primary, replica)
        primary.run("SET", "long", "x" * 1000)
        in_step(primary, replica)
        offset = int(primary.info()["master_repl_offset"])
        assert offset > 1000
        assert replica.run("REPLICAOF", "NO", "ONE") == "OK"
        info = replica.info()
        assert int(info["master_repl_offset"]) == offset == replica.run("ROLE")[1]
        assert int(info["second_repl_offset"]) == offset + 1
        assert info["master_replid2"] == primary.info()["master_replid"] != info["master_replid"]
        third.follow(replica)
        in_step(replica, third)
        assert third.info()["slave_repl_offset"] == str(offset)
        replica.run("SET", "later", "y" * 1000)
        assert replica.run("WAIT", "1", "0") == 1
        now, there = replica.info(), third.info()
        assert int(now["master_repl_offset"]) == int(there["slave_repl_offset"]) > offset + 1000
        assert int(now["repl_backlog_first_byte_offset"]) == offset + 1
        # Back and forth: each time it continues from the other's offset.
        third.run("REPLICAOF", "NO", "ONE")
        replica.follow(third)
        in_step(third, replica)
        assert replica.info()["master_repl_offset"] == now["master_repl_offset"]
        third.run("SET", "more", "z")
        in_step(third, replica)
        replica.run("REPLICAOF", "NO", "ONE")
        last = int(replica.info()["master_repl_offset"])
        assert last == int(third.info()["master_repl_offset"]) > int(now["master_repl_offset"])
        replica.run("REPLICAOF", "127.0.0.1", "1")  # nothing listens there
        replica.run("REPLICAOF", "NO", "ONE")
        assert int(replica.info()["master_repl_offset"]) == last
        assert everything(replica) == everything(third)


def test_a_replica_that_is_killed_is_missed_at_once() -> None:
    """It is not listed, and does not count for writes."""
    with served() as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        assert primary.run("CONFIG", "SET", "min-replicas-to-write", "1") == "OK"
        until(lambda: primary.run("SET", "k", "v") == "OK", "it follows")
        assert len(primary.run("ROLE")[2]) == 1
        began = time.monotonic()
        replica.kill()
        until(lambda: primary.info()["connected_slaves"] == "0", "it is dead")
        until(lambda: str(primary.run("SET", "k", "w")).startswith("NOREPLICAS "), "too few are there")
        assert time.monotonic() - began < 10  # session.resume_timeout_s is 30
        info = primary.info()
        assert info["min_slaves_good_slaves"] == "0"
        assert "slave0" not in info
        assert primary.run("ROLE")[2] == []


@pytest.mark.alone
def test_a_replica_says_since_when_its_link_is_down() -> None:
    """Since the link was lost, not since it was made; failed attempts do not restart it."""
    with served(*ATTENTIVE, "--session-resume-timeout-s=1") as primary, served(*ATTENTIVE) as replica:
        replica.follow(primary)
        in_step(primary, replica)
        time.sleep(4)
        primary.process.send_signal(signal.SIGSTOP)
        until(lambda: replica.info()["master_link_status"] == "down", "nothing is heard")
        lost, before = time.monotonic(), 0
        assert int(replica.info()["master_link_down_since_seconds"]) <= 2
        while time.monotonic() - lost < 4:
            down = int(replica.info()["master_link_down_since_seconds"])
            assert before <= down <= time.monotonic() - lost + 1
            before = down
            time.sleep(0.05)
        assert before >= 3
        primary.process.send_signal(signal.SIGCONT)
        until(lambda: replica.info()["master_link_status"] == "up", "it is back")
        assert "master_link_down_since_seconds" not in replica.info()


def test_blocked_clients_get_an_error_when_the_server_becomes_a_replica() -> None:
    """Elements that arrive in the log cannot be popped there, and WAIT would never end: waiting clients get
    an error."""
    with served() as primary, served() as replica:
        with Connection(replica.port) as popping, Connection(replica.port) as waiting:
            popping.send(b"BLPOP", b"queue", b"0")
            waiting.send(b"WAIT", b"1", b"0")
            until(lambda: b"blocked_clients:2" in replica.run("INFO", "clients"), "both wait")
            replica.follow(primary)
            for connection in (popping, waiting):
                assert str(connection.receive()).startswith("UNBLOCKED force unblock from blocking operation")
        in_step(primary, replica)
        primary.run("RPUSH", "queue", "element")
        in_step(primary, replica)
        assert everything(replica) == everything(primary)
        assert len(everything(replica)) == 1
