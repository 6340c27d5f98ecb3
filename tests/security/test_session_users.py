"""kv.session_users: a stream of a session begins as the user of what the peer has proved, and has that user's
rights from then on."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Authority
from support.kv.replicas import Served, everything, in_step, served, until
from support.other_user import NOBODY, run_as

from verbena import kv, transport
from verbena.errors import ClosedError, RemoteError
from verbena.kv import CommandError
from verbena.kv.frontends.session_users import SessionUsers
from verbena.transport import Principal, Settings
from verbena.transport.handshake.tls import client_context

SECRET = "correct horse battery staple"
PASSWORD = "of the default user"
OWN = f"uid:{os.geteuid()}"
APP = ("on", "~app:*", "+@read", "+@write", "+acl|whoami", "+client|info", "+reset", "+auth")


def private(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    file.chmod(0o600)
    return file


@contextlib.contextmanager
def store_of(folder: Path, users: str, *flags: str) -> Iterator[Served]:
    """A store with a password and a user `app`, which has none and cannot authenticate by AUTH."""
    password = f"--kv-password-file={private(folder, 'password', PASSWORD)}"
    with served(password, f"--kv-session-users={users}", *flags) as store:
        assert store.run("AUTH", PASSWORD) == "OK"
        assert store.run("ACL", "SETUSER", "app", *APP) == "OK"
        yield store


@contextlib.asynccontextmanager
async def client_of(store: Served, **options: Any) -> Any:
    session = await transport.connect(f"127.0.0.1:{store.sessions}", **options)
    async with session:
        yield kv.AsyncClient(session)


async def error_of(client: kv.AsyncClient, *words: str) -> str:
    with pytest.raises(CommandError) as raised:
        await client.execute(*words)
    return str(raised.value)


async def is_app(client: kv.AsyncClient) -> None:
    assert await client.execute("ACL", "WHOAMI") == b"app"
    assert await client.execute("SET", "app:k", "v") == "OK"
    assert (await error_of(client, "SET", "other", "v")).startswith("NOPERM")
    assert (await error_of(client, "CONFIG", "GET", "requirepass")).startswith("NOPERM")


# Each kind of proof


async def test_by_the_secret(tmp_path: Path) -> None:
    file = private(tmp_path, "secret", SECRET)
    with store_of(tmp_path, "secret=app", f"--session-secret-file={file}") as store:
        async with client_of(store, secret=SECRET, config=Settings()) as client:
            await is_app(client)


async def test_by_a_certificate(tmp_path: Path) -> None:
    """Of two certificates of the same authority, one has a user; the other begins unauthenticated."""
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    flags = (
        f"--tls-certificate={pair.certificate}",
        f"--tls-key={pair.key}",
        f"--tls-ca={authority.ca}",
        "--tls-require-client-certificate",
    )
    with store_of(tmp_path, "certificate:DNS:web.example=app", *flags) as store:
        for name in ("web.example", "other.example"):
            shown = authority.issue(name, names=f"DNS:{name}")
            tls = client_context(ca=authority.ca, certificate=shown.certificate, key=shown.key)
            async with client_of(store, tls=tls, config=Settings()) as client:
                if name == "web.example":
                    await is_app(client)
                else:
                    assert (await error_of(client, "ACL", "WHOAMI")).startswith("NOAUTH")


def test_by_the_uid_of_another_user_of_the_host(tmp_path: Path) -> None:
    """Processes of this user have no mapping and begin unauthenticated."""
    body = """
async def use():
    session = await verbena.connect(arguments["address"], wire="iwarp", config=Settings())
    async with session:
        client = AsyncClient(session)
        replies = await client.run([["ACL", "WHOAMI"], ["SET", "app:k", "v"], ["SET", "other", "v"]])
        return [reply.decode() if isinstance(reply, bytes) else str(reply) for reply in replies]
