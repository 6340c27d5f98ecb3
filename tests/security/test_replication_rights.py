"""Replication requires the rights that Redis requires of a replica, at the request and afterwards."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kv.replicas import Served, everything, in_step, served, until
from support.kv.resp import pack

from verbena import kv, transport
from verbena.kv.replication.link import METHOD, VERSION
from verbena.verbs import Access

PASSWORD = "primary's password"
REPLICA = ("on", ">replica's password", "+psync", "+replconf", "+ping")
AS_REPLICA = ("--replication-primary-user=replica",)


def secret(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[Served]:
    """A store with a password, and an ACL file, in which no user has the rights of a replica yet."""
    flags = f"--kv-password-file={secret(tmp_path, 'password', PASSWORD)}", f"--kv-acl-file={tmp_path}/acl"
    with served(*flags) as store:
        assert store.run("AUTH", PASSWORD) == "OK"
        store.run("SET", "k", "v")
        yield store


@contextlib.contextmanager
def replica_of(primary: Served, folder: Path, *flags: str, password: str = "") -> Iterator[Served]:
    """The primary is named by its port for sessions, so that nothing but the session can refuse it."""
    if password:
        flags = (*flags, f"--replication-primary-password-file={secret(folder, 'replica', password)}")
    with served(*flags) as store:
        store.run("REPLICAOF", "127.0.0.1", str(primary.sessions))
        yield store


def refusals(primary: Served) -> list[dict[str, Any]]:
    rows = primary.run("ACL", "LOG")
    return [dict(zip((name.decode() for name in row[::2]), row[1::2], strict=True)) for row in rows]


def in_one_packet(store: Served, *commands: tuple[str, ...]) -> list[Any]:
    store.connection.socket.sendall(b"".join(pack(*words) for words in commands))
    return [store.connection.receive() for _ in commands]


def gets_nothing(primary: Served, replica: Served, why: str) -> None:
    """The replica reports the reason; the primary holds no backlog for it."""
    until(lambda: why in replica.info()["master_link_error"], f"{why}: {replica.info()}")
    assert replica.run("DBSIZE") == 0
    info = primary.info()
    assert (info["connected_slaves"], info["repl_backlog_active"]) == ("0", "0")
    assert primary.run("SET", "k", "v") == "OK"
    assert primary.run("WAIT", "1", "20") == 0


# The request


async def test_a_session_without_a_user_gets_no_copy(primary: Served) -> None:
    """Neither without a stream, nor with one that has not authenticated, nor with another session's."""
    address = f"127.0.0.1:{primary.sessions}"
    async with (
        kv.AsyncClient(address, password=PASSWORD) as authenticated,
        await transport.connect(address) as session,
    ):
        anonymous = kv.AsyncClient(session)
        await anonymous.run([["PING"]])
        ring = session.node.allocate(1 << 20, access=Access.REMOTE_WRITE, session=session)
        for stream in (None, "1", 12345, anonymous.stream, authenticated.stream):
            request = {
                "version": VERSION,
                "stream": stream,
                "port": 1,
                "replid": "",
                "lsn": 0,
                "offset": 0,
                "ring_key": ring.remote.key,
                "ring_bytes": len(ring),
                "ring_tag": 1,
                "databases": 16,
            }
            answer = json.loads(await session.call(METHOD, json.dumps(request).encode()))
            assert answer == {"version": VERSION, "error": answer["error"]}
            assert answer["error"].startswith("NOAUTH")
        assert bytes(ring) == bytes(1 << 20)
        ring.close()
    info = primary.info()
    assert (info["connected_slaves"], info["repl_backlog_active"]) == ("0", "0")
    (row,) = [row for row in refusals(primary) if row["object"] == b"psync"]
    assert (row["reason"], row["count"]) == (b"command", 5)


def test_a_replica_without_a_password_gets_nothing(primary: Served, tmp_path: Path) -> None:
    with replica_of(primary, tmp_path) as replica:
        gets_nothing(primary, replica, "NOAUTH")
        assert {row["reason"] for row in refusals(primary)} == {b"command"}
        assert b"addr=127.0.0.1:" in refusals(primary)[0]["client-info"]


def test_a_replica_without_a_password_is_refused_at_the_port_for_clients_too(primary: Served) -> None:
    """The usual way: REPLICAOF names the port for clients. The error names the remedy."""
    with served() as replica:
        replica.follow(primary)
        gets_nothing(primary, replica, "replication.primary_password")
        assert [(row["reason"], row["object"]) for row in refusals(primary)] == [(b"command", b"replconf")]


def test_a_replica_with_a_wrong_password_gets_nothing(primary: Served, tmp_path: Path) -> None:
    with replica_of(primary, tmp_path, password="not the password") as replica:
        gets_nothing(primary, replica, "WRONGPASS")
        assert {row["reason"] for row in refusals(primary)} == {b"auth"}


@pytest.mark.parametrize("missing", ["psync", "replconf"])
def test_a_user_without_a_right_gets_nothing(primary: Served, tmp_path: Path, missing: str) -> None:
    """All other rights do not replace it."""
    primary.run("ACL", "SETUSER", "replica", *REPLICA, "allkeys", "+@all", f"-{missing}")
    with replica_of(primary, tmp_path, *AS_REPLICA, password="replica's password") as replica:
        gets_nothing(
            primary, replica, f"NOPERM User replica has no permissions to run the '{missing}' command"
        )
        (row,) = refusals(primary)
        assert (row["reason"], row["username"]) == (b"command", b"replica")


