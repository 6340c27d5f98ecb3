"""redis-py and redis-cli while slots move: pipelines, hash tags, transactions, and an aborted move."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from support.kv.cluster import MAIN, Cluster, cluster

OPTIONS = ("--cluster-write-pause-budget-ms", "10000")  # long enough for a loaded machine
HALVES = ("0-8191", "8192-16383")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, 2, keep=False, options=OPTIONS) as found:
        with found.client() as client:
            pipeline = client.pipeline()
            for number in range(3000):
                pipeline.set(f"fill:{number}", "x" * 4000)
            pipeline.execute()
        yield found


def shards(made: Cluster, *words: str) -> Any:
    done = subprocess.run(
        [*MAIN, "shards", *words, "--json", "--cluster-map-store", made.store],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def by_keys(client: redis.RedisCluster, turn: int) -> None:
    key = f"key:{turn % 500}"
    assert client.set(key, turn)
    assert client.get(key) == b"%d" % turn


def by_pipeline(client: redis.RedisCluster, turn: int) -> None:
    keys = [f"pipe:{(turn * 20 + number) % 1000}" for number in range(20)]
    pipeline = client.pipeline()
    for key in keys:
        pipeline.set(key, turn)
    assert pipeline.execute() == [True] * 20


def by_tag(client: redis.RedisCluster, turn: int) -> None:
    tag = f"{{tag:{turn % 300}}}"
    pairs = {f"{tag}:{number}": turn for number in range(5)}
    assert client.mset(pairs)
    assert client.mget(list(pairs)) == [b"%d" % turn] * 5
    with client.pipeline(transaction=True) as transaction:
        transaction.incr(f"{tag}:count")
        transaction.incr(f"{tag}:count")
        first, second = transaction.execute()
    assert second == first + 1


@contextmanager
def loaded(made: Cluster, *works: Callable[[redis.RedisCluster, int], None]) -> Iterator[list[int]]:
    """Runs each function repeatedly in its own thread with its own client; an exception in one is raised
    here. Yields the numbers of rounds."""
    turns, failures, over = [0] * len(works), list[BaseException](), threading.Event()

    def run(number: int) -> None:
        try:
            with made.client() as client:
                while not over.is_set():
                    works[number](client, turns[number])
                    turns[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    try:
        made.until(lambda: failures or min(turns) > 5)
        yield turns
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


@pytest.mark.timeout(150)
def test_redis_py_notices_nothing(made: Cluster) -> None:
    """All slots change their owner twice under load; then every key has the value that was written last."""
    with loaded(made, by_keys, by_pipeline, by_tag) as turns:
        for target in ("n1", "n0"):
            for half in HALVES:
                if half == HALVES[target == "n1"]:
                    continue
                report = shards(made, "move", half, target)
                assert report["moved"]
        before = list(turns)
        made.until(lambda: all(now > then for now, then in zip(turns, before, strict=True)))
    with made.client() as client:
        for number in range(500):
            last = max(turn for turn in range(turns[0] - 500, turns[0]) if turn % 500 == number)
            assert client.get(f"key:{number}") == (b"%d" % last if last >= 0 else None)


@pytest.mark.timeout(150)
def test_a_move_called_off_in_the_middle_costs_clients_nothing(made: Cluster) -> None:
    """The slots stay, no key of them is left at the target, and the same move succeeds afterwards."""
    with loaded(made, by_keys, by_pipeline):
        assert made[1].process is not None
        before = made[1].raw("DBSIZE")
        made[1].process.send_signal(19)
        begun = shards(made, "move", HALVES[0], "n1", "--detach")["id"]
        made.until(lambda: shards(made, "map")["moves"])
        aborting = subprocess.Popen([*MAIN, "shards", "abort", begun, "--cluster-map-store", made.store])
        made.until(lambda: any(move["aborting"] for move in shards(made, "map")["moves"]))
        made[1].process.send_signal(18)
        assert aborting.wait(60) == 0
    assert shards(made, "map")["moves"] == []
    assert [slots for slots, _ in shards(made, "map")["owners"]] == list(HALVES)
    made.until(lambda: made[1].raw("CLUSTER", "COUNTKEYSINSLOT", 3300) == 0)
    assert made[1].raw("DBSIZE") >= before
    assert shards(made, "move", HALVES[0], "n1")["moved"]


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not installed")
@pytest.mark.timeout(150)
def test_redis_cli_follows_through_a_move(made: Cluster) -> None:
    lines = [line for n in range(20_000) for line in (f"SET cli:{n % 997} {n}", f"GET cli:{n % 997}")]
    with subprocess.Popen(
        ["redis-cli", "-c", "-p", str(made[1].port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as typed:
        assert typed.stdin is not None
        assert typed.stdout is not None
        writer = threading.Thread(target=lambda: (typed.stdin.write("\n".join(lines)), typed.stdin.close()))
        moved: list[Any] = []
        mover = threading.Thread(target=lambda: moved.append(shards(made, "move", HALVES[0], "n1")))
        writer.start()
        mover.start()
        said = [line.strip() for line in typed.stdout]
        writer.join()
        mover.join()
    replies = [line for line in said if not line.startswith("-> Redirected to slot")]
    assert replies == [word for n in range(20_000) for word in ("OK", str(n))]
    assert len(said) > len(replies)
    assert moved[0]["moved"]


def test_keys_of_two_slots_are_refused_in_redis_py_too(made: Cluster) -> None:
    with made.client() as client:
        with pytest.raises(redis.exceptions.RedisClusterException, match="same key slot"):
            client.mset({"a": 1, "b": 2})
        assert client.mset_nonatomic({"a": 1, "b": 2}) == [True, True]
        assert client.mget_nonatomic(["a", "b"]) == [b"1", b"2"]
        assert client.mset({"{t}a": 1, "{t}b": 2})
