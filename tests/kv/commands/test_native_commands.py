"""Native commands: the engine enforces the declarations that COMMAND INFO reports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from kv.redis_peer import MISSING, SERVER, Peer, redis_server
from support.kv.store import Store

from verbena._native.kv import native_commands
from verbena.kv.commands import load
from verbena.kv.commands.declare import COMMANDS, FLAGS, GROUPS

load()

NATIVE = sorted(name for name, row in COMMANDS.items() if row.function is None)


@pytest.fixture(scope="module")
def client(store: Store) -> Iterator[redis.Redis]:
    with redis.Redis(port=store.port) as connection:
        yield connection


def test_the_rows_of_python_are_the_rows_of_the_engine() -> None:
    assert sorted(row.name for row in native_commands()) == NATIVE


@pytest.mark.parametrize("name", NATIVE)
def test_flags_and_groups_are_known(name: str) -> None:
    row = COMMANDS[name]
    assert row.flags <= FLAGS
    assert row.group in GROUPS
    assert row.summary.endswith(".")


@pytest.mark.parametrize("name", NATIVE)
def test_the_engine_enforces_the_arity_that_command_info_reports(client: redis.Redis, name: str) -> None:
    """Fewer arguments than `arity`, or more than a fixed one, are refused with Redis's error."""
    (row,) = client.execute_command("COMMAND INFO", name)
    arity = row[1]
    assert arity == COMMANDS[name].arity
    refused = f"wrong number of arguments for '{name.lower()}' command"
    wrong = [abs(arity) - 1] if arity < 0 else [arity - 1, arity + 1]
    for count in wrong:
        if count > 0:
            with pytest.raises(redis.ResponseError, match=refused):
                client.execute_command(name, *["1"] * (count - 1))


@pytest.mark.skipif(SERVER is None, reason=MISSING)
def test_the_table_agrees_with_redis(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Arity, flags and key positions are those that redis-server reports."""
    with redis_server(tmp_path_factory.mktemp("redis")) as path:
        peer = Peer(path, 2)
        differing = {}
        for name in NATIVE:
            row = peer.run("COMMAND", "INFO", name)[1][0][1]
            theirs = (row[1][1], {flag for _, flag in row[2][1]}, tuple(number for _, number in row[3:6]))
            ours = (COMMANDS[name].arity, set(COMMANDS[name].flags), COMMANDS[name].keys)
            if theirs != ours:
                differing[name] = (theirs, ours)
        peer.close()
    assert not differing
