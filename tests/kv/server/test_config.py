"""Configuration parameters: reading, setting, rewriting the file; and user-defined commands."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from support.kv.kv_store import StartStore, Store
from support.kv.resp import RespConnection

from verbena import config


def test_parameters_match_patterns_and_are_set_all_or_none(client: redis.Redis):
    assert client.config_get("maxmemory*") == {
        "maxmemory": "0",
        "maxmemory-policy": "noeviction",
        "maxmemory-samples": "5",
    }
    assert client.execute_command("CONFIG", "SET", "maxmemory", "1gb", "timeout", "60")
    assert client.config_get("maxmemory")["maxmemory"] == str(1 << 30)
    with pytest.raises(redis.ResponseError, match="possibly related to argument 'maxmemory-policy'"):
        client.execute_command("CONFIG", "SET", "timeout", "5", "maxmemory-policy", "nonsense")
    assert client.config_get("timeout") == {"timeout": "60"}
    client.execute_command("CONFIG", "SET", "maxmemory", "0", "timeout", "0")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("no-such", "1", "Unknown option"),
        ("port", "1", "immutable"),
        ("maxmemory", "lots", "memory value"),
        ("timeout", "x", "integer"),
        ("maxclients", "0", "between"),
        ("protected-mode", "maybe", "'yes' or 'no'"),
        ("client-output-buffer-limit", "normal 1", "Wrong number"),
    ],
)
def test_invalid_values_are_refused(client: redis.Redis, name: str, value: str, why: str):
    with pytest.raises(redis.ResponseError, match=why):
        client.config_set(name, value)


def test_rewrite_keeps_the_file_and_changes_what_changed(start: StartStore, tmp_path: Path):
    """Comments and other keys stay; the file is valid, and the next start uses the new values."""
    path = tmp_path / "verbena.toml"
    path.write_text('# mine\n[log]\nlevel = "warning"\n\n[kv]\nport = 0 # any\nmaxclients = 99\n')
    store = start("--config", str(path))
    with store.client(decode_responses=True) as client:
        assert client.config_get("maxclients")["maxclients"] == "99"
        client.config_set("maxmemory", "100mb")
        client.config_set("maxclients", "50")
        client.config_set("notify-keyspace-events", "KEx")
        assert client.config_rewrite()
    text = path.read_text()
    assert text.startswith('# mine\n[log]\nlevel = "warning"\n')
    assert "port = 0 # any" in text
    read = config.loads(text)
    assert (read.kv.maxmemory, read.kv.maxclients, read.kv.notify_keyspace_events) == (100 << 20, 50, "xKE")
    assert read.log.level == "warning"


def test_the_password_comes_from_its_file_until_it_is_changed(start: StartStore, tmp_path: Path):
    """CONFIG REWRITE copies no password out of its file; a new one replaces the file's key."""
    secret = tmp_path / "password"
    secret.write_text("from a file\n")
    secret.chmod(0o600)
    path = tmp_path / "verbena.toml"
    path.write_text(f'[kv]\nport = 0\npassword_file = "{secret}"\n')
    store = start("--config", str(path))
    with pytest.raises(redis.AuthenticationError), store.client() as stranger:
        stranger.ping()
    with store.client(password="from a file") as client:
        assert client.config_rewrite()
        assert "from a file" not in path.read_text()
        client.config_set("requirepass", "another one")
        assert client.config_rewrite()
    read = config.loads(path.read_text())
    assert (read.kv.password.reveal(), read.kv.password_file) == ("another one", "")


def test_without_a_file_there_is_nothing_to_rewrite(client: redis.Redis):
    with pytest.raises(redis.ResponseError, match="without a config file"):
        client.config_rewrite()


def test_a_command_of_one_s_own_is_like_any_other(start: StartStore, tmp_path: Path):
    """A command that a file declares runs, is listed by COMMAND, and has arity checks, transactions and
    statistics."""
    path = tmp_path / "greet.py"
    path.write_text(
        """
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError


@command("GREET", arity=2, flags="write denyoom", keys=(1, 1, 1), summary="Counts greetings.")
def greet(call, name):
    if name == b"nobody":
        raise CommandError("ERR nobody to greet")
    if name == b"broken":
        raise RuntimeError("oh")
    count = int(call.db.string(name) or 0) + 1
    call.db.put(name, b"%d" % count)
    call.db.changed(name, b"SET", name, b"%d" % count)
    return [b"hello " + name, count]
"""
    )
    store = start("--commands", str(path))
    with store.client(decode_responses=True) as client:
        assert client.execute_command("GREET", "world") == ["hello world", 1]
        assert client.get("world") == "1"
        with RespConnection(store.port) as wire:
            assert wire("COMMAND", "GETKEYS", "GREET", "world") == [b"world"]
            assert b"Counts greetings." in wire("COMMAND", "DOCS", "greet")[1]
        with pytest.raises(redis.ResponseError, match="nobody to greet"):
            client.execute_command("GREET", "nobody")
        with pytest.raises(redis.ResponseError, match="wrong number of arguments for 'greet'"):
            client.execute_command("GREET")
        with client.pipeline() as pipe:
            pipe.watch("world")
            client.execute_command("GREET", "world")
            pipe.multi()
            pipe.execute_command("GREET", "world")
            with pytest.raises(redis.WatchError):
                pipe.execute()
        assert client.info("commandstats")["cmdstat_greet"]["failed_calls"] == 1
        assert client.info("commandstats")["cmdstat_greet"]["rejected_calls"] == 1


def test_commands_that_cannot_be_loaded_prevent_the_start(start: StartStore, tmp_path: Path):
    path = tmp_path / "bad.py"
    path.write_text("this is no Python")
    with pytest.raises(AssertionError, match="load commands"):
        start("--commands", str(path))
    with pytest.raises(AssertionError, match="no_such_module_at_all"):
        start("--commands", "no_such_module_at_all")


def test_info_has_every_section(store: Store, client: redis.Redis):
    """The fields that redis-py and users read exist and have correct values."""
    client.set("a", 1)
    client.get("a")
    client.get("nothing")
    client.execute_command("EXPIRE", "a", 100)
    with pytest.raises(redis.ResponseError):
        client.incrby("a", "x")
    everything = client.info("everything")
    assert everything["process_id"] == store.process.pid
    assert everything["tcp_port"] == store.port
    assert everything["db0"] == {"keys": 1, "expires": 1}
    assert everything["keyspace_hits"] >= 1
    assert everything["keyspace_misses"] >= 1
    assert everything["used_memory"] > 0
    assert everything["used_memory_rss"] > everything["used_memory"]
    assert everything["cmdstat_get"]["calls"] >= 2
    assert everything["errorstat_ERR"]["count"] >= 1
    assert "latency_percentiles_usec_get" in everything
    assert everything["role"] == "master"
    client.config_resetstat()
    assert "cmdstat_get" not in client.info("commandstats")
