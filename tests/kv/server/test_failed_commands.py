"""Commands in Python that fail after they have changed their keys: the log has the keys as they are."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.kv.kv_store import running
from support.kv.resp import Connection

COMMANDS = """
from verbena.kv.commands.declare import command
from verbena.kv.values.collections import List


@command("HALF", arity=3, flags="write", keys=(1, 1, 1), group="list", summary="Appends, and then fails.")
def half(call, key, kind):
    call.db.obtain(key, List).append(b"appended")
    raise MemoryError if kind == b"memory" else ValueError("half done")


@command("NEITHER", arity=1, flags="write", explicit=True, group="list", summary="Fails without a key.")
def neither(call):
    raise MemoryError


@command("HUGE", arity=1, flags="readonly", group="list", summary="Replies with what has no memory.")
def huge(call):
    return [b"x", bytes(1 << 62)]
"""


@pytest.mark.parametrize("kind", ["memory", "value"])
def test_a_command_that_fails_halfway_is_recovered_as_it_is(tmp_path: Path, kind: str) -> None:
    """In a transaction too, which gets a reply for each command."""
    module = tmp_path / "half.py"
    module.write_text(COMMANDS)
    flags = ("--commands", str(module), "--kv-persistence-dir", str(tmp_path / "store"))
    error = "OOM command failed: not enough memory" if kind == "memory" else "ERR internal error"
    with running(*flags) as store, Connection(store.port) as connection:
        connection.run("RPUSH", "list", "first")
        assert str(connection.run("HALF", "list", kind)).startswith(error)
        assert str(connection.run("HALF", "new", kind)).startswith(error)
        connection.run("MULTI")
        for words in (("HALF", "list", kind), ("HUGE",), ("SET", "key", "value")):
            assert connection.run(*words) == "QUEUED"
        first, huge, last = connection.run("EXEC")
        assert str(first).startswith(error)
        assert str(huge) == "OOM command failed: not enough memory"
        assert last == "OK"
        assert connection.run("LRANGE", "list", "0", "-1") == [b"first", b"appended", b"appended"]
        store.end(signal.SIGKILL)
        store.errors.clear()  # tracebacks of the failed commands
    with running(*flags) as store, Connection(store.port) as connection:
        assert connection.run("LRANGE", "list", "0", "-1") == [b"first", b"appended", b"appended"]
        assert connection.run("LRANGE", "new", "0", "-1") == [b"appended"]
        assert connection.run("GET", "key") == b"value"


def test_a_failure_that_the_log_cannot_describe_ends_the_process(tmp_path: Path) -> None:
    """Without a log it is an error reply."""
    module = tmp_path / "half.py"
    module.write_text(COMMANDS)
    with running("--commands", str(module)) as store, Connection(store.port) as connection:
        assert str(connection.run("NEITHER")) == "OOM command failed: not enough memory"
        assert connection.run("PING") == "PONG"
    flags = ("--commands", str(module), "--kv-persistence-dir", str(tmp_path / "store"))
    with running(*flags) as store, Connection(store.port) as connection:
        with pytest.raises(ConnectionError):
            connection.run("NEITHER")
        assert store.process.wait(10) == 70
        store.end()
        said = "".join(store.errors)
        store.errors.clear()
    assert "verbena: logging the keys of NEITHER failed: " in said
