"""A node of a cluster: builds the map, the lease, gossip, promotion and slot moves, and connects them.
Runs on the event loop; the engine's thread uses SlotGuard, and reply_later() for commands that take time."""

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
from verbena._files import make_folder, private
from verbena.config import Config
from verbena.errors import VerbenaError, setup_error
from verbena.kv.cluster import report
from verbena.kv.cluster.current_map import CurrentMap
from verbena.kv.cluster.gossip import Gossip
from verbena.kv.cluster.member_authorizer import MemberAuthorizer
from verbena.kv.cluster.member_sessions import METHOD, MemberSessions, OwnMember, answer
from verbena.kv.cluster.membership import KEY_BYTES
from verbena.kv.cluster.membership import METHOD as PROOF_METHOD
from verbena.kv.cluster.replica_promotion import ReplicaPromotion
from verbena.kv.cluster.slot_guard import SlotGuard
from verbena.kv.commands.replies import CommandError, Reply
from verbena.kv.migration.checkpoint import Checkpoints
from verbena.kv.migration.context import MoveContext, MoveSettings, reason
from verbena.kv.migration.copy_path import RDMA_WIRES
from verbena.kv.migration.manager import MoveManager
from verbena.kv.replication.log_applier import make_applier
from verbena.shards.cluster_map import ClusterMap, Member
from verbena.shards.envelope import Kind, parse
from verbena.shards.migration import Limits
from verbena.shards.stores import EtcdLogin, Lease, open_store
from verbena.shards.stores.configured import login_of
from verbena.transport.configured import settings_from
from verbena.verbs import IbvOptions

if TYPE_CHECKING:
    from verbena.kv.server.call import Call
    from verbena.kv.server.server import Server

log = logging.getLogger("verbena.kv.cluster")
_FALLBACKS = {"tcp": "iwarp", "quic": "quic", "none": "iwarp"}
_ANSWERS = 64  # to pieces of base copies, in flight


@dataclass(frozen=True)
class ClusterSettings:
    map_store: str
    etcd: EtcdLogin = field(default_factory=EtcdLogin)
    folder: str = ""
    node_timeout_s: float = 15.0
    gossip_fast: bool = True
    fallback: str = "iwarp"
    moves: MoveSettings = field(default_factory=lambda: MoveSettings(Limits()))

    @classmethod
    def of(cls, config: Config) -> ClusterSettings:
        cluster, kept = config.cluster, config.kv.persistence.dir
        fast = cluster.transport == "rdma"
        return cls(
            map_store=cluster.map_store,
            etcd=login_of(config),
            folder=cluster.folder or (f"{kept}/cluster" if kept else ""),
            node_timeout_s=cluster.node_timeout_ms / 1000,
            gossip_fast=fast and cluster.rdma.gossip_rdma,
            fallback=_FALLBACKS[config.network.rdma_fallback if fast else cluster.transport],
            moves=MoveSettings(
                Limits(cluster.ready_within, cluster.write_pause_budget_ms / 1000),
                rdma=fast and cluster.rdma.migration_rdma,
                max_send_size=config.shards.rdma.max_send_size,
                num_memory_regions=config.shards.rdma.num_memory_regions,
            ),
        )


