"""The windows that a node lends to another one of its service: the test plays the other node."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from typing import Any

import verbena
from support.kv import membership
from support.security.leases import Lease, LeaseSetup, SessionParty
from support.security.memory import CONTENT, holds, resolve
from verbena import kv
from verbena._native.kv import REPLICA_POSITION_BYTES, REQUEST_METHOD
from verbena.errors import DeniedError
from verbena.kv.replication.link import METHOD as REPLICATE
from verbena.kv.replication.link import VERSION
from verbena.registry import digests
from verbena.registry.nodes import messages
from verbena.shards.cluster_map import ClusterMap, Member, Move
from verbena.shards.envelope import Envelope, Flag, Kind
from verbena.shards.slots import SlotRange
from verbena.shards.stores import change, open_store
from verbena.transport import RemoteRegion, Request, Session
from verbena.verbs import Access

_RING_BYTES = 1 << 20
_numbers = itertools.count(1)


async def piece_window(setup: LeaseSetup) -> Lease:
    """The node asks this session for a blob that another node has told it to store."""
    asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    answered = asyncio.Event()

    async def find(request: Request) -> bytes:
        asked.put_nowait(messages.decode(request.payload))
        await answered.wait()
        return messages.encode(found=False)

    session = await setup.connect(handlers={messages.FIND: find})

    async def greet() -> bool:
        return "id" in json.loads(await session.call(messages.HELLO, messages.encode(node_id=name)))

    name = secrets.token_hex(8)
    assert await greet()
    wanted = messages.encode(kind="blob", repository="app", digest=str(digests.of(name.encode())), tag="")
    storing = asyncio.ensure_future(session.call(messages.REPLICATE, wanted))

    async def end() -> None:
        answered.set()
        await asyncio.gather(storing, return_exceptions=True)

    setup.stack.push_async_callback(end)
    region = messages.take_window(await asyncio.wait_for(asked.get(), 10)).key

    async def revoke() -> None:
        answered.set()
        await _is_gone(session, region)

    return Lease(
        SessionParty(session),
        Access.ALL,
        find=lambda: resolve(session, region),
        use=greet,
        revoke=revoke,
        later=lambda: setup.party(session.node),
        region=region,
    )


async def move_window(setup: LeaseSetup) -> Lease:
    """The session is a member's that the map names as the source of a move to the node."""
    url = f"sqlite://{setup.folder}/map.db"
    store = open_store(url)
    setup.stack.push_async_callback(store.close)
    map = (await store.load()).map
    (target,) = (member.id for member in map.members.values() if member.sessions == setup.address)
    me = Member(secrets.token_hex(20), "127.0.0.1", 1, "127.0.0.1:1", key=secrets.token_hex(32))
    slot = map.table.index(None)
    move = Move(secrets.token_hex(16), SlotRange(slot, slot), me.id, target)

    def leave(map: ClusterMap) -> ClusterMap:
        return map.abort_move(move.id).unassign([slot], me.id).forget(me.id)

    await change(store, lambda map: map.meet(me).assign([slot], me.id).begin_move(move))
    setup.stack.push_async_callback(change, store, leave)
    session = await setup.connect()
    await membership.prove(session, me.id, target, await membership.keys_of(url))

    async def send(kind: Kind, **fields: object) -> Envelope:
        payload = json.dumps(fields).encode()
        answer = await membership.send(session, membership.message(kind, me.id, target, payload, move.id))
        assert not answer.flags & Flag.REFUSED, answer.payload
        return answer

    await send(Kind.OFFER, attempt=1, slots=str(move.slots), windows=1, window_bytes=1 << 16)
    (window,) = json.loads((await send(Kind.WINDOWS)).payload)["windows"]
    region = RemoteRegion.from_bytes(bytes.fromhex(window)).key

    async def use() -> bool:
        return (await send(Kind.GOSSIP)).kind is Kind.GOSSIP

    return Lease(
        SessionParty(session),
        Access.REMOTE_WRITE,
        find=lambda: resolve(session, region),
        use=use,
        revoke=lambda: send(Kind.ABORT),
        later=lambda: setup.party(session.node),
        region=region,
    )


async def replica_ring(setup: LeaseSetup) -> Lease:
    """The session is one that the replica opened to its primary. The node of that session accepts none: the
    other sessions are those of clients of the replica, and the later ones of the replica."""
    asked: asyncio.Queue[tuple[Session, int]] = asyncio.Queue()
    ended = asyncio.Event()

    async def follow(request: Request) -> bytes:
        asked.put_nowait((request.session, json.loads(request.payload)["ring_key"]))
        await ended.wait()
        return b""

    def command(request: Request) -> bytes:
        return b"+PONG\r\n"

    handlers = {REPLICATE: follow, REQUEST_METHOD: command}
    primary = await verbena.listen("127.0.0.1:0", handlers=handlers, config=setup.settings)
    await setup.stack.enter_async_context(primary)
    setup.stack.callback(ended.set)
    host, _, port = primary.address.rpartition(":")
    replica = setup.admin()
    setup.stack.callback(replica.close)

    async def begin() -> tuple[Session, int]:
        await asyncio.to_thread(replica.execute_command, "REPLICAOF", host, port)
        return await asyncio.wait_for(asked.get(), 20)

    async def end() -> None:
        await asyncio.to_thread(replica.execute_command, "REPLICAOF", "NO", "ONE")
        assert await holds(lambda: not primary.sessions, 10)

    async def later() -> SessionParty:
        return SessionParty((await begin())[0])

    async def use() -> bool:
        return not session.closed

    setup.stack.push_async_callback(end)
    session, region = await begin()
    return Lease(
        SessionParty(session),
        Access.REMOTE_WRITE,
        find=lambda: resolve(session, region),
        use=use,
        revoke=end,
        later=later,
        region=region,
        revoking_ends_session=True,
    )


async def primary_position(setup: LeaseSetup) -> Lease:
    """The session is a replica's."""
    ended = asyncio.Event()

    async def take(request: Request) -> bytes:
        await ended.wait()
        return b""

    setup.stack.callback(ended.set)
    session = await setup.connect(handlers={"kv.log": take})
    client = await setup.stack.enter_async_context(kv.AsyncClient(session))
    ring = session.node.allocate(_RING_BYTES, access=Access.REMOTE_WRITE, session=session)
    wanted = {
        "version": VERSION,
        "stream": client.stream,
        "port": next(_numbers),
        "replid": "",
        "lsn": 0,
        "offset": 0,
        "ring_key": ring.remote.key,
        "ring_bytes": len(ring),
        "ring_tag": 1,
        "databases": 16,
    }
    region = json.loads(await session.call(REPLICATE, json.dumps(wanted).encode()))["position_key"]

    async def use() -> bool:
        return bool(await client.execute("PING") == "PONG")

    async def revoke() -> None:
        with setup.admin() as store:
            assert store.execute_command("CLIENT", "KILL", "TYPE", "replica") >= 1
        assert await holds(lambda: session.closed, 10)

    return Lease(
        SessionParty(session),
        Access.REMOTE_WRITE,
        find=lambda: resolve(session, region),
        use=use,
        revoke=revoke,
        later=lambda: setup.party(session.node),
        region=region,
        content=CONTENT[:REPLICA_POSITION_BYTES],
        revoking_ends_session=True,
    )


async def _is_gone(session: Session, region: int) -> None:
    """Returns when the session may no longer ask for the region."""
    for _ in range(500):
        try:
            await resolve(session, region)
        except DeniedError:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the region is still lent")
