"""Strings, keys and transactions compared with the distribution's redis-server: equal replies to equal random
commands. Native code answers most of them."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kv.kv_store import running
from support.kv.resp import ErrorReply, RespConnection
from support.ports import free_port

KEYS = st.sampled_from(["a", "b", "c", "key with spaces", "n"])
VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "1", "-1", "10", "9223372036854775807", "3.5", "x", "hello", " 1", "1.0e3", "abc" * 30]
    ),
    st.integers(-(2**64), 2**64).map(str),
)
NUMBERS = st.one_of(st.sampled_from(["0", "1", "-1", "5", "100", "x", "", "1.5", "9223372036854775807"]))
OFFSETS = st.integers(-12, 12).map(str)
TIMES = st.sampled_from(["100", "1000", "0", "-1", "x", "9223372036854775807"])  # far from expiry
FAR = st.sampled_from(["33177117420", "33177117420000", "1", "0", "-5", "x"])  # Unix times
NAN = st.sampled_from(["1.5", "-0.25", "3", "1e5", "nan", "x", "inf"])


def command(name: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.tuples(*parts).map(lambda words: (name, *_flat(words)))


def _flat(words: tuple[Any, ...]) -> list[str]:
    return [word for part in words for word in (part if isinstance(part, (list, tuple)) else [part])]


SET_OPTIONS = st.lists(
    st.one_of(
        st.sampled_from([["NX"], ["XX"], ["GET"], ["KEEPTTL"], ["nonsense"]]),
        st.tuples(st.sampled_from(["EX", "PX"]), TIMES).map(list),
        st.tuples(st.sampled_from(["EXAT", "PXAT"]), FAR).map(list),
    ),
    max_size=2,
).map(lambda parts: [word for part in parts for word in part])
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3).map(lambda pairs: _flat(tuple(pairs)))
GETEX_OPTIONS = st.sampled_from([[], ["PERSIST"], ["EX", "100"], ["EX", "0"], ["EX", "10", "PERSIST"]])
EXPIRE_OPTIONS = st.lists(st.sampled_from(["NX", "XX", "GT", "LT", "zz"]), max_size=2)

COMMANDS = st.one_of(
    command("GET", KEYS),
    command("SET", KEYS, VALUES, SET_OPTIONS),
    command("SET", KEYS, VALUES),
    command("SETNX", KEYS, VALUES),
    command("SETEX", KEYS, TIMES, VALUES),
    command("PSETEX", KEYS, TIMES, VALUES),
    command("GETSET", KEYS, VALUES),
    command("GETDEL", KEYS),
    command("GETEX", KEYS, GETEX_OPTIONS),
    command("MGET", st.lists(KEYS, min_size=1, max_size=3)),
    command("MSET", PAIRS),
    command("MSETNX", PAIRS),
    command("MSET", KEYS, VALUES, KEYS),
    command("APPEND", KEYS, VALUES),
    command("STRLEN", KEYS),
    command("GETRANGE", KEYS, OFFSETS, OFFSETS),
    command("SETRANGE", KEYS, OFFSETS, VALUES),
    command("INCR", KEYS),
    command("DECR", KEYS),
    command("INCRBY", KEYS, NUMBERS),
    command("DECRBY", KEYS, NUMBERS),
    command("INCRBYFLOAT", KEYS, NAN),
    command("DEL", st.lists(KEYS, min_size=1, max_size=3)),
    command("UNLINK", KEYS),
    command("EXISTS", st.lists(KEYS, min_size=1, max_size=3)),
    command("TOUCH", KEYS),
    command("TYPE", KEYS),
    command("EXPIRE", KEYS, TIMES, EXPIRE_OPTIONS),
    command("PEXPIRE", KEYS, TIMES, EXPIRE_OPTIONS),
    command("EXPIREAT", KEYS, FAR, EXPIRE_OPTIONS),
    command("PEXPIREAT", KEYS, FAR),
    command("TTL", KEYS),
    command("EXPIRETIME", KEYS),
    command("PEXPIRETIME", KEYS),
    command("PERSIST", KEYS),
    command("LPUSH", KEYS, VALUES),  # of another type, to cause WRONGTYPE
    command("PING"),
    command("PING", VALUES),
    command("ECHO", VALUES),
    command("DBSIZE"),
    command("FLUSHDB"),
    command("SELECT", st.sampled_from(["0", "1", "99", "x"])),
    command("SWAPDB", st.sampled_from(["0", "1"]), st.sampled_from(["0", "1", "77"])),
    command("MULTI"),
    command("EXEC"),
    command("DISCARD"),
    command("WATCH", KEYS),
    command("UNWATCH"),
    command("GET"),
    command("NOSUCHCOMMAND", VALUES),
)  # fmt: skip


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    tool = shutil.which("redis-server")
    if tool is None:
        pytest.skip("redis-server is not here (Debian: redis-server)")
    path = folder / "redis.sock"
    port = free_port()
    process = subprocess.Popen(
        [tool, "--port", str(port), "--save", "", "--dir", str(folder), "--unixsocket", str(path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert any("Ready to accept" in line for line in process.stdout)
        yield port
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RespConnection, RespConnection]]:
    with (
        redis_server(tmp_path_factory.mktemp("redis")) as port,
        running() as store,
        RespConnection(store.port) as own,
        RespConnection(port) as other,
    ):
        yield own, other


def plain(reply: Any) -> Any:
    """Replies without what may differ: seconds that pass, and the details of some errors."""
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    if isinstance(reply, ErrorReply):
        # Redis 7.0 includes an argument here, later versions do not.
        return ErrorReply(re.sub(r", with args beginning with:.*", "", reply))
    return reply


@settings(max_examples=150)
@given(program=st.lists(COMMANDS, min_size=1, max_size=30))
def test_replies_are_those_of_redis(
    pair: tuple[RespConnection, RespConnection], program: list[tuple[str, ...]]
):
    """Every reply, value or error, in the order of the commands."""
    ours, theirs = pair
    for words in (("RESET",), ("FLUSHALL",), *program, ("RESET",)):
        answer, expected = ours(*words), theirs(*words)
        if words[0] in ("TTL", "EXPIRETIME", "PEXPIRETIME") and isinstance(answer, int):
            assert abs(answer - expected) <= (5000 if words[0] == "PEXPIRETIME" else 5), words  # times differ
        else:
            assert plain(answer) == plain(expected), words
