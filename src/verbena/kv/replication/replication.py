"""Replication at one server: the replicas it sends its log to, or the primary it follows."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from verbena import _native, transport
from verbena.kv.commands.replies import CommandError
from verbena.kv.replication.link import METHOD, VERSION, ReplicaLink, ReplicaPosition
from verbena.kv.replication.primary_address import FIELD
from verbena.kv.replication.settings import Settings, node_settings
from verbena.kv.server.blocked_clients import REPLICAS
from verbena.transport.observe.metrics.counters import Histogram
from verbena.verbs import Access

if TYPE_CHECKING:
    from verbena.config import Config
    from verbena.kv.server.server import Server

log = logging.getLogger("verbena.kv")

READONLY = "READONLY You can't write against a read only replica."
NOREPLICAS = "NOREPLICAS Not enough good replicas to write."
UNBLOCKED = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
NO_HISTORY = "0" * 40
HOLD_BYTES = 256 << 20


@dataclass(eq=False)
class Replica:
    """A replica that follows this server."""

    sender: _native.kv.ReplicationSender
    session: transport.Session
    host: str
    port: int
    position_region: transport.Region | None  # local memory into which the replica writes its position

    def close(self) -> None:
        """Waits for the sender's thread."""
        self.sender.close()
        if self.position_region is not None:
            self.position_region.revoke()

    @property
    def name(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def is_linked(self) -> bool:
        """Whether the session has a link. False: the replica's process has died or the network is down; the
        session may still reconnect."""
        return self.session.state is transport.SessionState.CONNECTED

    def state(self, counters: dict[str, Any]) -> str:
        if not self.is_linked:
            return "disconnected"
        return "send_bulk" if counters["copying"] else "online"


class Replication:
    """Create it before sessions are accepted, since the listener needs `handlers`; open it after the data is
    loaded."""

    def __init__(self, server: Server, config: Config) -> None:
        self.server = server
        self.replid, self.replid2, self.second_offset = secrets.token_hex(20), NO_HISTORY, -1
        self.link: ReplicaLink | None = None  # None: this server is a primary
        # In a cluster: the map's revision and the time at which this node became primary; orders histories.
        self.term: tuple[int, int] | None = None
        self.sessions_port = 0
        self.full_syncs = self.partial_syncs = self.refused_partials = 0
        self._config, self._settings = config, Settings.of(config)
        self._replicas: list[Replica] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._pruning = False
        self._eager = False
        self.handlers: dict[str, transport.Handler] = {METHOD: self._serve}
        server.services.replication = self
        server.services.on_tick.append(self._tick)

    # Set-up, on the event loop

    async def open(self, sessions_port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.sessions_port = sessions_port
        host, _, port = self._settings.replicaof.rpartition(":")
        if host:
            self.follow(host.strip("[]"), int(port))

    async def close(self) -> None:
        await self._unfollow()
        replicas, self._replicas = self._replicas, []
        for replica in replicas:
            await asyncio.to_thread(replica.close)

    # Primary

    async def _serve(self, request: transport.Request) -> bytes:
        """Handles a replica's request to follow: starts sending, and answers with the position at which the
        stream begins."""
        sync_request = json.loads(request.payload)
        if sync_request.get("version") != VERSION:
            return _refusal(
                f"this server replicates with version {VERSION}, not {sync_request.get('version')}"
            )
        if self.link is not None:
            return _refusal("this server is a replica itself: follow its primary")
        if self.server.engine.loading:
            return _refusal("this server is loading")
        if self.server.services.cluster is not None and self.term is None:
            return _refusal("this server has not read its cluster's map yet")
        if sync_request["databases"] < len(self.server.databases):
            return _refusal(
                f"{len(self.server.databases)} databases here, "
                f"{sync_request['databases']} there: kv.databases"
            )
        host = request.session.peer.rpartition(":")[0].strip("[]")
        for replica in [
            replica for replica in self._replicas if replica.name == (host, sync_request["port"])
        ]:
            self._replicas.remove(replica)  # it reconnected before its old session was seen to end
            await asyncio.to_thread(replica.close)
        known = sync_request["replid"] == self.replid
        replica = await asyncio.to_thread(self._start_sender, request.session, sync_request, known, host)
        sender = replica.sender
        self.full_syncs += sender.full
        self.partial_syncs += not sender.full
        self.refused_partials += bool(sync_request["replid"]) and sender.full
        self._replicas.append(replica)
        if self._eager:
            sender.set_eager(True)
        answer = {
            "version": VERSION,
            "replid": self.replid,
            "term": self.term or (0, 0),
            "full": sender.full,
            "lsn": sender.lsn,
            "offset": sender.offset,
            "place_key": replica.position_region.remote.key if replica.position_region is not None else 0,
        }
        return json.dumps(answer).encode()

    def _start_sender(
        self, session: transport.Session, sync_request: dict[str, Any], known: bool, host: str
    ) -> Replica:
        self.server.execution.logging = True
        self.limit_backlog()
        by_write, region = self._settings.use_rdma_write, None
        if by_write and session.wire == "shm":  # a replica on this machine shares its processors
            region = session.node.allocate(
                _native.kv.REPLICA_POSITION_BYTES, access=Access.REMOTE_WRITE, session=session
            )
        sender = _native.kv.ReplicationSender(
            self.server.engine,
            session._native,
            ring_key=sync_request["ring_key"],
            mark=sync_request["mark"],
            ring_bytes=sync_request["ring_bytes"],
            by_write=by_write,
            place=region.memory if region is not None else None,
            max_inline=self._settings.max_inline_size,
            lsn=sync_request["lsn"] if known else None,
            offset=sync_request["offset"],
            on_receipt=self._on_receipt,
        )
        return Replica(sender, session, host, sync_request["port"], region)

    def limit_backlog(self) -> None:
        """Sets how much of the log the backlog keeps."""
        keep = self.server.parameters.get("repl-backlog-size")
        self.server.engine.set_backlog_limits(keep_bytes=keep, hold_bytes=max(keep, HOLD_BYTES))

    def _on_receipt(self) -> None:
        """Called on the engine's thread when a replica has advanced, or its link has ended."""
        blocking = self.server.blocking
        places = [place for place in blocking.by_key if place[1] == REPLICAS]
        for database, key in places:
            blocking.signal(database, key)
        if places:
            blocking.serve()

    def _tick(self) -> None:
        """Called regularly on the engine's thread."""
        waited = any(place[1] == REPLICAS for place in self.server.blocking.by_key)
        if self._eager and not waited:
            self._set_eager(False)
        loop = self._loop
        if (
            loop is not None
            and not self._pruning
            and any(replica.sender.counters()["ended"] for replica in self._replicas)
        ):
            self._pruning = True
            loop.call_soon_threadsafe(lambda: loop.create_task(self._prune()))
        self.check_writes()

    async def _prune(self) -> None:
        for replica in [replica for replica in self._replicas if replica.sender.counters()["ended"]]:
            self._replicas.remove(replica)
            log.warning(
                "the link to replica %s:%d ended: %s",
                replica.host,
                replica.port,
                replica.sender.counters()["why"],
            )
            await asyncio.to_thread(replica.close)
        self._pruning = False

    def check_writes(self) -> None:
        """Sets whether clients may write. They may not on a replica, nor while too few replicas follow."""
        get, engine = self.server.parameters.get, self.server.engine
        refusal = ""
        if self.link is not None:
            refusal = READONLY if get("replica-read-only") else ""
        elif get("min-replicas-to-write") and get("min-replicas-max-lag"):
            refusal = NOREPLICAS if self.good_replicas() < get("min-replicas-to-write") else ""
        if engine.refuse_writes != refusal:
            engine.refuse_writes = refusal
        keeps = self.link is not None and bool(refusal)
        if engine.keeps_expired != keeps:
            engine.keeps_expired = keeps

    def good_replicas(self) -> int:
        longest_ns = self.server.parameters.get("min-replicas-max-lag") * 1_000_000_000
        rows = [(replica.state(row := replica.sender.counters()), row) for replica in self._replicas]
        return sum(
            state == "online" and not row["ended"] and row["silent_ns"] <= longest_ns for state, row in rows
        )

    # Waiting for replicas

    @property
    def written_offset(self) -> int:
        """The offset of the last command, whether sent to replicas or not."""
        return self.server.engine.backlog_counters()["written_offset"]

    def count(self, offset: int, *, durable: bool = False) -> int:
        """Returns the number of replicas that have applied the log up to `offset`, or (`durable`) have it on
        disk."""
        field = "durable_offset" if durable else "offset"
        counters = [replica.sender.counters() for replica in self._replicas]
        return sum(not row["copying"] and not row["ended"] and row[field] >= offset for row in counters)

    def await_receipts(self) -> None:
        """Called when a client waits for replicas: makes them report each position at once from now on."""
        if not self._eager:
            self._set_eager(True)

    def _set_eager(self, eager: bool) -> None:
        self._eager = eager
        for replica in self._replicas:
            replica.sender.set_eager(eager)

    # Replica

    def follow(self, host: str, port: int) -> None:
        """REPLICAOF: follows a primary. Any thread may call it; the link runs on the event loop."""
        if self._loop is None:
            raise CommandError("ERR replication needs sessions: kv.sessions is off")
        position = ReplicaPosition()
        if self.link is not None:
            self.link.stop()
            position = self.link.position
        else:  # a write by a waiting client would never reach the primary, nor be acknowledged
            self.server.engine.post(lambda: self.server.blocking.unblock_all(UNBLOCKED))
        self.link = ReplicaLink(self.server, self._config, self._settings, host, port, position)
        self.check_writes()
        self.server.engine.active_expiry = False
        self._loop.call_soon_threadsafe(partial(self._spawn, self.link))

    def stop_following(self) -> ReplicaPosition:
        """Stops applying and acknowledging records until follow() or lead(). Returns the position that was
        reached."""
        assert self.link is not None
        assert self._loop is not None
        self.link.stop()
        self.link.state, self.link.linked = "connect", False
        self._loop.call_soon_threadsafe(partial(self._spawn, None))
        return self.link.position

    def lead(self) -> None:
        """REPLICAOF NO ONE: becomes a primary."""
        link = self.link
        if link is None or self._loop is None:
            return
        link.stop()
        self.link = None
        self.replid2, self.second_offset = link.position.replid or NO_HISTORY, link.offset + 1
        self.replid = secrets.token_hex(20)
        engine = self.server.engine
        if link.position.replid:
            engine.count_log_from(link.offset)
        engine.active_expiry = True
        engine.loading = False
        engine.refresh_time()
        self.check_writes()
        self._loop.call_soon_threadsafe(partial(self._spawn, None))

    def _spawn(self, link: ReplicaLink | None) -> None:
        assert self._loop is not None
        before, self._task = self._task, self._loop.create_task(self._run(link, self._task))
        if before is not None:
            before.cancel()

    async def _run(self, link: ReplicaLink | None, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        if link is None:
            return
        replicas, self._replicas = self._replicas, []
        for replica in replicas:
            await asyncio.to_thread(replica.close)  # replicas of this server must follow the primary instead
        node = await asyncio.to_thread(transport.Node, node_settings(self._config))
        try:
            await link.run(node)
        finally:
            await asyncio.to_thread(node.close)

    async def _unfollow(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # Reports

    def role(self) -> list[Any]:
        """Returns the reply of ROLE."""
        link = self.link
        if link is not None:
            return [b"slave", link.host.encode(), link.port, link.state.encode(), link.offset]
        rows = [
            [replica.host.encode(), b"%d" % replica.port, b"%d" % replica.sender.counters()["offset"]]
            for replica in self._replicas
            if replica.is_linked
        ]
        return [b"master", self.server.engine.backlog_counters()["offset"], rows]

    def info(self) -> dict[str, Any]:
        """Returns the fields of INFO replication."""
        tail, get = self.server.engine.backlog_counters(), self.server.parameters.get
        link = self.link
        fields: dict[str, Any] = {"role": "slave" if link is not None else "master"}
        if link is not None:
            counters = link.counters()
            up = link.state == "connected" and link.linked
            silent_s = counters["silent_ns"] // 1_000_000_000 if up and counters else -1
            fields |= {
                "master_host": link.host,
                "master_port": link.port,
                "master_link_status": "up" if up else "down",
                "master_last_io_seconds_ago": silent_s,
                "master_sync_in_progress": int(link.state == "sync"),
                "slave_read_repl_offset": link.offset,
                "slave_repl_offset": link.offset,
            }
            if not up:
                fields["master_link_down_since_seconds"] = int(time.monotonic() - link.down_since)
            fields |= {
                "slave_priority": 100,
                "slave_read_only": int(get("replica-read-only")),
                "replica_announced": 1,
                "master_link_wire": link.wire,
                "master_link_error": link.last_error,
                "replica_full_syncs": link.full_syncs,
                "replica_partial_syncs": link.partial_syncs,
                "replica_written_bytes": counters.get("written_bytes", 0),
                "replica_received_bytes": counters.get("bytes", 0),
                "replica_damaged_pieces": counters.get("damaged", 0),
                **_lag_fields(counters),
            }
        fields["connected_slaves"] = sum(replica.is_linked for replica in self._replicas)
        if get("min-replicas-to-write"):
            fields["min_slaves_good_slaves"] = self.good_replicas()
        for number, replica in enumerate(self._replicas):
            row = replica.sender.counters()
            fields[f"slave{number}"] = (
                f"ip={replica.host},port={replica.port},state={replica.state(row)},"
                f"offset={row['offset']},lag={row['silent_ns'] // 1_000_000_000},"
                f"wire={replica.session.wire or 'none'},writes={row['writes']},messages={row['messages']},"
                f"inlined={row['inlined']},repeats={row['repeats']},"
                f"rested_us={row['yielded_ns'] // 1000}"
            )
        return fields | {
            "master_failover_state": "no-failover",
            "master_replid": link.position.replid or NO_HISTORY if link is not None else self.replid,
            "master_replid2": self.replid2,
            "master_repl_offset": link.offset if link is not None else tail["offset"],
            "second_repl_offset": self.second_offset,
            "repl_backlog_active": tail["has_backlog"],
            "repl_backlog_size": get("repl-backlog-size"),
            # Bytes are counted from 1: the last one of the backlog is master_repl_offset.
            "repl_backlog_first_byte_offset": tail["first_offset"] + 1 if tail["has_backlog"] else 0,
            "repl_backlog_histlen": tail.get("bytes", 0),
            FIELD: self.sessions_port,
        }


def _lag_fields(counters: dict[str, Any]) -> dict[str, int]:
    """Returns the replica's lag in the last eight seconds; 0: there was nothing to apply."""
    lags = Histogram(buckets=counters["lags"]) if counters else Histogram()
    return {
        f"replica_lag_p{percent}_us": int((lags.quantile_ns(percent / 100) or 0) / 1000)
        for percent in (50, 99)
    }


def _refusal(why: str) -> bytes:
    return json.dumps({"version": VERSION, "error": why}).encode()