result = outcome(use)
"""
    with store_of(tmp_path, f"uid:{NOBODY}=app", f"--session-allow-uids={NOBODY}") as store:
        address = f"127.0.0.1:{store.sessions}"
        replies = run_as(body, address=address)
        assert replies[:2] == ["app", "OK"]
        assert replies[2].startswith("NOPERM")
        own = run_as(body, uid=os.geteuid(), address=address)
        assert [reply.split()[0] for reply in own] == ["NOAUTH"] * 3


ADMINISTER = """
async def use():
    session = await verbena.connect(arguments["address"], wire="iwarp", config=Settings())
    async with session:
        answers = []
        for method in ("verbena.status", "verbena.drill"):
            try:
                await session.call(method)
                answers.append("")
            except errors.RemoteError as error:
                answers.append(error.detail)
        return answers
result = outcome(use)
"""


@pytest.mark.parametrize("rules", [APP, ("on", "~*", "&*", "+@all")], ids=["few rights", "all rights"])
def test_only_a_user_with_all_rights_may_list_and_break_sessions(
    tmp_path: Path, rules: tuple[str, ...]
) -> None:
    """The built-in methods of a node show other clients and end their links, as CLIENT LIST and KILL do. The
    store's own user of the host may call them, too."""
    with store_of(tmp_path, f"uid:{NOBODY}=app", f"--session-allow-uids={NOBODY}") as store:
        address = f"127.0.0.1:{store.sessions}"
        store.run("ACL", "SETUSER", "app", "reset", *rules)
        for answer in run_as(ADMINISTER, address=address):
            assert ("is not mapped to a user of the store with all rights" in answer) is (rules is APP)
        status, drill = run_as(ADMINISTER, uid=os.geteuid(), address=address)
        assert status == ""
        assert "allow_drill" in drill  # the configuration must allow drills, too


def test_the_strongest_proof_that_has_a_user_decides() -> None:
    users = SessionUsers.parse("uid:7=by_uid, secret=by_secret,certificate:DNS:web=by_certificate")
    for principal, user in (
        (Principal("certificate", "DNS:web", 7, has_secret=True), "by_certificate"),
        (Principal("certificate", "DNS:other", 7, has_secret=True), "by_secret"),
        (Principal("certificate", "DNS:other", 7), "by_uid"),
        (Principal("uid", uid=8), None),
        (Principal("none", uid=7), None),  # the kernel's report is no proof unless the uid is allowed
    ):
        assert users.user_of(principal) == user


# Without a user


async def test_without_a_mapping_a_stream_begins_as_a_tcp_client(tmp_path: Path) -> None:
    """The default user if it needs no password, else unauthenticated until AUTH in the stream."""
    with store_of(tmp_path, "secret=app") as store:
        async with client_of(store) as client:
            assert (await error_of(client, "GET", "k")).startswith("NOAUTH")
            assert await client.execute("AUTH", PASSWORD) == "OK"
            assert await client.execute("ACL", "WHOAMI") == b"default"
            other = kv.AsyncClient(client.session)  # authentication belongs to the stream
            assert (await error_of(other, "GET", "k")).startswith("NOAUTH")
    with served() as store:
        async with client_of(store) as client:
            assert await client.execute("ACL", "WHOAMI") == b"default"


async def test_a_user_that_does_not_exist_gives_no_rights_and_a_warning(tmp_path: Path) -> None:
    """Even while the default user needs no password: a mapping never gives more than its user."""
    with served(f"--kv-session-users={OWN}=typo") as store:
        async with client_of(store) as client:
            assert (await error_of(client, "GET", "k")).startswith("NOAUTH")
        store.run("ACL", "SETUSER", "typo", *APP)
        async with client_of(store) as client:
            assert await client.execute("ACL", "WHOAMI") == b"typo"
        store.process.terminate()
        assert store.process.stderr is not None
        assert f"there is no user typo: streams of {OWN} begin unauth" in store.process.stderr.read()


@pytest.mark.parametrize("users", ["secret", "uid:me=app", "pid:1=app", "secret=a b", "secret=a,secret=b"])
def test_a_table_that_cannot_be_meant_is_refused(users: str) -> None:
    with pytest.raises(RuntimeError, match="session_users"), served(f"--kv-session-users={users}"):
        pass


