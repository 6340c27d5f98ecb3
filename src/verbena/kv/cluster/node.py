"""A node of a cluster: what it knows of the map, its lease, its gossip, and the moves that it takes part in.
On the program's event loop; the engine's thread asks by Gate, and by later() for what takes time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verbena import transport
from verbena.config import Config
from verbena.errors import VerbenaError
from verbena.kv.cluster.gate import Gate
from verbena.kv.cluster.gossip import Gossip
from verbena.kv.cluster.moves import Moves
from verbena.kv.cluster.peers import METHOD, Peers, answer
from verbena.kv.cluster.roles import Roles
from verbena.kv.commands.replies import CommandError, Reply
from verbena.shards.bulk import RDMA_WIRES
from verbena.shards.checkpoint import Checkpoints
from verbena.shards.cluster_map import ClusterMap, Member
from verbena.shards.envelope import ABOUT_NODES, Kind, parse
from verbena.shards.migration import Limits
from verbena.shards.stores import Lease, MapStore, Stored, change, conflict, open_store
from verbena.transport.configured import settings_from
from verbena.verbs import IbvOptions

if TYPE_CHECKING:
    from verbena.kv.server.call import Call
    from verbena.kv.server.server import Server

log = logging.getLogger("verbena.kv.cluster")
_FALLBACKS = {"tcp": "iwarp", "quic": "quic", "none": "iwarp"}
_ANSWERS = 64  # to base copies, under way at once


@dataclass(frozen=True)
class ClusterSettings:
    map_store: str
    folder: str = ""
    node_timeout_s: float = 15.0
    limits: Limits = field(default_factory=Limits)
    gossip_fast: bool = True
    migrate_fast: bool = True
    fallback: str = "iwarp"
    max_send_size: int = 4 << 20
    num_memory_regions: int = 16

    @classmethod
    def of(cls, config: Config) -> ClusterSettings:
        cluster, kept = config.cluster, config.kv.persistence.dir
        fast = cluster.transport == "rdma"
        return cls(
            map_store=cluster.map_store,
            folder=cluster.folder or (f"{kept}/cluster" if kept else ""),
            node_timeout_s=cluster.node_timeout_ms / 1000,
            limits=Limits(cluster.ready_within, cluster.write_pause_budget_ms / 1000),
            gossip_fast=fast and cluster.rdma.gossip_rdma,
            migrate_fast=fast and cluster.rdma.migration_rdma,
            fallback=_FALLBACKS[config.network.rdma_fallback if fast else cluster.transport],
            max_send_size=config.shards.rdma.max_send_size,
            num_memory_regions=config.shards.rdma.num_memory_regions,
        )


class ClusterNode:
    """Made before the server starts; open() joins, close() leaves the lease."""

    def __init__(
        self, server: Server, node: transport.Node, settings: ClusterSettings, config: Config
    ) -> None:
        self.server = server
        self.settings = settings
        self.id = _identity(settings.folder)
        self.gate = Gate(server, self.id)
        self.map = ClusterMap()
        self.revision = 0
        self.store: MapStore = open_store(settings.map_store)
        self.peers = Peers(self.id, node=node, connect=self._dial, fallback=settings.fallback)
        self.carriers = self.peers  # by which base copies leave, if by RDMA
        self.moves = Moves(self, Checkpoints(Path(settings.folder) / "moves" if settings.folder else None))
        self.roles = Roles(self)
        self.gossip = Gossip(self, timeout_s=settings.node_timeout_s, fast=settings.gossip_fast)
        self._config = config
        self._node = node
        self._lease: Lease | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Condition()
        self.loop: asyncio.AbstractEventLoop = asyncio.get_event_loop()
        server.cluster = self

    @property
    def me(self) -> Member:
        return self.map.members[self.id]

    @property
    def handlers(self) -> dict[str, transport.Handler]:
        """For the listener of sessions."""
        return {METHOD: self._serve}

    async def open(self, *, host: str, port: int, sessions: str) -> None:
        """Joins: the map has this node from now on, and it serves what the map says is its own."""
        member = Member(self.id, host, port, sessions, self._node.name)
        if self.settings.migrate_fast:
            self.carriers = await self._open_carriers()
        self._lease = await self.store.lease(self.id, self.settings.node_timeout_s)
        self._show_lease()
        held = await change(
            self.store, lambda map: map if map.members.get(self.id) == member else map.meet(member)
        )
        await self._take(held)
        await self.moves.recover()
        for work in (self._watch(), self._renew(), self.gossip.run(), self.roles.watch()):
            self._spawn(work)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.peers.close()
        if self.carriers is not self.peers:
            await self.carriers.close()
            await asyncio.to_thread(self.carriers.node.close)
        if self._lease is not None:
            with contextlib.suppress(VerbenaError):
                await self._lease.revoke()
        await self.store.close()

    # The map

    async def change(self, function: Callable[[ClusterMap], ClusterMap]) -> ClusterMap:
        """Changes the map by compare-and-swap, and acts on it."""
        await self._take(await change(self.store, function))
        return self.map

    async def swap(self, proposed: Stored, *, begin_within_s: float) -> ClusterMap:
        """The same with a change made before. BusyError: the map is not at that revision any more.
        TimedOutError (map_not_asked): there was no time left to ask."""
        await self._take(
            await self.store.compare_and_swap(proposed.revision, proposed.map, begin_within_s=begin_within_s)
        )
        return self.map

    async def promote(self, *, without_lease: str | None = None, revision: int | None = None) -> None:
        """This replica takes its primary's place. BusyError: somebody was first, or the primary is there.
        `revision`: only that map is changed."""
        held = await self.store.load()
        if revision is not None and held.revision != revision:
            raise conflict("the map has changed meanwhile: try again")
        new = held.map.promote(self.id)
        await self._take(await self.store.compare_and_swap(held.revision, new, without_lease=without_lease))

    async def fail_over(self) -> None:
        """The same with the primary's help: it stops writing, and this replica has all of it first."""
        primary = self.map.replicas.get(self.id)
        if primary is None:
            raise ValueError("You should send CLUSTER FAILOVER to a replica")
        member = self.map.members[primary]
        answered = await self.peers.ask(member, self.peers.envelope(Kind.YIELD, member), timeout_s=5)
        told = json.loads(answered.payload)
        await self.roles.catch_up(int(told["position"]))
        await self.promote(revision=int(told["revision"]))

    async def take_place(self, *, of_any: bool) -> None:
        """Without its help, which takes that its lease has ended. `of_any`: though another replica may be
        further, or this one's copy is not whole."""
        primary = self.map.replicas[self.id]
        chosen = await self.roles.successor_of(primary)
        if not of_any and chosen not in (None, self.id):
            raise conflict(f"replica {chosen} is further: ask that one, or TAKEOVER")
        if not of_any and chosen is None and primary not in await self.store.said():
            raise conflict("not every replica has said how far it is, or none is whole: wait, or TAKEOVER")
        await self.promote(without_lease=primary)

    async def say(self, word: str) -> None:
        assert self._lease is not None
        await self._lease.say(word)

    async def refresh(self) -> ClusterMap:
        await self._take(await self.store.load())
        return self.map

    async def wait_until(self, holds: Callable[[ClusterMap], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: holds(self.map))

    async def _take(self, held: Stored) -> None:
        if held.revision <= self.revision:
            return
        self.revision, self.map = held.revision, held.map
        self.gossip.detector.members(self.map.members, time.monotonic())
        self.roles.lead_if(self.map)
        self.gate.show(self.map)
        self.roles.follow_if(self.map)
        async with self._changed:
            self._changed.notify_all()
        self.moves.look()

    async def _watch(self) -> None:
        async for held in self.store.watch(self.revision):
            await self._take(held)

    # The lease

    async def _renew(self) -> None:
        assert self._lease is not None
        lost, pause_s = False, self.settings.node_timeout_s / 4
        while True:
            await asyncio.sleep(pause_s)
            pause_s = self.settings.node_timeout_s / 4
            try:
                if lost:
                    self._lease = await self.store.lease(self.id, self.settings.node_timeout_s)
                    await self.refresh()  # somebody may have our place by now: nothing is served before
                    lost = False
                else:
                    await self._lease.renew()
            except VerbenaError as error:
                log.warning("the lease was not renewed: %s", error)
                if error.code == "lease_lost":
                    lost, pause_s = True, 0.0  # another at once
                continue
            self._show_lease()

    def _show_lease(self) -> None:
        """A tenth of it is left for what is under way when it ends."""
        assert self._lease is not None
        ends = self._lease.valid_until - self._lease.ttl_s / 10
        self.server.engine.set_lease(max(1, int(ends * 1e9)))

    # Requests of other members

    async def _serve(self, request: transport.Request) -> bytes:
        message = parse(request.payload)
        if message.target.hex() != self.id:
            return answer(message, f"this is {self.id}".encode(), refused=True)
        self.gossip.messages["received"] += 1
        if message.kind is Kind.GOSSIP:
            return self.gossip.answer(message)
        if message.kind is Kind.STATUS and message.payload == ABOUT_NODES:
            return answer(message, json.dumps(self.gossip.views()).encode())
        try:
            if message.kind is Kind.YIELD:
                if self.map.replicas.get(message.source.hex()) != self.id:
                    raise ValueError("only a replica of this node can have its place")
                return answer(message, json.dumps(self.roles.give_way()).encode())
            return answer(message, await self.moves.serve(message))
        except (VerbenaError, ValueError, LookupError, TypeError) as error:
            return answer(message, str(getattr(error, "detail", "") or error).encode(), refused=True)

    # For commands

    def later(self, call: Call, make: Callable[[], Awaitable[Reply]]) -> Reply:
        """From the engine's thread: the client waits until the event loop has an answer."""
        client = call.client.id

        async def run() -> None:
            try:
                reply = await make()
            except VerbenaError as error:
                reply = CommandError(f"ERR {error.detail or error.what}")
            except ValueError as error:
                reply = CommandError(f"ERR {error}")
            self.server.engine.post(lambda: self.server.blocking.answer(client, reply))

        self.loop.call_soon_threadsafe(lambda: self._spawn(run()))
        return call.block([], lambda call: None, 0, CommandError("ERR not inside a transaction"))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the cluster's has failed", exc_info=error)

    async def _dial(self, address: str, wire: str | None) -> transport.Session:
        return await transport.connect(address, node=self._node, wire=wire, config=self._config)

    async def _open_carriers(self) -> Peers:
        """A node of its own for base copies, with the device and the queues of `[shards.rdma]`."""
        node = await asyncio.to_thread(transport.Node, carrier_settings(self._config))

        async def dial(address: str, wire: str | None) -> transport.Session:
            return await transport.connect(address, node=node, wire=wire, config=self._config)

        return Peers(self.id, node=node, connect=dial, fallback=self.settings.fallback)


def carrier_settings(config: Config) -> transport.Settings:
    """Those of sessions, but by RDMA alone: what breaks is not replaced, since base copies have a fallback.
    Only answers arrive, so few buffers do."""
    settings, rdma = settings_from(config), config.shards.rdma
    return replace(
        settings,
        wires=tuple(wire for wire in settings.wires if wire in RDMA_WIRES),
        devices={} if rdma.device == "auto" else {"ibv": rdma.device},
        ibv=IbvOptions(port=rdma.port, gid_index=None if rdma.gid_index < 0 else rdma.gid_index),
        gid_key="shards.rdma.gid_index",
        gid_is_default=not config.was_set("shards.rdma.gid_index"),
        send_queue_depth=rdma.qp_depth,
        recv_queue_depth=min(settings.recv_queue_depth, _ANSWERS),
        recv_buffer_pool_size=min(settings.recv_buffer_pool_size, 4 * _ANSWERS),
        metrics_listen="",
        capture_folder="",
    )


def _identity(folder: str) -> str:
    """The node's id: the same after each start, if there is a folder to keep it in."""
    if not folder:
        return secrets.token_hex(20)
    file = Path(folder) / "node-id"
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        beside = file.with_suffix(".new")
        beside.write_text(secrets.token_hex(20) + "\n")
        beside.replace(file)
    return file.read_text().strip()
