"""A member of a cluster follows by its membership instead of a user's right, as long as it is a member."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from verbena import config as configuration
from verbena import transport
from verbena.kv.frontends.sessions import SessionFrontend
from verbena.kv.replication.replication import Replication
from verbena.kv.server.server import Server


@contextlib.asynccontextmanager
async def node_of(**handlers: transport.Handler) -> AsyncIterator[tuple[Replication, str]]:
    """A store in this process, with a password; yields its address for sessions too."""
    node = await asyncio.to_thread(transport.Node)
    gateway = SessionFrontend(node)
    server = Server(memory=gateway.memory)
    gateway.open(server)
    server.acl.set_password("a password")
    server.clients.update_dispatch()
    replication = Replication(server, configuration.loads(""))
    handlers |= replication.handlers
    server.start()
    async with transport.listen("127.0.0.1:0", node=node, handlers=handlers) as listener:
        await replication.open(int(listener.address.rpartition(":")[2]))
        yield replication, listener.address
        await replication.close()
    await asyncio.to_thread(server.close)
    await asyncio.to_thread(node.close)


async def until(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.005)


async def test_a_member_follows_until_it_is_none() -> None:
    """introduce() replaces AUTH at the replica, is_member() the user's right at the primary. A session that
    is not introduced is refused."""
    members: set[int] = set()

    def join(request: transport.Request) -> bytes:
        members.add(request.session.id)
        return b""

    async def introduce(session: transport.Session) -> None:
        await session.call("join")

    async with node_of(join=join) as (primary, address), node_of() as (replica, _):
        primary.is_member = lambda session: session.id in members
        replica.follow("127.0.0.1", 1, sessions=address)
        link = replica.link
        assert link is not None
        await until(lambda: "NOAUTH" in link.last_error, "it is refused")
        assert primary.replicas == []
        replica.introduce = introduce
        await until(lambda: link.state == "connected" and primary.replicas, "it follows")
        assert primary.replicas[0].session.id in members

        async def do_nothing(session: transport.Session) -> None: ...

        replica.introduce = do_nothing
        members.clear()
        primary.server.engine.post(primary.check_rights)
        await until(lambda: not primary.replicas, "it is no member")
        await until(lambda: "NOAUTH" in link.last_error, "it is refused again")
