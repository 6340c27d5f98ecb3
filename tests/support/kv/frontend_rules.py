"""The rules that hold for every frontend of a store, as data: how a test sees each of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.kv.frontends import (
    LOOPBACK,
    Frontend,
    FrontendClient,
    RefusedError,
    Served,
    own_address,
    refuses_to_listen,
)
from support.kv.resp import ErrorReply, pack
from support.rdma.link import wait_until


@dataclass(frozen=True)
class Cell:
    """What a check gets. `admin` is a client of the Unix socket that stays connected."""

    served: Served
    frontend: Frontend
    admin: FrontendClient

    def connect(self, host: str = LOOPBACK) -> FrontendClient:
        return self.frontend.connect(self.served, host)

    @contextlib.contextmanager
    def configured(self, **values: object) -> Iterator[None]:
        """Parameters of CONFIG SET, "_" for "-"; the former values afterwards."""
        names = [name.replace("_", "-") for name in values]
        before = [self.admin("CONFIG", "GET", name)[1] for name in names]
        for name, value in zip(names, values.values(), strict=True):
            assert self.admin("CONFIG", "SET", name, str(value)) == "OK"
        try:
            yield
        finally:
            for name, former in zip(names, before, strict=True):
                assert self.admin("CONFIG", "SET", name, former) == "OK"

    @contextlib.contextmanager
    def user(self) -> Iterator[FrontendClient]:
        """A client that is authenticated as a user with few rights."""
        rights = ("on", ">password", "~mine:*", "&news", "+get", "+subscribe", "+publish", "+client")
        assert self.admin("ACL", "SETUSER", "alice", *rights) == "OK"
        try:
            with self.connect() as client:
                assert client("AUTH", "alice", "password") == "OK"
                yield client
        finally:
            self.admin("ACL", "DELUSER", "alice")

    def refusal(self, host: str = LOOPBACK) -> str:
        """The reason why a new client is refused; "": it is served."""
        try:
            with self.connect(host) as client:
                reply = client("PING")
                if reply == "PONG":
                    return ""
                assert isinstance(reply, ErrorReply), reply
                assert client.is_closed()
                return reply
        except (RefusedError, EOFError, ConnectionError) as error:
            return str(error) or "closed"

    def rejected(self) -> int:
        found = self.admin("INFO", "stats").split(b"rejected_connections:")[1]
        return int(found.split(b"\r\n")[0])

    def is_listed(self, client: int) -> bool:
        """Whether CLIENT LIST has it. The admin is not idle if this is called often."""
        return f"id={client} ".encode() in self.admin("CLIENT", "LIST")

    def is_blocked(self, client: int) -> bool:
        flags: bytes = self.admin("CLIENT", "LIST", "ID", client).split(b" flags=")[1].split(b" ")[0]
        return b"b" in flags


Check = Callable[[Cell], None]


@dataclass(frozen=True)
class Rule:
    """`instead`: another check for a frontend; `not_applicable`: the reason, by frontend. `is_timed`: it
    measures time, so no other test may run meanwhile."""

    name: str
    meaning: str
    check: Check
    instead: Mapping[str, Check] = field(default_factory=dict)
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    is_timed: bool = False


def _protected_mode(cell: Cell) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but the loopback's")
    before = cell.rejected()
    assert cell.refusal(address)
    assert cell.rejected() == before + 1
    assert cell.refusal() == ""
    with cell.configured(protected_mode="no"):
        assert cell.refusal(address) == ""


def _no_sessions_from_outside(cell: Cell) -> None:
    error = refuses_to_listen("--session-listen-address", "0.0.0.0", "--session-listen-port", "0")
    assert "connections from other machines need a secret or certificates" in error


def _max_clients(cell: Cell) -> None:
    with cell.configured(maxclients=2), cell.connect() as first:
        assert first("PING") == "PONG"
        before = cell.rejected()
        assert cell.refusal()
        assert cell.rejected() == before + 1
        assert first("PING") == "PONG"
    with cell.configured(maxclients=3), contextlib.ExitStack() as stack:  # several at once
        wait_until(lambda: _connected(cell) == 1, "the former clients to be gone")
        with ThreadPoolExecutor(8) as pool:
            served = [one for one in pool.map(lambda _: _try_to_connect(cell, stack), range(8)) if one]
        assert len(served) == 2
        assert _connected(cell) == 3


def _connected(cell: Cell) -> int:
    return int(cell.admin("INFO", "clients").split(b"connected_clients:")[1].split(b"\r\n")[0])


def _try_to_connect(cell: Cell, stack: contextlib.ExitStack) -> bool:
    """Whether the client is served; it stays connected."""
    try:
        return stack.enter_context(cell.connect())("PING") == "PONG"
    except (RefusedError, EOFError, ConnectionError):
        return False


def _password(cell: Cell) -> None:
    with cell.configured(requirepass="open sesame"), cell.connect() as client:
        for words in (("GET", "a"), ("PING",), ("SUBSCRIBE", "news"), ("CONFIG", "GET", "requirepass")):
            assert client(*words).startswith("NOAUTH")
        assert client("AUTH", "wrong").startswith("WRONGPASS")
        assert client("GET", "a").startswith("NOAUTH")
        assert client("AUTH", "open sesame") == "OK"
        assert client("GET", "a") is None


def _acl_commands(cell: Cell) -> None:
    with cell.user() as alice:
        assert alice("GET", "mine:a") is None
        for words in (("SET", "mine:a", "1"), ("FLUSHALL",), ("ACL", "LIST"), ("CONFIG", "GET", "*")):
            assert alice(*words).startswith("NOPERM")


def _acl_keys(cell: Cell) -> None:
    assert cell.admin("SET", "yours:a", "1") == "OK"
    with cell.user() as alice:
        assert alice("GET", "mine:a") is None
        assert alice("GET", "yours:a").startswith("NOPERM")


def _acl_channels(cell: Cell) -> None:
    with cell.user() as alice:
        assert alice("PUBLISH", "news", "x") == 0
        assert alice("PUBLISH", "secrets", "x").startswith("NOPERM")
        assert alice("SUBSCRIBE", "secrets").startswith("NOPERM")
        assert alice("SUBSCRIBE", "news") == [b"subscribe", b"news", 1]


def _deleted_user(cell: Cell) -> None:
    with cell.user() as alice:
        assert alice("GET", "mine:a") is None
        assert cell.admin("ACL", "DELUSER", "alice") == 1
        assert alice.is_closed()


def _timeout(cell: Cell) -> None:
    with cell.connect() as idle, cell.connect() as subscriber, cell.connect() as blocked:
        numbers = [client("CLIENT", "ID") for client in (idle, subscriber, blocked)]
        assert subscriber("SUBSCRIBE", "news") == [b"subscribe", b"news", 1]
        blocked.send("BLPOP", "queue", 0)
        with cell.configured(timeout=1):
            wait_until(lambda: not cell.is_listed(numbers[0]), "the idle client to be closed")
            assert idle.is_closed()
            assert cell.is_listed(numbers[1])
            assert cell.is_listed(numbers[2])
        assert subscriber("PING") == [b"pong", b""]
        assert cell.admin("RPUSH", "queue", "x") == 1
        assert blocked.read() == [b"queue", b"x"]


def _output_limit(cell: Cell) -> None:
    with cell.configured(client_output_buffer_limit="pubsub 1mb 0 0"), cell.connect() as slow:
        number = slow("CLIENT", "ID")
        assert slow("SUBSCRIBE", "flood") == [b"subscribe", b"flood", 1]
        message = "x" * 100_000
        for _ in range(2000):
            if cell.admin("PUBLISH", "flood", message) == 0:
                break
        else:
            pytest.fail("it was never closed")
        assert slow.is_closed()
        wait_until(lambda: not cell.is_listed(number), "the client to leave the list")


UNREAD, READ, VALUE_BYTES = 10_000, 100, 1_000_000


def _unread_replies(cell: Cell) -> None:
    values = [letter * VALUE_BYTES for letter in (b"a", b"b")]
    for value in values:
        assert cell.admin("SET", value[:1], value) == "OK"
    with cell.connect() as other:
        assert other("PING") == "PONG"
        before = _resident_bytes(cell)
        with cell.connect() as slow:
            slow.socket.sendall((pack("GET", "a") + pack("GET", "b")) * (UNREAD // 2))
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                for client in (other, cell.admin):
                    _ping_soon(client)
                grown = _resident_bytes(cell) - before
                assert grown < 64 << 20, f"{grown >> 20} MiB more memory"
            for number in range(READ):
                assert slow.read() == values[number % 2]
        _ping_soon(other)
    assert cell.admin("DEL", "a", "b") == 2


def _ping_soon(client: FrontendClient) -> None:
    began = time.monotonic()
    assert client("PING") == "PONG"
    took = time.monotonic() - began
    assert took < 0.05, f"a PING took {took * 1000:.0f} ms"


def _resident_bytes(cell: Cell) -> int:
    pages = int(Path(f"/proc/{cell.served.store.process.pid}/statm").read_text().split()[1])
    return pages * 4096


def _kill(cell: Cell) -> None:
    with cell.connect() as victim, cell.connect() as other:
        number = victim("CLIENT", "ID")
        assert victim("SELECT", 3) == "OK"
        assert cell.admin("CLIENT", "KILL", "ID", number) == 1
        wait_until(lambda: not cell.is_listed(number), "the client to leave the list")
        with pytest.raises((EOFError, OSError)):
            victim("PING")
        assert other("PING") == "PONG"


def _pause(cell: Cell) -> None:
    cell.admin("DEL", "paused")
    with cell.connect() as client:
        number = client("CLIENT", "ID")
        try:
            assert cell.admin("CLIENT", "PAUSE", 60_000, "WRITE") == "OK"
            assert client("GET", "paused") is None
            client.send("SET", "paused", "1")
            wait_until(lambda: cell.is_blocked(number), "the write to wait")
            assert cell.admin("GET", "paused") is None
        finally:
            cell.admin("CLIENT", "UNPAUSE")
        assert client.read() == "OK"
        assert cell.admin("GET", "paused") == b"1"


def _query_buffer(cell: Cell) -> None:
    with cell.configured(client_query_buffer_limit=1 << 20), cell.connect() as client:
        with contextlib.suppress(OSError):  # closed while it sends
            client.socket.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$8000000\r\n" + b"x" * (3 << 20))
        assert client.is_closed()
    assert cell.admin("EXISTS", "a") == 0


def _unauthenticated_requests(cell: Cell) -> None:
    with cell.configured(requirepass="open sesame"):
        for request, error in (
            (b"*1\r\n$20000\r\n", "ERR Protocol error: unauthenticated bulk length"),
            (b"*11\r\n", "ERR Protocol error: unauthenticated multibulk length"),
        ):
            with cell.connect() as client:
                client.socket.sendall(request)
                assert client.read() == error
                assert client.is_closed()


def _http(cell: Cell) -> None:
    for first in (b"POST / HTTP/1.1", b"Host: store"):
        with cell.connect() as browser:
            with contextlib.suppress(OSError):  # closed while it sends
                browser.socket.sendall(first + b"\r\nSET stolen 1\r\n\r\n")
            assert browser.is_closed()
    assert cell.admin("EXISTS", "stolen") == 0


RULES = {
    rule.name: rule
    for rule in (
        Rule(
            "protected mode",
            "Without a password only this machine is served (`kv.protected_mode`). Sessions from other"
            " machines need a secret or a certificate: without either, the store does not start.",
            _protected_mode,
            instead={"session": _no_sessions_from_outside},
            not_applicable={"unix": "only this machine can reach it"},
        ),
        Rule("maxclients", "A client beyond `kv.maxclients` is refused and counted.", _max_clients),
        Rule("password", "With a password, a client gets nothing before AUTH.", _password),
        Rule("ACL: commands", "A user may run the commands of its rules only.", _acl_commands),
        Rule("ACL: keys", "A user may access the keys of its rules only.", _acl_keys),
        Rule("ACL: channels", "A user may use the channels of its rules only.", _acl_channels),
        Rule("deleted user", "ACL DELUSER closes the clients of the user.", _deleted_user),
        Rule(
            "timeout",
            "After `kv.timeout_s` an idle client is closed; a subscriber or a blocked client is not.",
            _timeout,
        ),
        Rule(
            "output limit",
            "A client beyond `kv.client_output_buffer_limit` is closed.",
            _output_limit,
        ),
        Rule(
            "unread replies",
            "Commands of a client that does not read its replies wait: beside 10,000 unread GETs of 1 MB,"
            " memory is bounded, and others have their replies within 50 ms.",
            _unread_replies,
            is_timed=True,
        ),
        Rule("CLIENT KILL", "It closes the client, whose next command fails.", _kill),
        Rule("CLIENT PAUSE", "Commands wait until the pause ends, and are answered then.", _pause),
        Rule("query buffer", "A client beyond `client-query-buffer-limit` is closed.", _query_buffer),
        Rule(
            "unauthenticated requests",
            "Before AUTH a request has at most 10 arguments of 16 KiB.",
            _unauthenticated_requests,
        ),
        Rule(
            "HTTP", "A line that begins with POST or Host: closes the client; later lines do not run.", _http
        ),
    )
}