# The user changes


async def test_rights_follow_the_user(tmp_path: Path) -> None:
    with store_of(tmp_path, f"{OWN}=app") as store:
        async with client_of(store) as client:
            await is_app(client)
            store.run("ACL", "SETUSER", "app", "-set")
            assert (await error_of(client, "SET", "app:k", "v")).startswith("NOPERM")
            store.run("ACL", "SETUSER", "app", "off")
            assert (await error_of(client, "GET", "app:k")).startswith("NOAUTH")
            second = kv.AsyncClient(client.session)
            assert (await error_of(second, "GET", "app:k")).startswith("NOAUTH")
            store.run("ACL", "SETUSER", "app", "on", "+set")
            await is_app(client)
            third = kv.AsyncClient(client.session)
            await is_app(third)


async def test_deluser_ends_the_streams_of_a_mapped_user(tmp_path: Path) -> None:
    """The session stays; its streams are closed, and further ones begin unauthenticated."""
    with store_of(tmp_path, f"{OWN}=app") as store:
        async with client_of(store) as client:
            await is_app(client)
            assert store.run("ACL", "DELUSER", "app") == 1
            with pytest.raises(ClosedError):
                await client.execute("GET", "app:k")
            with pytest.raises(RemoteError, match="the store has closed the stream"):
                await client.session.call("kv.layout", client.stream.to_bytes(4, "little"))
            further = kv.AsyncClient(client.session)
            assert (await error_of(further, "GET", "app:k")).startswith("NOAUTH")
            assert await client.session.call("kv.layout", further.stream.to_bytes(4, "little")) == b""


async def test_auth_and_reset_within_the_stream(tmp_path: Path) -> None:
    """AUTH makes it another user; RESET makes it what it was at the beginning."""
    with store_of(tmp_path, f"{OWN}=app") as store:
        async with client_of(store) as client:
            assert await client.execute("AUTH", "default", PASSWORD) == "OK"
            assert await client.execute("ACL", "WHOAMI") == b"default"
            assert await client.execute("RESET") == "RESET"
            await is_app(client)


async def test_client_info_shows_address_and_user(tmp_path: Path) -> None:
    with store_of(tmp_path, f"{OWN}=app") as store:
        async with client_of(store) as client:
            info = (await client.execute("CLIENT", "INFO")).decode()
            (row,) = [row for row in store.run("CLIENT", "LIST").decode().splitlines() if " user=app " in row]
            fields = [dict(field.split("=", 1) for field in text.split()) for text in (info, row)]
            assert fields[0]["addr"] == fields[1]["addr"]
            host, _, port = fields[0]["addr"].rpartition(":")
            assert (host, port.isdecimal()) == ("127.0.0.1", True)
            assert fields[0]["user"] == "app"


# Replication


def test_a_replica_follows_by_its_principal(tmp_path: Path) -> None:
    """Without a password: the port for sessions stands in REPLICAOF. DELUSER ends it."""
    with store_of(tmp_path, f"{OWN}=replica") as primary, served() as replica:
        primary.run("ACL", "SETUSER", "replica", "on", "+psync", "+replconf", "+ping")
        primary.run("SET", "k", "v")
        replica.run("REPLICAOF", "127.0.0.1", str(primary.sessions))
        in_step(primary, replica)
        assert everything(replica) == everything(primary)
        assert primary.run("ACL", "DELUSER", "replica") == 1
        until(lambda: primary.info()["connected_slaves"] == "0", "it lost its user")
        until(lambda: "NOAUTH" in replica.info()["master_link_error"], "the reason")


def test_redis_cli_is_not_affected(tmp_path: Path) -> None:
    """The table is for sessions: a TCP client of the same user of the host must authenticate."""
    with store_of(tmp_path, f"{OWN}=app") as store:
        command = ["redis-cli", "-p", str(store.port), "GET", "app:k"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
        assert said.startswith("NOAUTH")