class ClusterNode:
    """A node of a cluster. Made before the server starts; open() joins, close() gives the lease back."""

    def __init__(
        self, server: Server, node: transport.Node, settings: ClusterSettings, config: Config
    ) -> None:
        self.id = _identity(settings.folder)
        self.settings = settings
        self.current = CurrentMap(open_store(settings.map_store, login=settings.etcd))
        self.guard = SlotGuard(
            self.id, engine=server.engine, blocking=server.blocking, run=server.run, reject=server.reject
        )
        self._own = OwnMember(self.id, secrets.token_bytes(KEY_BYTES), self.current)
        self.authorizer = MemberAuthorizer(self._own, node=node)
        self.sessions = MemberSessions(
            self._own, node=node, connect=self._connect, fallback=settings.fallback
        )
        self.promotion = ReplicaPromotion(
            self.id,
            map=self.current,
            engine=server.engine,
            guard=self.guard,
            sessions=self.sessions,
            replication=lambda: server.services.replication,
            announce=self._announce,
            spawn=self._spawn,
        )
        self.gossip = Gossip(
            self.id,
            map=self.current,
            sessions=self.sessions,
            load=lambda: int(server.stats.ops.per_second),
            position=lambda: self.promotion.position,
            spawn=self._spawn,
            timeout_s=settings.node_timeout_s,
            fast=settings.gossip_fast,
        )
        self._copy_sessions = self.sessions
        self.moves = MoveManager(
            MoveContext(
                member=self.id,
                engine=server.engine,
                begin_copy=server.base_copy,
                make_applier=lambda slots: make_applier(server, slots=slots),
                map=self.current,
                fence=self.guard,
                sessions=self.sessions,
                copy_sessions=lambda: self._copy_sessions,
                is_yielding=lambda: self.promotion.is_yielding,
                settings=settings.moves,
            ),
            Checkpoints(Path(settings.folder) / "moves" if settings.folder else None),
            self._spawn,
        )
        self.current.on_change = self._apply
        self._server = server
        self._config = config
        self._node = node
        self._lease: Lease | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop = asyncio.get_event_loop()
        self._has_joined = False
        node.health_checks["cluster"] = self._check_joined
        server.services.cluster = self

    async def _check_joined(self) -> str:
        return "" if self._has_joined else "not in the cluster yet"

    @property
    def map(self) -> ClusterMap:
        return self.current.map

    def info(self) -> dict[str, Any]:
        """Returns the fields of CLUSTER INFO."""
        return report.info(self)

    @property
    def lease_remaining_s(self) -> float | None:
        """The time until this node's lease ends, negative afterwards; None: it has had none yet."""
        lease = self._lease
        return lease.valid_until - time.monotonic() if lease is not None else None

    @property
    def me(self) -> Member:
        return self.map.members[self.id]

    @property
    def handlers(self) -> dict[str, transport.Handler]:
        """The handlers that the listener of sessions must serve."""
        return {METHOD: self._serve, PROOF_METHOD: self.authorizer.prove}

    async def open(self, *, host: str, port: int, sessions: str) -> None:
        """Joins the cluster: adds this node to the map with a new key, then serves the slots that the map
        assigns to it."""
        member = Member(self.id, host, port, sessions, self._node.name, self._own.key.hex())
        replication = self._server.services.replication
        if replication is not None:
            replication.is_member = self.authorizer.rights.is_replica
            replication.introduce = self._introduce_to_primary
        if self.settings.moves.rdma:
            self._copy_sessions = await self._open_copy_sessions()
        self._lease = await self.current.store.lease(self.id, self.settings.node_timeout_s)
        self._publish_lease()
        await self.current.change(lambda map: map.meet(member))
        await self.moves.recover()
        watch = self.promotion.watch(self.settings.node_timeout_s / 8)
        for work in (self.current.watch(), self._renew_lease(), self.gossip.run(), watch):
            self._spawn(work)
        self._has_joined = True

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.sessions.close()
        if self._copy_sessions is not self.sessions:
            await self._copy_sessions.close()
            await asyncio.to_thread(self._copy_sessions.node.close)
        if self._lease is not None:
            with contextlib.suppress(VerbenaError):
                await self._lease.revoke()
        await self.current.store.close()

    def _apply(self, map: ClusterMap) -> None:
        """Acts on a new map. A node that it makes a primary stops following before clients are served by it;
        a node that it makes a replica follows after clients are redirected."""
        ended = self.authorizer.rights.take_ended()
        self.moves.withdraw(ended)
        for session in ended:
            self._spawn(session.close())
        self.gossip.detector.members(map.members, time.monotonic())
        self.promotion.lead_if_primary(map)
        self.guard.update(map)
        self.promotion.follow_if_replica(map)
        self.moves.update()
        if (replication := self._server.services.replication) is not None:
            self._server.engine.post(replication.check_rights)

    # The lease

    async def _renew_lease(self) -> None:
        assert self._lease is not None
        lost, pause_s = False, self.settings.node_timeout_s / 4
        while True:
            await asyncio.sleep(pause_s)
            self.authorizer.count_notices(self.moves.refused_notices)
            pause_s = self.settings.node_timeout_s / 4
            try:
                if lost:
                    self._lease = await self.current.store.lease(self.id, self.settings.node_timeout_s)
                    # A replica may have replaced this node: the map is read before anything is served.
                    await self.current.refresh()
                    lost = False
                else:
                    await self._lease.renew()
            except VerbenaError as error:
                log.warning("the lease was not renewed: %s", error)
                if error.code == "lease_lost":
                    lost, pause_s = True, 0.0  # requests a new one at once
                continue
            self._publish_lease()

    def _publish_lease(self) -> None:
        """Sets the engine's limit for serving: a tenth before the lease ends, for commands under way."""
        assert self._lease is not None
        ends = self._lease.valid_until - self._lease.ttl_s / 10
        self._server.engine.set_lease(max(1, int(ends * 1e9)))

    async def _announce(self, text: str) -> None:
        assert self._lease is not None
        await self._lease.announce(text)

    # Requests of other members

    async def _serve(self, request: transport.Request) -> bytes:
        message = parse(request.payload)
        try:
            refusal = await self.authorizer.refusal_of(request.session, message)
            if refusal:
                return answer(message, refusal.encode(), refused=True)
            if message.target.hex() != self.id:
                raise ValueError(f"this is {self.id}")
            self.gossip.messages["received"] += 1
            if message.kind is Kind.GOSSIP:
                return self.gossip.answer(message)
            if message.kind is Kind.YIELD:
                return answer(message, json.dumps(self.promotion.begin_yield()).encode())
            return answer(message, await self.moves.serve(message, request.session))
        except (VerbenaError, ValueError, LookupError, TypeError) as error:
            return answer(message, reason(error).encode(), refused=True)

    # For commands

    def reply_later(self, call: Call, make: Callable[[], Awaitable[Reply]]) -> Reply:
        """Makes the client of a command wait until the event loop has run `make`. On the engine's thread."""
        client = call.client.id

        async def run() -> None:
            try:
                reply = await make()
            except VerbenaError as error:
                reply = CommandError(f"ERR {error.detail or error.what}")
            except ValueError as error:
                reply = CommandError(f"ERR {error}")
            self._server.engine.post(lambda: self._server.blocking.answer(client, reply))

        self._loop.call_soon_threadsafe(lambda: self._spawn(run()))
        return call.block([], lambda call: None, 0, CommandError("ERR not inside a transaction"))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the cluster failed", exc_info=error)

    async def _introduce_to_primary(self, session: transport.Session) -> None:
        """Proves to this replica's primary that this node is a member, and that the other end is the primary.
        DeniedError (not_a_member): one of them is not."""
        primary = self.map.replicas.get(self.id)
        if primary is None:
            detail = "the cluster map names no primary of this node"
            raise setup_error("not_a_member", operation="follow a primary", detail=detail)
        await self._own.introduce(session, primary)

    @property
    def refused_messages(self) -> int:
        """The number of messages that were refused because their sender has no right to send them."""
        return (
            self.authorizer.refusals.total
            + self.moves.refused_notices
            - self.authorizer.refusals.counts["notice"]
        )

    async def _connect(self, address: str, wire: str | None) -> transport.Session:
        return await transport.connect(address, node=self._node, wire=wire, config=self._config)

    async def _open_copy_sessions(self) -> MemberSessions:
        """Sessions for base copies: on a node of their own, with the device and queues of `[shards.rdma]`."""
        node = await asyncio.to_thread(transport.Node, copy_node_settings(self._config))

        async def connect(address: str, wire: str | None) -> transport.Session:
            return await transport.connect(address, node=node, wire=wire, config=self._config)

        return MemberSessions(self._own, node=node, connect=connect, fallback=self.settings.fallback)


def copy_node_settings(config: Config) -> transport.Settings:
    """Returns the settings of sessions, with RDMA wires alone: a broken link is not replaced, since base
    copies have a fallback of their own. Few receive buffers are enough, since only answers arrive."""
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
    """Returns the node's id; kept in a file, if there is a folder, so that it survives a restart."""
    if not folder:
        return secrets.token_hex(20)
    file = Path(folder) / "node-id"
    make_folder(file.parent)
    if not file.exists():
        beside = file.with_suffix(".new")
        with open(beside, "w", opener=private) as out:
            out.write(secrets.token_hex(20) + "\n")
        beside.replace(file)
    return file.read_text().strip()
