"""A store under a memory limit, with requests that need more than there is. Other clients are served on, or
the process ends with a message and a status other than 0; acknowledged data is there after a restart."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.kv.kv_store import Store, running
from support.kv.resp import Connection, pack
from support.ports import free_port

import verbena.kv
from verbena.errors import VerbenaError

MIB = 1 << 20
HEADROOM_BYTES = 256 * MIB
BIG = b"b" * (200 * MIB)
VALUE = b"v" * MIB
Command = tuple[bytes, ...]

REQUESTS: dict[str, list[Command]] = {
    "append": [(b"APPEND", b"big", BIG)],
    "mget": [(b"MGET", *[b"value"] * 600)],
    "publish": [(b"PUBLISH", b"channel", BIG)],
    "setrange": [(b"SETRANGE", b"big", b"%d" % (511 * MIB), b"x")],
    "setbit": [(b"SETBIT", b"bits", b"4000000000", b"1")],
    "rpush": [(b"RPUSH", b"list", *[VALUE] * 150)],
    "pipeline": [(b"GET", b"value")] * 1000,
    "transaction": [
        (b"MULTI",),
        (b"MGET", *[b"value"] * 300),
        (b"SETRANGE", b"big", b"%d" % (511 * MIB), b"x"),
        (b"SET", b"inside", b"a transaction"),
        (b"MGET", *[b"value"] * 300),
        (b"EXEC",),
    ],
}


@contextlib.contextmanager
def limited(folder: Path) -> Iterator[tuple[Store, str, str]]:
    """A store that may use HEADROOM_BYTES more address space than after its start; its session address, and
    the address of its health page."""
    page = f"127.0.0.1:{free_port()}"
    with running(
        "--kv-persistence-dir", str(folder), "--session-listen-port", "0", "--metrics-listen", page
    ) as store:
        with Connection(store.port) as connection:
            assert connection.run(b"SET", b"value", VALUE) == "OK"
        status = Path(f"/proc/{store.process.pid}/status").read_text()
        [used_kib] = re.findall(r"^VmSize:\s+([0-9]+) kB$", status, re.M)
        most = int(used_kib) * 1024 + HEADROOM_BYTES
        resource.prlimit(store.process.pid, resource.RLIMIT_AS, (most, most))
        [sessions] = re.findall(r"^  sessions +(\S+)", store.banner, re.M)
        yield store, sessions, page


def send(port: int, commands: Sequence[Command]) -> list[object]:
    """Sends all, then reads the replies; fewer if the store disconnects."""
    replies: list[object] = []
    with Connection(port) as connection, contextlib.suppress(OSError):
        for command in commands:
            connection.socket.sendall(pack(*command))
        for _ in commands:
            replies.append(connection.receive())
    return replies


def send_by_session(address: str, commands: Sequence[Command]) -> list[object]:
    with verbena.kv.Client(address) as client:
        try:
            return list(client.run(commands))
        except (VerbenaError, OSError, EOFError):
            return []


NO_MEMORY = "OOM command failed: not enough memory"


def is_as_expected(request: str, replies: list[object]) -> bool:
    """Whether the replies are right, as far as they must be: a client whose request does not fit into memory
    is disconnected without a reply."""
    if request in ("mget", "setrange", "setbit"):
        return [str(reply) for reply in replies] == [NO_MEMORY]
    if request == "pipeline":
        return all(reply == VALUE for reply in replies)
    if request == "transaction":
        return [str(reply) for reply in replies[-1]] == [NO_MEMORY, NO_MEMORY, "OK", NO_MEMORY]  # type: ignore
    return not replies or str(replies[-1]) == NO_MEMORY or isinstance(replies[-1], int)


def is_healthy(page: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{page}/healthz", timeout=5) as answer:
            return answer.status == 200
    except urllib.error.HTTPError:
        return False


@pytest.mark.alone
@pytest.mark.parametrize(("wire", "rounds"), [("tcp", 3), ("session", 1)], ids=["tcp", "session"])
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_that_needs_too_much_memory_harms_no_other_client(
    tmp_path: Path, request_: str, wire: str, rounds: int
) -> None:
    """Several times in a row: what a failed request used is free again."""
    acknowledged = []
    with limited(tmp_path) as (store, sessions, page), Connection(store.port) as other:
        subscriber = socket.create_connection(("127.0.0.1", store.port))
        subscriber.sendall(pack(b"SUBSCRIBE", b"channel"))
        for round_ in range(rounds):
            if wire == "tcp":
                replies = send(store.port, REQUESTS[request_])
            else:
                replies = send_by_session(sessions, REQUESTS[request_])
            began = time.monotonic()
            try:
                assert other.run(b"SET", b"key:%d" % round_, b"%d" % round_) == "OK"
            except ConnectionError:
                assert store.process.wait(10) == 70
                break
            assert time.monotonic() - began < 1
            assert is_healthy(page)
            assert is_as_expected(request_, replies)
            acknowledged.append(round_)
        subscriber.close()
        ended = store.process.poll()
        store.end(signal.SIGKILL)
    assert ended is None or "; the process ends" in "".join(store.errors)
    with running("--kv-persistence-dir", str(tmp_path)) as store, Connection(store.port) as connection:
        for i in acknowledged:
            assert connection.run(b"GET", b"key:%d" % i) == b"%d" % i
        assert connection.run(b"GET", b"value") == VALUE