def test_psync_and_replconf_over_resp_name_sessions(primary: Served) -> None:
    for words in (("PSYNC", "?", "-1"), ("REPLCONF", "listening-port", "1")):
        assert "replication runs over sessions" in primary.run(*words)
    assert primary.run("REPLCONF", "SESSIONS-PORT") == primary.sessions
    assert primary.run("COMMAND", "INFO", "psync")[0][1] == -3


# A replica with the right


def test_a_user_with_the_rights_of_a_replica_follows(primary: Served, tmp_path: Path) -> None:
    """+psync +replconf +ping are enough, by the port for clients. CLIENT LIST shows its stream and user."""
    primary.run("ACL", "SETUSER", "replica", *REPLICA)
    file = secret(tmp_path, "replica", "replica's password")
    with served(*AS_REPLICA, f"--replication-primary-password-file={file}") as replica:
        replica.follow(primary)
        in_step(primary, replica)
        primary.run("RPUSH", "list", "a", "b")
        assert primary.run("WAIT", "1", "0") == 1
        in_step(primary, replica)
        assert everything(replica) == everything(primary)
        (row,) = primary.run("CLIENT", "LIST", "TYPE", "replica").decode().splitlines()
        fields = dict(field.split("=", 1) for field in row.split())
        assert (fields["user"], fields["flags"]) == ("replica", "S")
        assert fields["addr"].startswith("127.0.0.1:")
        assert refusals(primary) == []


def test_an_idle_replica_is_not_disconnected() -> None:
    """`timeout` does not apply to the stream of a replica, as in Redis."""
    with served() as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        primary.run("CONFIG", "SET", "timeout", "1")
        row = primary.run("CLIENT", "LIST", "TYPE", "replica").decode()
        first = row.split()[0]

        def idle() -> bool:
            (row,) = primary.run("CLIENT", "LIST", "TYPE", "replica").decode().splitlines()
            assert row.split()[0] == first
            return int(row.split("idle=")[1].split()[0]) >= 4

        until(idle, "it is idle for longer than the timeout")


# Rights that end


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (("ACL", "SETUSER", "replica", "-psync"), "'psync' command"),
        (("ACL", "SETUSER", "replica", "-@all"), "NOPERM"),
        (("ACL", "SETUSER", "replica", "off"), "WRONGPASS"),
        (("ACL", "SETUSER", "replica", "resetpass"), "WRONGPASS"),
        (("ACL", "SETUSER", "replica", "resetpass", ">another password"), "WRONGPASS"),
        (("ACL", "DELUSER", "replica"), "WRONGPASS"),
        (("ACL", "LOAD"), "WRONGPASS"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_right_that_ends_ends_the_link(
    primary: Served, tmp_path: Path, rule: tuple[str, ...], why: str
) -> None:
    """At once: a write in the same packet does not reach the replica, and WAIT does not count it. The replica
    reports the reason, and follows again when it may."""
    assert primary.run("ACL", "SAVE") == "OK"  # without the user
    primary.run("ACL", "SETUSER", "replica", *REPLICA)
    with replica_of(primary, tmp_path, *AS_REPLICA, password="replica's password") as replica:
        in_step(primary, replica)
        replies = in_one_packet(primary, rule, ("SET", "after", "x"), ("WAIT", "1", "100"))
        assert replies[1:] == ["OK", 0], replies
        ended = time.monotonic()
        until(lambda: primary.info()["connected_slaves"] == "0", "the link ends")
        assert time.monotonic() - ended < 1
        until(lambda: why in replica.info()["master_link_error"], f"the reason is {why}")
        assert replica.info()["master_link_status"] == "down"
        assert replica.run("EXISTS", "k", "after") == 1
        assert primary.run("CLIENT", "LIST", "TYPE", "replica") == b""
        primary.run("ACL", "SETUSER", "replica", *REPLICA)
        in_step(primary, replica)
        assert replica.run("EXISTS", "k", "after") == 2


def test_min_replicas_does_not_count_a_replica_without_rights(primary: Served, tmp_path: Path) -> None:
    primary.run("ACL", "SETUSER", "replica", *REPLICA)
    primary.run("CONFIG", "SET", "min-replicas-to-write", "1")
    with replica_of(primary, tmp_path, *AS_REPLICA, password="replica's password") as replica:
        in_step(primary, replica)
        until(lambda: primary.run("SET", "k", "v") == "OK", "it follows")
        primary.run("ACL", "DELUSER", "replica")
        began = time.monotonic()
        until(lambda: str(primary.run("SET", "k", "v")).startswith("NOREPLICAS"), "it does not count")
        assert time.monotonic() - began < 1


def test_a_password_of_the_default_user_ends_links_without_it() -> None:
    """CONFIG SET requirepass: a replica that needed no password before must have it from now on."""
    with served() as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        rule = ("CONFIG", "SET", "requirepass", PASSWORD)
        assert in_one_packet(primary, rule, ("SET", "after", "x")) == ["OK", "OK"]
        until(lambda: "NOAUTH" in replica.info()["master_link_error"], "the reason")
        assert replica.run("EXISTS", "after") == 0
        assert primary.run("CONFIG", "SET", "requirepass", "") == "OK"
        in_step(primary, replica)


def test_client_kill_ends_the_link_and_the_replica_returns() -> None:
    with served() as primary, served() as replica:
        replica.follow(primary)
        in_step(primary, replica)
        assert primary.run("CLIENT", "KILL", "TYPE", "replica") == 1
        until(lambda: replica.info()["replica_partial_syncs"] == "1", "it continues where it was")
        in_step(primary, replica)
