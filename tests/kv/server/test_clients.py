"""CLIENT and connection handling, common clients and tools, and hostile clients."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import threading

import pytest
import redis
import redis.asyncio
from support.kv.frontends import own_address
from support.kv.kv_store import StartStore, Store
from support.kv.resp import ErrorReply, RespConnection, pack

valkey = pytest.importorskip("valkey")


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_and_valkey_py_work(store: Store, protocol: int):
    """Pipelines, scans, transactions, pub/sub, in both versions of the protocol."""
    for library in (redis.Redis, valkey.Valkey):
        with library(port=store.port, protocol=protocol, decode_responses=True, client_name="me") as client:
            client.flushall()
            assert client.set("a", "1", ex=100)
            assert client.get("a") == "1"
            assert client.hset("h", mapping={"x": 1, "y": 2}) == 2
            assert client.hgetall("h") == {"x": "1", "y": "2"}
            client.mset({f"k{i}": i for i in range(100)})
            assert len(set(client.scan_iter("k*"))) == 100
            with client.pipeline() as pipe:
                assert pipe.incr("n").incr("n").execute() == [1, 2]
            assert client.client_getname() == "me"
            assert client.client_info()["name"] == "me"
            assert client.client_info()["resp"] in (protocol, str(protocol))


async def test_asyncio_redis_py_works(store: Store):
    """Many commands at once on a pool, and a subscriber."""
    async with redis.asyncio.Redis(port=store.port, decode_responses=True) as client:
        await client.flushall()
        await asyncio.gather(*(client.set(f"k{i}", i) for i in range(50)))
        assert await asyncio.gather(*(client.get(f"k{i}") for i in range(50))) == [str(i) for i in range(50)]
        async with client.pubsub() as pubsub:
            await pubsub.subscribe("c")
            assert (await pubsub.get_message(timeout=10))["type"] == "subscribe"
            await client.publish("c", "x")
            assert (await pubsub.get_message(timeout=10))["data"] == "x"


def test_redis_benchmark_runs(store: Store):
    """A smoke test: it finishes, and each of its tests got replies."""
    tool = shutil.which("redis-benchmark")
    if tool is None:
        pytest.skip("redis-benchmark is not here (Debian: redis-tools)")
    done = subprocess.run(
        [tool, "-p", str(store.port), "-n", "2000", "-c", "10", "-P", "4", "--csv",
         "-t", "ping_mbulk,set,get,incr,lpush,rpop,sadd,hset,zadd,mset"],
        capture_output=True, text=True, timeout=55, check=True,
    )  # fmt: skip
    names = [line.split(",")[0].strip('"') for line in done.stdout.splitlines()[1:]]
    assert {"SET", "GET", "INCR", "LPUSH", "RPOP", "SADD", "HSET", "ZADD"} <= set(names)
    assert "rror" not in done.stdout + done.stderr


def test_redis_cli_knows_the_commands(store: Store):
    assert "OK" in store.cli(stdin="multi\nset a 1\nincr a\nexec\n")
    assert store.cli("--scan", "--pattern", "a").strip() == "a"
    assert "redis_version" in store.cli("info", "server")
    assert "command|docs" in store.cli("command", "list")


def test_client_list_kill_and_names(store: Store, client: redis.Redis):
    with RespConnection(store.port) as wire:
        number = wire("CLIENT", "ID")
        wire("CLIENT", "SETNAME", "victim")
        wire("CLIENT", "SETINFO", "LIB-NAME", "mine")
        found = next(row for row in client.client_list() if row["id"] == str(number))
        assert (found["name"], found["lib-name"], found["cmd"]) == ("victim", "mine", "client|setinfo")
        assert str(wire("CLIENT", "SETNAME", "a b")).startswith("ERR Client names cannot contain spaces")
        assert client.client_kill_filter(_id=number) == 1
        with pytest.raises((EOFError, ConnectionError)):
            wire("PING")
    assert client.client_kill_filter(_id=10**9) == 0


def test_replies_can_be_switched_off(store: Store):
    """OFF: no replies until ON; SKIP: no reply to the next command. For native commands and others."""
    with RespConnection(store.port) as wire:
        wire.send("CLIENT", "REPLY", "OFF")
        wire.send("SET", "quiet", "1")
        wire.send("CONFIG", "GET", "port")
        assert wire("CLIENT", "REPLY", "ON") == "OK"
        wire.send("CLIENT", "REPLY", "SKIP")
        wire.send("SET", "quiet", "2")
        assert wire("GET", "quiet") == b"2"


def test_a_pause_holds_writers_and_lets_readers_through(store: Store, client: redis.Redis):
    """WRITE: reads continue; writes wait for the end and are then executed in order."""
    client.set("p", 0)
    with RespConnection(store.port) as writer:
        client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        for value in range(1, 4):
            writer.send("SET", "p", value)
        writer.send("GET", "p")
        assert client.get("p") == "0"
        client.execute_command("CLIENT", "UNPAUSE")
        assert [writer.read() for _ in range(4)] == ["OK", "OK", "OK", b"3"]


def test_monitor_shows_commands_and_no_passwords(store: Store, client: redis.Redis):
    with RespConnection(store.port) as monitor:
        assert monitor("MONITOR") == "OK"
        client.set("seen", "a b")
        with RespConnection(store.port) as other:
            assert str(other("AUTH", "secret")).startswith("ERR AUTH")
            assert other("GET", "seen") == b"a b"
        first, second = monitor.read(), monitor.read()
        assert first.endswith('"SET" "seen" "a b"')
        assert second.endswith('"GET" "seen"')


def test_too_many_clients_are_refused(start: StartStore):
    store = start("--kv-maxclients", "2")
    with (
        RespConnection(store.port) as one,
        RespConnection(store.port) as two,
        RespConnection(store.port) as three,
    ):
        assert one("PING") == two("PING") == "PONG"
        assert str(three.read()).startswith("ERR max number of clients")
        assert one("INFO", "stats").count(b"rejected_connections:1") == 1


def test_idle_clients_are_closed_and_subscribers_are_not(start: StartStore):
    store = start("--kv-timeout-s", "1")
    with RespConnection(store.port) as idle, RespConnection(store.port) as listener:
        assert idle("PING") == "PONG"
        listener("SUBSCRIBE", "c")
        with pytest.raises((EOFError, ConnectionError)):
            idle.read()
        assert listener("PING") == [b"pong", b""]


def test_a_subscriber_that_does_not_read_is_closed(store: Store, client: redis.Redis):
    """It exceeds the hard limit of its class: the publisher continues, and memory is bounded."""
    client.config_set("client-output-buffer-limit", "pubsub 1mb 0 0")
    with RespConnection(store.port) as slow:
        slow("SUBSCRIBE", "flood")
        message = "x" * 100_000
        for _ in range(2000):
            if client.publish("flood", message) == 0:
                break
        else:
            pytest.fail("it was never closed")
    assert client.info("stats")["client_output_buffer_limit_disconnections"] >= 1
    client.config_set("client-output-buffer-limit", "pubsub 32mb 8mb 60")


@pytest.mark.parametrize(
    "hostile",
    [
        b"*1000000000\r\n",
        b"*-5\r\n*1\r\n$-1\r\n",
        b"*1\r\n$99999999999999999999\r\n",
        b"*1\r\nxx\r\n",
        b"*2\r\n$3\r\nGET\r\n$1\r\nabc\r\n",
        b"'unbalanced\r\n",
        b"A" * 70_000,
        b"*1\r\n$" + b"9" * 50 + b"\r\n",
    ],
)
def test_nonsense_ends_that_connection_only(store: Store, client: redis.Redis, hostile: bytes):
    """It gets an error, then the connection is closed; other connections are not affected."""
    with store.connect() as raw:
        raw.sendall(hostile)
        raw.shutdown(socket.SHUT_WR)
        heard = b""
        while chunk := raw.recv(4096):
            heard += chunk
    assert heard == b"" or heard.startswith(b"-ERR Protocol error")
    assert client.ping()


@pytest.mark.parametrize(
    "words", [("no\r\nsuch", "a\nb"), ("CLIENT", "no\r\nsuch"), ("ACL", "SETUSER", "u", "no\r\nsuch")]
)
def test_an_error_is_one_line_whatever_it_quotes(store: Store, words: tuple[str, ...]):
    """CR and LF of the request become spaces in the error, so that the next reply is read as itself."""
    with RespConnection(store.port) as wire:
        wire.socket.sendall(pack(*words) + pack("PING"))
        error = wire.read()
        assert isinstance(error, ErrorReply)
        assert "no  such" in error
        assert wire.read() == "PONG"


def test_requests_may_come_in_any_pieces(store: Store):
    """Byte by byte, and many requests at once."""
    with RespConnection(store.port) as wire:
        for byte in pack("SET", "piece", "v\r\n$x"):
            wire.socket.sendall(bytes([byte]))
        assert wire.read() == "OK"
        wire.socket.sendall(pack("GET", "piece") * 1000)
        assert [wire.read() for _ in range(1000)] == [b"v\r\n$x"] * 1000
        wire.socket.sendall(b"GET piece\r\n\r\nPING\r\n")
        assert [wire.read(), wire.read()] == [b"v\r\n$x", "PONG"]


def test_slow_commands_are_written_down(store: Store, client: redis.Redis):
    client.config_set("slowlog-log-slower-than", 1000)
    client.config_set("latency-monitor-threshold", 1)
    client.slowlog_reset()
    client.execute_command("DEBUG", "SLEEP", "0.005")
    entry = client.slowlog_get()[0]
    assert entry["command"] == b"DEBUG SLEEP 0.005"
    assert entry["duration"] >= 5000
    assert client.latency_latest()[0][0] == "command"
    assert client.execute_command("LATENCY", "RESET") == 1
    client.config_set("slowlog-log-slower-than", 0)
    client.slowlog_reset()
    client.set("hot", 1)
    while not any(row["command"].startswith(b"SET hot") for row in client.slowlog_get(128)):
        pass  # native commands are collected at intervals
    client.config_set("slowlog-log-slower-than", 10_000)
    client.config_set("latency-monitor-threshold", 0)


def test_a_blocked_client_can_be_unblocked(store: Store, client: redis.Redis):
    with RespConnection(store.port) as wire:
        number = wire("CLIENT", "ID")
        wire.send("BLPOP", "nothing-here", "0")
        while not client.info("clients")["blocked_clients"]:
            pass
        assert client.client_unblock(number, error=True)
        assert str(wire.read()).startswith("UNBLOCKED")
        wire.send("BLPOP", "nothing-here", "0")
        while not client.info("clients")["blocked_clients"]:
            pass
        thread = threading.Thread(target=client.rpush, args=("nothing-here", "x"))
        thread.start()
        assert wire.read() == [b"nothing-here", b"x"]
        thread.join()


def test_command_describes_all_commands(store: Store, client: redis.Redis):
    assert client.command_count() == len(client.command())
    with RespConnection(store.port) as wire:
        assert wire("COMMAND", "INFO", "get", "no-such")[0][:3] == [b"get", 2, ["fast", "readonly"]]
        assert wire("COMMAND", "GETKEYS", "MSET", "a", 1, "b", 2) == [b"a", b"b"]
        assert wire("COMMAND", "GETKEYSANDFLAGS", "SET", "a", 1) == [[b"a", ["OW", "update"]]]
        assert "no key arguments" in wire("COMMAND", "GETKEYS", "PING")
        assert b"get" in wire("COMMAND", "LIST", "FILTERBY", "PATTERN", "ge*")
        assert wire("CONFIG", "NONSENSE") == "ERR unknown subcommand 'NONSENSE'. Try CONFIG HELP."
        assert "SET" in wire("CONFIG", "HELP")


def test_without_a_password_only_this_machine_may_connect(start: StartStore):
    """Protected mode: other hosts get an error with the reason, until there is a password or the mode is
    off."""
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but the loopback's")
    store = start("--kv-listen-address", "0.0.0.0")

    def first_words() -> bytes:
        with socket.create_connection((address, store.port), timeout=20) as stranger:
            stranger.sendall(b"PING\r\n")
            return stranger.recv(1000)

    with store.client(decode_responses=True) as client:
        assert client.ping()
        assert first_words().startswith(b"-DENIED Verbena runs in protected mode")
        assert client.info("stats")["rejected_connections"] == 1
        client.config_set("protected-mode", "no")
        assert first_words() == b"+PONG\r\n"
        client.config_set("protected-mode", "yes")
        client.config_set("requirepass", "secret")
        assert first_words().startswith(b"-NOAUTH")
