"""What each service lends to a session, as data: how the service is started, and how a session gets the
memory. The windows that one node of a service lends to another are in lending_nodes.py."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import verbena
from support.security import lending_nodes as nodes
from support.security.entry_points import SECRET, SESSION_PORTS, session_port
from support.security.leases import Lease, LeaseSetup, SessionParty
from support.security.memory import CONTENT, Lent, resolve
from support.security.raw_session import RawSession
from verbena import far, kv
from verbena._native.kv import LAYOUT_METHOD
from verbena.integrations import file_messages
from verbena.transport import RemoteRegion
from verbena.verbs import Access

_RULES = "tests/transport/named/test_publication_rules.py"

# Of a running service: its address, its folder, and what else its row needs.
Running = tuple[str, Path, Any]
Start = Callable[[Path], contextlib.AbstractContextManager[Running]]


@dataclass(frozen=True)
class Lending:
    """`memory`: what the service lends, and how the session learns where it is. `not_applicable`: the reason,
    by wire or by attack. `covered`: the test that shows it already, by attack."""

    name: str
    service: str
    memory: str
    lend: Callable[[LeaseSetup], Awaitable[Lease]]
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    covered: Mapping[str, str] = field(default_factory=dict)


def _process(name: str, *options: str) -> Start:
    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Running]:
        with session_port(name, folder, *options) as address:
            yield address, folder / name, None

    return start


@contextlib.contextmanager
def _publisher(folder: Path) -> Iterator[Running]:
    with verbena.sync.listen("127.0.0.1:0", secret=SECRET) as listener:
        yield listener.address, folder, listener


SERVICES: Mapping[str, Start] = {
    **{name: _process(name) for name in SESSION_PORTS},
    "replica": _process("store", "--network-rdma-retry-delay-ms 20"),
    "publisher": _publisher,
}


async def _layout(setup: LeaseSetup) -> Lease:
    """The chunk with the value of a key, for a user who may read every key."""
    with setup.admin() as store:
        store.set("key", CONTENT)
        store.execute_command("ACL", "SETUSER", "reader", "reset", "on", ">secret", "~*", "&*", "+@all")
    session = await setup.connect()
    client = await setup.stack.enter_async_context(kv.AsyncClient(session, user="reader", password="secret"))
    layout = await session.call(LAYOUT_METHOD, client.stream.to_bytes(4, "little"))
    _, _, chunks = struct.unpack_from("<III", layout)
    (key, _) = struct.unpack_from("<QQ", layout, len(layout) - 16 * chunks)
    chunk = await resolve(session, key)
    remote = RemoteRegion(chunk.addr, chunk.length, key, session.peer_epoch)
    offset = bytes(await session.read(remote)).index(CONTENT)

    async def revoke() -> None:
        with setup.admin() as store:
            store.execute_command("ACL", "SETUSER", "reader", "resetkeys")

    async def use() -> bool:
        return bool(await client.execute("PING") == "PONG")

    return Lease(
        SessionParty(session),
        Access.REMOTE_READ,
        find=lambda: resolve(session, key),
        use=use,
        revoke=revoke,
        later=lambda: setup.party(session.node),
        region=key,
        offset=offset,
    )


def _array(*, named: bool) -> Callable[[LeaseSetup], Awaitable[Lease]]:
    async def lend(setup: LeaseSetup) -> Lease:
        session = await setup.connect()
        name = f"array-{session.id:x}" if named else None
        array = await far.aio.zeros(session, (1000,), "u1", name=name)

        async def use() -> bool:
            return bool((await far.aio.stat(session))["size"] == 16 << 20)

        return Lease(
            SessionParty(session),
            Access.ALL,
            find=lambda: resolve(session, array.sync.remote.key),
            use=use,
            revoke=lambda: far.aio.free(array),
            later=lambda: setup.party(session.node),
            region=array.sync.remote.key,
            is_private=not named,
        )

    return lend


async def _reply(setup: LeaseSetup) -> Lease:
    """The reply to a read, which is too long for a message and is not acknowledged yet."""
    (setup.folder / "content").write_bytes(CONTENT * 1000)
    node = await setup.node()
    owner = await RawSession.open(node, setup.address, setup.wire)
    setup.stack.push_async_callback(owner.close)

    def request(do: str, **fields: object) -> bytes:
        return file_messages.pack({"do": do, "path": "content", **fields})

    async def find() -> Lent:
        reply = await owner.call(file_messages.CALL, request("read", start=0, length=24_000))
        assert reply.lent is not None
        return reply.lent

    async def use() -> bool:
        return b'"size":24000' in (await owner.call(file_messages.CALL, request("info"))).payload

    async def later() -> RawSession:
        other = await RawSession.open(node, setup.address, setup.wire)
        setup.stack.push_async_callback(other.close)
        return other

    return Lease(
        owner,
        Access.REMOTE_READ,
        find=find,
        use=use,
        revoke=owner.acknowledge,
        later=later,
        offset=len(file_messages.pack({})),
    )


async def _publication(setup: LeaseSetup) -> Lease:
    listener: verbena.sync.Listener = setup.handle
    listener.publish("text", CONTENT, allow={"secret"})
    session = await setup.connect()
    remote = await session.region("text")

    async def revoke() -> None:
        listener.unpublish("text")

    async def use() -> bool:
        return await session.regions() in ([], ["text"])

    return Lease(
        SessionParty(session),
        Access.REMOTE_READ,
        find=lambda: resolve(session, remote.key),
        use=use,
        revoke=revoke,
        later=lambda: setup.party(session.node),
        region=remote.key,
    )


LENDING = {
    row.name: row
    for row in (
        Lending(
            "store: layout",
            "store",
            "the chunks with all keys and values, for reading: the reply to a request for the layout names"
            " them",
            _layout,
        ),
        Lending(
            "memory node: array",
            "memory-node",
            "an allocation, for reading and writing: the reply to the allocation names it",
            _array(named=False),
        ),
        Lending(
            "memory node: named array",
            "memory-node",
            "as above; each session that attaches to it gets a lease of its own",
            _array(named=True),
        ),
        Lending(
            "file node: reply",
            "file-node",
            "a reply that is too long for a message, for reading until it is acknowledged: the message has"
            " its address and key. The node lends nothing else: an upload is a request, which it reads from"
            " the client's memory",
            _reply,
        ),
        Lending(
            "registry: window of a fetching node",
            "registry",
            "the memory for one piece of a blob, for reading and writing: the request for the piece names it",
            nodes.piece_window,
        ),
        Lending(
            "cluster: window of a move's target",
            "cluster",
            "the memory for a piece of the base copy, for writing: the reply to WINDOWS names it",
            nodes.move_window,
        ),
        Lending(
            "replication: ring of a replica",
            "replica",
            "the memory for the log, for writing: the request to follow names it",
            nodes.replica_ring,
        ),
        Lending(
            "replication: position at a primary",
            "store",
            "the memory for the replica's position, for writing: the reply to the request to follow names it",
            nodes.primary_position,
            not_applicable={
                "iwarp": "a replica that is not on the primary's host reports its position by messages"
            },
        ),
        Lending(
            "named region",
            "publisher",
            "what the program publishes: the reply to a request for the name describes it",
            _publication,
            covered={"another session's key": f"{_RULES}::test_a_key_is_worthless_to_another_session"},
        ),
    )
}
