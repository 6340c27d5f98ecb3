"""Peers that have proved nothing use the store's commands only while every local Redis client may do so
without a password. Otherwise they get nothing but the hello."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kv.replicas import Served, served
from support.other_user import run_as

from verbena import kv

BODY = """
async def attempt(work):
    try:
        done = await work()
        return done.decode() if isinstance(done, bytes) else str(done)
    except errors.VerbenaError as error:
        return f"{type(error).__name__} {error.code} {error}"
    except Exception as error:
        return f"{type(error).__name__} {error}"

async def connect():
    session = await verbena.connect(arguments["address"], wire="iwarp", config=Settings())
    client = AsyncClient(session)
    return session, client

async def once():
    async def use():
        session, client = await connect()
        async with session:
            return await client.execute("SET", "k", "v")
    return await attempt(use)

def resp(*words):
    with RespConnection(port=arguments["port"]) as connection:
        return [str(connection.call(*command)) for command in words]
"""


@contextlib.contextmanager
def store(*flags: str) -> Iterator[tuple[Served, dict[str, object]]]:
    with served(*flags) as found:
        yield found, {"address": f"127.0.0.1:{found.sessions}", "port": found.port}


def test_an_open_store_gives_them_commands_and_nothing_else() -> None:
    """As a local Redis client without a password; status and drill of the node are refused."""
    body = """
async def use():
    session, client = await connect()
    async with session:
        return [
            await attempt(lambda: client.execute("SET", "k", "v")),
            await attempt(lambda: session.call("verbena.status")),
            await attempt(lambda: session.call("verbena.drill")),
        ]
result = asyncio.run(use())
"""
    with store() as (_, where):
        replies = run_as(BODY + body, **where)
        assert replies[0] == "OK"
        assert all("unproved" in reply for reply in replies[1:]), replies


@pytest.mark.parametrize("how", ["password", "acl_file", "address"])
def test_a_store_with_rights_gives_them_nothing(tmp_path: Path, how: str) -> None:
    """A password, an ACL file even if no user has a password, or clients of other machines."""
    file = tmp_path / "file"
    file.write_text("the password" if how == "password" else "")
    file.chmod(0o600)
    flags = {
        "password": [f"--kv-password-file={file}"],
        "acl_file": [f"--kv-acl-file={file}"],
        "address": ["--kv-listen-address=0.0.0.0"],
    }
    with store(*flags[how]) as (_, where):
        refused = run_as(BODY + "result = asyncio.run(once())", **where)
        assert " credentials " in refused


@pytest.mark.parametrize(
    ("rule", "undo"),
    [
        (["CONFIG", "SET", "requirepass", "the password"], ["CONFIG", "SET", "requirepass", ""]),
        (["ACL", "SETUSER", "alice", "on", ">the password"], ["ACL", "DELUSER", "alice"]),
        (["ACL", "SETUSER", "default", "off"], ["ACL", "SETUSER", "default", "on"]),
    ],
    ids=["requirepass", "acl user", "default off"],
)
def test_a_password_that_is_set_later_ends_their_sessions(rule: list[str], undo: list[str]) -> None:
    """At once, and new ones are refused; without the password they are admitted again. Sessions of proved
    peers continue."""
    body = """
async def use():
    session, client = await connect()
    async with session:
        before = await attempt(lambda: client.execute("GET", "k"))
        done = resp(arguments["rule"])
        at_once = await attempt(lambda: client.execute("GET", "k"))
        another = await attempt(lambda: AsyncClient(session).execute("GET", "k"))
        for _ in range(500):
            if session.closed:
                break
            await asyncio.sleep(0.01)
        return [before, done, at_once, another, session.closed, await once()]
result = asyncio.run(use())
"""
    with store() as (served_store, where), kv.Client(str(where["address"])) as own:
        own.set("k", "v")
        before, done, at_once, another, closed, again = run_as(BODY + body, rule=rule, **where)
        assert (before, done) == ("v", ["OK"])
        for refused in (at_once, another):
            assert refused.startswith(("CommandError NOAUTH", "ClosedError", "BrokenLinkError")), refused
        assert closed
        assert " credentials " in again
        assert own.execute("GET", "k") == b"v"
        assert own.execute(*undo) in ("OK", 1)
        assert run_as(BODY + "result = asyncio.run(once())", **where) == "OK"
        assert served_store.process.poll() is None
