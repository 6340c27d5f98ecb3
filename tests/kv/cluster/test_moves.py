"""Moving slots between running processes with the command line: contents, wires, refusals and crashes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kv.cluster import MAIN, Cluster, ReplyError, RespConnection, cluster
from support.kv.crash_matrix import STOPPING, at_rest, crash_at, settled

OPTIONS = ("--cluster-write-pause-budget-ms", "5000")  # long enough for a loaded machine


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("moves"), 2, options=OPTIONS) as found:
        yield found


def shards(made: Cluster, *words: str, status: int = 0) -> Any:
    done = subprocess.run(
        [*MAIN, "shards", *words, "--cluster-map-store", made.store],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr


def fill(made: Cluster, count: int) -> dict[str, Any]:
    """Writes keys of every type."""
    client = made.client()
    for number in range(count):
        client.set(f"s{number}", "x" * (number * 37 % 5000))
        client.set(f"t{number}", number, ex=100_000)
        client.rpush(f"l{number}", *range(number % 7 + 1))
        client.hset(f"h{number}", mapping={"a": number, "b": "c"})
        client.sadd(f"m{number}", *range(number % 5 + 1))
        client.zadd(f"z{number}", {"one": number, "two": 2})
    client.close()
    return snapshot(made, count)


def snapshot(made: Cluster, count: int) -> dict[str, Any]:
    client = made.client()
    found: dict[str, Any] = {}
    for number in range(count):
        found[f"s{number}"] = client.get(f"s{number}")
        found[f"t{number}"] = (client.get(f"t{number}"), client.expiretime(f"t{number}"))
        found[f"l{number}"] = client.lrange(f"l{number}", 0, -1)
        found[f"h{number}"] = client.hgetall(f"h{number}")
        found[f"m{number}"] = client.smembers(f"m{number}")
        found[f"z{number}"] = client.zrange(f"z{number}", 0, -1, withscores=True)
    client.close()
    return found


def sizes(made: Cluster) -> list[int]:
    return [node.raw("DBSIZE") for node in made.nodes]


def test_slots_move_with_all_that_they_hold_and_back_again(made: Cluster) -> None:
    """Over RDMA (shared memory here): acknowledged keys are counted, and the source deletes its copy."""
    before = fill(made, 150)
    total = sum(sizes(made))
    report = shards(made, "move", "0-8191", "n1", "--json")
    assert report["moved"] is True
    assert (report["phase"], report["transport"], report["wire"], report["attempt"]) == (
        "done",
        "connected",
        "shm",
        1,
    )
    assert report["bytes_transferred"] > 100_000
    assert report["sends_completed"] >= 1
    assert report["fallback_bytes"] == 0
    parts = report["pause_parts_ms"]
    assert list(parts) == ["fence", "drain", "sums", "checkpoint", "map", "hand_over", "open"]
    assert sum(parts.values()) <= report["pause_ms"] + 0.01 * len(parts)
    assert sizes(made) == [0, total]
    assert snapshot(made, 150) == before
    text = shards(made, "move", "0-8191", "n0")
    assert "slots 0-8191 moved to n0" in text
    assert snapshot(made, 150) == before
    assert sum(sizes(made)) == total


def test_the_map_and_the_status_are_printed(made: Cluster) -> None:
    told = shards(made, "map", "--json")
    assert [owner for _, owner in told["owners"]] == [made[0].id, made[1].id]
    assert told["moves"] == []
    table = shards(made, "map")
    assert all(word in table for word in ("n0", "n1", "0-8191", "8192-16383", "held"))
    assert isinstance(shards(made, "status", "--json"), list)


def test_what_cannot_be_moved_is_refused(made: Cluster) -> None:
    assert "does not own all" in shards(made, "move", "8000-9000", "n1", status=1)
    assert "match 'n7'" in shards(made, "move", "0-1", "n7", status=1)
    assert "the same node" in shards(made, "move", "0-1", "n0", status=1)
    assert "not a range of slots" in shards(made, "move", "5-20000", "n1", status=2)
    assert "the first slot comes after the last" in shards(made, "move", "9-3", "n1", status=2)
    for word in ("x", "", "1,2"):
        assert "neither a slot nor a range" in shards(made, "move", word, "n1", status=2)
    assert "0 running moves" in shards(made, "abort", "ffff", status=1)


def test_slots_that_are_moving_are_not_moved_twice(tmp_path: Path) -> None:
    """Overlapping slots are refused too. A move is aborted by a prefix of its id, which must
    not be empty."""
    folder = tmp_path / "stops"
    folder.mkdir()
    (folder / "stop_at").write_text("BASE_COPY")
    with cluster(tmp_path, 2, command=STOPPING, environment={"STOP_FOLDER": str(folder)}) as made:
        id = shards(made, "move", "0-9", "n1", "--detach", "--json")["id"]
        made.until((folder / "stopped").exists)
        for words in (("0-9", "n1"), ("9-20", "n1"), ("5", "n1")):
            assert f"are already being moved by {id}" in shards(made, "move", *words, status=1)
        assert f"[0->-{made[1].id}]".encode() in made[0].raw("CLUSTER", "NODES")
        assert "0 running moves" in shards(made, "abort", "", status=1)
        with subprocess.Popen(
            [*MAIN, "shards", "abort", id[:6], "--json", "--cluster-map-store", made.store],
            stdout=subprocess.PIPE,
        ) as aborting:
            made.until(lambda: moves_of(made)[id]["aborting"])
            (folder / "go").touch()
            assert aborting.stdout is not None
            assert json.load(aborting.stdout) == {"id": id, "slots": "0-9", "moved": False}


def moves_of(made: Cluster) -> dict[str, Any]:
    return {one["id"]: one for one in shards(made, "map", "--json")["moves"]}


def test_reading_a_missing_map_creates_none(tmp_path: Path) -> None:
    store = f"sqlite://{tmp_path}/none.db"
    for words in (("map",), ("status",), ("move", "1", "n1"), ("rebalance",), ("abort", "a")):
        done = subprocess.run(
            [*MAIN, "shards", *words, "--cluster-map-store", store],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert "no node has been started with it" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("action", ["map", "move", "rebalance", "status", "nodes", "abort"])
def test_the_help_of_each_action_lists_map_store_and_exit_status(action: str) -> None:
    done = subprocess.run(
        [*MAIN, "shards", action, "--help-all"], capture_output=True, text=True, check=True
    ).stdout
    assert f"usage: verbena shards {action}" in done
    assert all(word in done for word in ("--cluster-map-store etcd://", "exit status: 0 success", "--json"))
    assert ("the move continues" in done) == (action in ("move", "rebalance"))


def test_a_weight_that_is_none_is_refused(made: Cluster) -> None:
    for weight in ("n1", "n1=", "n1=x", "n1=-1", "n1=nan", "n1=inf"):
        assert f"--weight {weight}: NODE=NUMBER" in shards(made, "rebalance", "--weight", weight, status=2)
    assert "match 'n7'" in shards(made, "rebalance", "--weight", "n7=1", status=1)
    nothing = ("--weight", "n0=0", "--weight", "n1=0")
    assert "at least one must be above 0" in shards(made, "rebalance", *nothing, status=2)
    assert shards(made, "rebalance", "--json") == []
    assert shards(made, "rebalance", "--dry-run", "--json") == []
    [[slots, *ends]] = shards(made, "rebalance", "--dry-run", "--json", "--weight", "n0=0")
    assert (slots, ends) == ("0-8191", [made[0].id, made[1].id])


def test_a_client_in_the_middle_of_it_notices_a_redirection_at_most(made: Cluster) -> None:
    """A counter that is incremented during the whole move counts every increment once."""
    slot = made[0].raw("CLUSTER", "KEYSLOT", "count")
    source = next(node for node in made.nodes if made_owner(made, slot) == node.id)
    target = next(node for node in made.nodes if node is not source)
    source.raw("DEL", "count")
    moving = subprocess.Popen(
        [*MAIN, "shards", "move", str(slot), target.name, "--cluster-map-store", made.store],
        stdout=subprocess.DEVNULL,
    )
    done, after, wire = 0, 0, RespConnection("127.0.0.1", source.port)
    while after < 50:
        try:
            done += 1
            assert wire.run("INCR", "count") == done
            after += moving.poll() is not None
        except ReplyError as error:
            if str(error) != f"MOVED {slot} 127.0.0.1:{target.port}":
                raise
            done -= 1
            wire.close()
            wire = RespConnection("127.0.0.1", target.port)
    wire.close()
    assert moving.wait() == 0
    assert target.raw("GET", "count") == b"%d" % done
    assert source.raw("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
    shards(made, "move", str(slot), source.name)


def made_owner(made: Cluster, slot: int) -> str:
    return next(row[2][2].decode() for row in made[0].raw("CLUSTER", "SLOTS") if row[0] <= slot <= row[1])


def test_rebalance_gives_everybody_a_share(made: Cluster) -> None:
    said = shards(made, "rebalance", "--weight", "n1=3", "--dry-run")
    assert said.strip() == "4096-8191: n0 → n1"
    assert "already balanced" in shards(made, "rebalance")
    shards(made, "rebalance", "--weight", "n1=3")
    assert [slots for slots, _ in shards(made, "map", "--json")["owners"]] == ["0-4095", "4096-16383"]
    shards(made, "rebalance")
    assert [slots for slots, _ in shards(made, "map", "--json")["owners"]] == [
        "0-4095",
        "4096-12287",
        "12288-16383",
    ]
    shares = dict.fromkeys((made[0].id, made[1].id), 0)
    for slots, owner in shards(made, "map", "--json")["owners"]:
        first, _, last = slots.partition("-")
        shares[owner] += int(last or first) - int(first) + 1
    assert set(shares.values()) == {8192}


def test_without_rdma_the_fallback_carries_it(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, keep=False, options=(*OPTIONS, "--no-cluster-rdma-migration-rdma")) as made:
        before = fill(made, 30)
        report = shards(made, "move", "0-8191", "n1", "--json")
        assert (report["moved"], report["transport"], report["wire"]) == (True, "unavailable", "iwarp")
        assert report["bytes_transferred"] == 0
        assert report["fallback_bytes"] > 0
        assert snapshot(made, 30) == before


def test_a_pause_that_is_too_long_calls_it_off(tmp_path: Path) -> None:
    """The budget is enforced: the source keeps and serves the slots, and the target drops its copy."""
    options = ("--cluster-write-pause-budget-ms", "1")
    with cluster(tmp_path, 2, options=options) as made:
        before = fill(made, 30)
        had = sizes(made)
        report = shards(made, "move", "0-8191", "n1", "--json", status=1)
        assert (report["moved"], report["phase"]) == (False, "rolled_back")
        assert "ms" in report["why"] or "answer" in report["why"]
        assert snapshot(made, 30) == before
        made.until(lambda: sizes(made) == had)


@pytest.mark.parametrize(
    ("checkpoint", "victim"),
    [
        ("BASE_COPY", "target"),
        ("CATCH_UP", "source"),
        ("DECIDING", "source"),
        ("MOVED", "coordinator"),
        ("CATCH_UP", "SIGINT"),
        ("BASE_COPY", "abort"),
    ],
)
def test_a_crash_loses_nothing(checkpoint: str, victim: str) -> None:
    """Some cells of the crash matrix; `make crash-matrix` runs all."""
    assert crash_at(checkpoint, victim) == ""


def test_a_source_that_has_lost_its_checkpoint_counts_on(tmp_path: Path) -> None:
    """The target knows an earlier attempt, so the next attempt gets a higher number at once."""
    (tmp_path / "stop_at").write_text("CATCH_UP")
    environment = {"STOP_FOLDER": str(tmp_path)}
    with cluster(tmp_path, 2, command=STOPPING, environment=environment, options=OPTIONS) as made:
        before = fill(made, 30)
        id = shards(made, "move", "0-8191", "n1", "--detach").strip()
        made.until((tmp_path / "stopped").exists)
        made[0].kill()
        [kept] = (tmp_path / "n0" / "cluster" / "moves").glob("*.checkpoint")
        kept.unlink()
        made[0].start().ready()
        made.until(lambda: at_rest(made) and settled(made))
        [report] = [one for one in shards(made, "status", "--json") if one["id"] == id]
        assert (report["phase"], report["attempt"]) == ("done", 2)
        assert "refused" not in (tmp_path / "n0" / "log").read_text()
        assert snapshot(made, 30) == before


def test_clients_are_redirected_once_the_target_has_the_new_map(tmp_path: Path) -> None:
    """Redirections start only then, although the map has changed before; the reported pause lasts until
    then."""
    (tmp_path / "stop_at").write_text("DECIDING")
    environment = {"STOP_FOLDER": str(tmp_path)}
    options = ("--cluster-node-timeout-ms", "30000", "--cluster-write-pause-budget-ms", "20000")
    with cluster(tmp_path, 2, command=STOPPING, environment=environment, options=options) as made:
        command = [*MAIN, "shards", "move", "0-99", "n1", "--json", "--cluster-map-store", made.store]
        moving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        target = made[1].process
        assert target is not None
        made.until((tmp_path / "stopped").exists)
        with RespConnection("127.0.0.1", made[0].port) as wire:
            wire.send("SET", "{06S}", "written meanwhile")  # a key of slot 0
            target.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            (tmp_path / "go").touch()
            made.until(lambda: at_rest(made))
            wire.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                wire.socket.recv(1)
            lasted_ms = (time.monotonic() - began) * 1000
            target.send_signal(signal.SIGCONT)
            wire.socket.settimeout(30)
            with pytest.raises(ReplyError, match=f"MOVED 0 .*:{made[1].port}"):
                wire.receive()
        assert made[1].raw("SET", "{06S}", "written there") == b"OK"
        report = json.loads(moving.communicate(timeout=60)[0])
        assert report["pause_ms"] >= lasted_ms


def test_a_move_whose_source_is_gone_can_be_called_off(tmp_path: Path) -> None:
    """The waiting command prints how to abort it, and the source undoes the move when it is back."""
    options = ("--cluster-node-timeout-ms", "2000")
    environment = {"STOP_FOLDER": str(tmp_path)}
    (tmp_path / "stop_at").write_text("BASE_COPY")
    with cluster(tmp_path, 2, command=STOPPING, environment=environment, options=options) as made:
        made[0].raw("SET", "{06S}", "kept")  # a key of slot 0
        moving = subprocess.Popen(
            [*MAIN, "shards", "move", "0-99", "n1", "--cluster-map-store", made.store],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        made.until((tmp_path / "stopped").exists)
        made[0].kill()
        moving.send_signal(signal.SIGINT)
        _, said = moving.communicate(timeout=60)
        assert moving.returncode == 130
        [[id, *_]] = [[move["id"]] for move in shards(made, "map", "--json")["moves"]]
        assert f"`verbena shards abort {id[:8]}` aborts it" in said
        assert "slots 0-99 keep their owner" in shards(made, "abort", id[:8])
        (tmp_path / "go").touch()
        made[0].start().ready()
        assert made[0].raw("GET", "{06S}") == b"kept"
        assert shards(made, "map", "--json")["moves"] == []
        made.until(lambda: settled(made))
