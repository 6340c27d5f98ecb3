"""`verbena kv bench` with short runs: the tests check the report, not the values."""

import json
import socket

import pytest

from verbena.cli.measure.stores import Store, has_redis_server, verbena_store

pytestmark = pytest.mark.usefixtures("nothing_left_behind")
LITTLE = ("--requests", "200", "--clients", "3", "--keys", "50", "--seconds", "0.1")


def test_every_test_is_measured_on_every_server(verbena):
    """Each server has a rate and ordered quantiles."""
    arguments = ("--tests", "set,get,incr,mget,ping", "--pipeline", "4", "--json")
    document = json.loads(verbena("kv", "bench", *LITTLE, *arguments).stdout)
    servers = ["verbena", "redis-server"] if has_redis_server() else ["verbena"]
    assert [(row["test"], row["server"]) for row in document["results"]] == [
        (test, server) for test in ("set", "get", "incr", "mget", "ping") for server in servers
    ]
    for row in document["results"]:
        assert row["requests"] >= 200
        assert row["per_second"] > 0
        times = [row[f"{name}_ns"] for name in ("min", "p50", "p99", "max")]
        assert times == sorted(times)
        assert times[0] > 0
    assert document["options"]["pipeline"] == 4


def test_a_running_server_keeps_its_data(verbena):
    """The keys of the benchmark are removed, and all other keys stay."""
    with verbena_store() as store:
        store.call("SET", "mine", "value")
        address = f"127.0.0.1:{store.port}"
        done = verbena("kv", "bench", address, address, *LITTLE, "--tests", "get,incr")
        assert done.stdout.count(address) == 5
        assert "3 clients, pipeline 1" in done.stdout
        assert store.call("KEYS", "*") == [b"mine"]


def test_a_password_is_sent_to_the_server(verbena):
    with verbena_store() as store:
        store.call("CONFIG", "SET", "requirepass", "secret")
        address = f"127.0.0.1:{store.port}"
        done = verbena("kv", "bench", address, "--password", "secret", *LITTLE)
        assert address in done.stdout
        wrong = verbena("kv", "bench", address, "--password", "guess", *LITTLE, status=1)
        assert "WRONGPASS" in wrong.stderr
        assert Store("it", "127.0.0.1", store.port, password="secret").call("DBSIZE") == 0


def test_an_unreachable_server_is_named(verbena):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    done = verbena("kv", "bench", address, *LITTLE, status=1)
    assert address in done.stderr


@pytest.mark.parametrize("arguments", [("nowhere",), ("--tests", "set,nonsense"), ("--clients", "0")])
def test_wrong_usage_prints_the_reason(verbena, arguments):
    assert verbena("kv", "bench", *arguments, status=2).stderr.startswith("verbena kv bench: error: ")
