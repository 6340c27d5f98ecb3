"""Two nodes of a cluster in this process, with real engines, sessions and map, and moves between them that
tests can observe and hold at any step."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.kv.cluster import RespConnection
from verbena import config as configuration
from verbena import transport
from verbena.kv.cluster import ClusterNode, ClusterSettings
from verbena.kv.frontends.sessions import SessionFrontend
from verbena.kv.migration.source import MoveSource
from verbena.kv.server.server import Server
from verbena.shards.cluster_map import Move
from verbena.shards.migration import Facts, Moved, Prepared, RolledBack, State
from verbena.shards.slots import SlotRange
from verbena.transport.configured import settings_from
from verbena.transport.handshake.authority import Authority
from verbena.verbs import providers

MIGRATION = "5e" * 16
SLOTS = SlotRange(0, 16383)
SEGMENT = 64 << 10
PIECE_NOTICE = struct.Struct("<II")  # the payload of a notice: window, bytes
HAS_QUIC = next(info for info in providers() if info.name == "quic").available


@dataclass
class Member:
    server: Server
    node: transport.Node
    cluster: ClusterNode

    def write(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Writes keys as a client does, many at once."""
        with RespConnection("127.0.0.1", self.cluster.me.port) as wire:
            for some in batches(pairs, 5000):
                wire.socket.sendall(
                    b"".join(
                        b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value)
                        for key, value in some
                    )
                )
                assert [wire.receive() for _ in some] == [b"OK"] * len(some)

    def read(self, keys: Iterable[bytes]) -> list[bytes | None]:
        with RespConnection("127.0.0.1", self.cluster.me.port) as wire:
            return [wire.run("GET", key) for key in keys]


def batches(pairs: Iterable[Any], count: int) -> Iterator[list[Any]]:
    left = iter(pairs)
    while some := list(itertools.islice(left, count)):
        yield some


@asynccontextmanager
async def member(folder: Path, name: str, text: str) -> AsyncIterator[Member]:
    """A node of a cluster in this process, with a real engine, loop, sessions and map."""
    chosen = configuration.loads(text + f'[session]\nnode_name = "{name}"\n')
    node = await asyncio.to_thread(transport.Node, settings_from(chosen))
    gateway = SessionFrontend(node)
    server = Server(memory=gateway.memory)
    gateway.open(server)
    settings = ClusterSettings.of(chosen)
    settings = replace(
        settings,
        map_store=f"sqlite://{folder}/map.db",
        folder=str(folder / name),
        moves=replace(settings.moves, max_send_size=SEGMENT),
    )
    cluster = ClusterNode(server, node, settings, chosen)
    with socket.create_server(("127.0.0.1", 0)) as plain:
        plain.setblocking(False)
        server.engine.listen(plain.fileno())
        server.start()
        listener = await transport.listen("127.0.0.1:0", handlers=cluster.handlers, node=node, config=chosen)
        port = plain.getsockname()[1]
        await cluster.open(host="127.0.0.1", port=port, sessions=listener.address)
        try:
            yield Member(server, node, cluster)
        finally:
            await cluster.close()
            await listener.close()
            await asyncio.to_thread(server.close)
            await asyncio.to_thread(node.close)


@asynccontextmanager
async def two(folder: Path, fallback: str) -> AsyncIterator[tuple[Member, Member]]:
    """A source with 200 keys and a target, with fixed ids."""
    authority = Authority.create(folder / "tls", days=2)
    issued = authority.issue("node", ["127.0.0.1", "localhost"], days=1)
    text = f"""
[network]
rdma_fallback = "{fallback}"
[network.rdma]
recv_buffer_pool_size = 512
[tls]
certificate = "{issued.certificate}"
key = "{issued.key}"
ca = "{authority.certificate}"
[cluster]
node_timeout_ms = 60000
write_pause_budget_ms = 20000
"""
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "node-id").write_text(name * 40)
    async with member(folder, "a", text) as source, member(folder, "b", text) as target:
        database = source.server.engine.database(0)
        for number in range(200):
            database.put(b"key:%d" % number, b"%d," % number * 5000)
        await source.cluster.current.refresh()
        yield source, target


async def prepared_move(
    source: Member, target: Member, save: Callable[[State, bool], None] = lambda state, sync: None
) -> MoveSource:
    """A move of all slots, in the map but not begun. `save` is called with each state."""
    cluster = source.cluster
    move = Move(MIGRATION, SLOTS, cluster.id, target.cluster.id)
    cluster.moves.update = lambda: None  # type: ignore[method-assign]
    await cluster.current.change(lambda map: map.assign(SLOTS, cluster.id).begin_move(move))
    facts = Facts(MIGRATION, SLOTS, cluster.id, target.cluster.id)
    return MoveSource(cluster.moves.context, Prepared(facts), save)


async def offered_move(source: Member, target: Member) -> MoveSource:
    """A move of all slots that the target has accepted: it can lend windows."""
    mover = await prepared_move(source, target)
    await mover.offer()
    return mover


async def whole_move(
    source: Member, target: Member, observer: Callable[[str, bytes], None]
) -> tuple[Moved | RolledBack, list[State]]:
    """Runs all phases of the move. Returns its end and the states that were checkpointed."""
    states = list[State]()
    mover = await prepared_move(source, target, lambda state, sync: states.append(state))
    source.cluster.sessions.observer = observer  # type: ignore[assignment]
    end = await mover.run()
    source.cluster.sessions.observer = None
    return end, states
