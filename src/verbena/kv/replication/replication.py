"""A server's part in replication: the replicas it feeds, or the primary it follows."""

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
from verbena.kv.replication.finding import FIELD
from verbena.kv.replication.link import METHOD, VERSION, Place, ReplicaLink
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
NOWHERE = "0" * 40
HOLD_BYTES = 256 << 20
PLACE_BYTES = 16  # src/native/kv/replication/replication_layout.h: ReplicaPosition


@dataclass(eq=False)
class Fed:
    """A replica of ours."""

    feeder: _native.kv.ReplicationSender
    session: transport.Session
    host: str
    port: int
    place: transport.Region | None  # ours: where it tells how far it is

    def close(self) -> None:
        """Waits for the feeder's thread."""
        self.feeder.close()
        if self.place is not None:
            self.place.revoke()

    @property
    def name(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def is_linked(self) -> bool:
        """False: its process has died, or the way to it is cut. It has a while to come back."""
        return self.session.state is transport.SessionState.CONNECTED

    def state(self, figures: dict[str, Any]) -> str:
        if not self.is_linked:
            return "disconnected"
        return "send_bulk" if figures["copying"] else "online"


class Replication:
    """Made before sessions are taken (`handlers` is for the listener), opened when the data is there."""

    def __init__(self, server: Server, config: Config) -> None:
        self.server = server
        self.replid, self.replid2, self.second_offset = secrets.token_hex(20), NOWHERE, -1
        self.link: ReplicaLink | None = None  # there is one: we are a replica
        # In a cluster: the map's revision and the time when this node began to lead. It orders histories.
        self.term: tuple[int, int] | None = None
        self.sessions_port = 0
        self.full_syncs = self.partial_syncs = self.refused_partials = 0
        self._config, self._settings = config, Settings.of(config)
        self._fed: list[Fed] = []
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
        fed_by_us, self._fed = self._fed, []
        for fed in fed_by_us:
            await asyncio.to_thread(fed.close)

    # Primary

    async def _serve(self, request: transport.Request) -> bytes:
        """A replica wants to follow: tells it where the stream begins, which has begun by then."""
        wish = json.loads(request.payload)
        if wish.get("version") != VERSION:
            return _no(f"replicas of version {wish.get('version')} are not fed here, but of {VERSION}")
        if self.link is not None:
            return _no("this server is a replica itself: follow its primary")
        if self.server.engine.loading:
            return _no("this server is loading")
        if self.server.services.cluster is not None and self.term is None:
            return _no("this server has not read its cluster's map yet")
        if wish["databases"] < len(self.server.databases):
            return _no(
                f"{len(self.server.databases)} databases here, {wish['databases']} there: kv.databases"
            )
        host = request.session.peer.rpartition(":")[0].strip("[]")
        for fed in [fed for fed in self._fed if fed.name == (host, wish["port"])]:
            self._fed.remove(fed)  # it has come back before we noticed that it was gone
            await asyncio.to_thread(fed.close)
        known = wish["replid"] == self.replid
        fed = await asyncio.to_thread(self._feed, request.session, wish, known, host)
        feeder = fed.feeder
        self.full_syncs += feeder.full
        self.partial_syncs += not feeder.full
        self.refused_partials += bool(wish["replid"]) and feeder.full
        self._fed.append(fed)
        if self._eager:
            feeder.set_eager(True)
        answer = {
            "version": VERSION,
            "replid": self.replid,
            "term": self.term or (0, 0),
            "full": feeder.full,
            "lsn": feeder.lsn,
            "offset": feeder.offset,
            "place_key": fed.place.remote.key if fed.place is not None else 0,
        }
        return json.dumps(answer).encode()

    def _feed(self, session: transport.Session, wish: dict[str, Any], known: bool, host: str) -> Fed:
        self.server.execution.logging = True
        self.limit()
        by_write, place = self._settings.use_rdma_write, None
        if by_write and session.wire == "shm":  # it shares our processors
            place = session.node.allocate(PLACE_BYTES, access=Access.REMOTE_WRITE, session=session)
        feeder = _native.kv.ReplicationSender(
            self.server.engine,
            session._native,
            ring_key=wish["ring_key"],
            mark=wish["mark"],
            ring_bytes=wish["ring_bytes"],
            by_write=by_write,
            place=place.memory if place is not None else None,
            max_inline=self._settings.max_inline_size,
            lsn=wish["lsn"] if known else None,
            offset=wish["offset"],
            on_receipt=self._told,
        )
        return Fed(feeder, session, host, wish["port"], place)

    def limit(self) -> None:
        """How much of the log is kept, once somebody has followed."""
        keep = self.server.parameters.get("repl-backlog-size")
        self.server.engine.set_backlog_limits(keep_bytes=keep, hold_bytes=max(keep, HOLD_BYTES))

    def _told(self) -> None:
        """On the engine's loop: a replica is further than it was, or is gone."""
        blocking = self.server.blocking
        places = [place for place in blocking.waited_for if place[1] == REPLICAS]
        for database, key in places:
            blocking.signal(database, key)
        if places:
            blocking.serve()

    def _tick(self) -> None:
        """On the engine's loop, from time to time."""
        waited = any(place[1] == REPLICAS for place in self.server.blocking.waited_for)
        if self._eager and not waited:
            self._set_eager(False)
        loop = self._loop
        if (
            loop is not None
            and not self._pruning
            and any(fed.feeder.counters()["ended"] for fed in self._fed)
        ):
            self._pruning = True
            loop.call_soon_threadsafe(lambda: loop.create_task(self._prune()))
        self.check_writes()

    async def _prune(self) -> None:
        for fed in [fed for fed in self._fed if fed.feeder.counters()["ended"]]:
            self._fed.remove(fed)
            log.warning("replica %s:%d is gone: %s", fed.host, fed.port, fed.feeder.counters()["why"])
            await asyncio.to_thread(fed.close)
        self._pruning = False

    def check_writes(self) -> None:
        """Whether clients may write: not at a replica, nor where too few replicas follow."""
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
        rows = [(fed.state(row := fed.feeder.counters()), row) for fed in self._fed]
        return sum(
            state == "online" and not row["ended"] and row["silent_ns"] <= longest_ns for state, row in rows
        )

    # Waiting for replicas

    @property
    def written_offset(self) -> int:
        """That of the last command, whether replicas may have seen it or not."""
        return self.server.engine.backlog_counters()["written_offset"]

    def count(self, offset: int, *, durable: bool = False) -> int:
        """How many replicas have applied the log up to there, or have it on disk."""
        field = "durable_offset" if durable else "offset"
        figures = [fed.feeder.counters() for fed in self._fed]
        return sum(not row["copying"] and not row["ended"] and row[field] >= offset for row in figures)

    def await_receipts(self) -> None:
        """Somebody waits under the key REPLICAS."""
        if not self._eager:
            self._set_eager(True)

    def _set_eager(self, eager: bool) -> None:
        self._eager = eager
        for fed in self._fed:
            fed.feeder.set_eager(eager)

    # Replica

    def follow(self, host: str, port: int) -> None:
        """REPLICAOF. On any thread; the rest happens on the event loop."""
        if self._loop is None:
            raise CommandError("ERR replication needs sessions: kv.sessions is off")
        place = Place()
        if self.link is not None:
            self.link.stop()
            place = self.link.place
        else:  # a pop would be this server's alone, and nobody acknowledges what it writes any more
            self.server.engine.post(lambda: self.server.blocking.unblock_all(UNBLOCKED))
        self.link = ReplicaLink(self.server, self._config, self._settings, host, port, place)
        self.check_writes()
        self.server.engine.active_expiry = False
        self._loop.call_soon_threadsafe(partial(self._spawn, self.link))

    def stand(self) -> Place:
        """A replica stays as it is, until it follows or leads: nothing more is applied or acknowledged."""
        assert self.link is not None
        assert self._loop is not None
        self.link.stop()
        self.link.state, self.link.linked = "connect", False
        self._loop.call_soon_threadsafe(partial(self._spawn, None))
        return self.link.place

    def lead(self) -> None:
        """REPLICAOF NO ONE."""
        link = self.link
        if link is None or self._loop is None:
            return
        link.stop()
        self.link = None
        self.replid2, self.second_offset = link.place.replid or NOWHERE, link.offset + 1
        self.replid = secrets.token_hex(20)
        engine = self.server.engine
        if link.place.replid:
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
        fed_by_us, self._fed = self._fed, []
        for fed in fed_by_us:
            await asyncio.to_thread(fed.close)  # who follows us is to follow our primary
        node = await asyncio.to_thread(transport.Node, node_settings(self._config))
        try:
            await link.run(node)
        finally:
            await asyncio.to_thread(node.close)

    async def _unfollow(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # What others are told

    def role(self) -> list[Any]:
        """ROLE's answer."""
        link = self.link
        if link is not None:
            return [b"slave", link.host.encode(), link.port, link.state.encode(), link.offset]
        rows = [
            [fed.host.encode(), b"%d" % fed.port, b"%d" % fed.feeder.counters()["offset"]]
            for fed in self._fed
            if fed.is_linked
        ]
        return [b"master", self.server.engine.backlog_counters()["offset"], rows]

    def info(self) -> dict[str, Any]:
        """The fields of INFO replication."""
        tail, get = self.server.engine.backlog_counters(), self.server.parameters.get
        link = self.link
        fields: dict[str, Any] = {"role": "slave" if link is not None else "master"}
        if link is not None:
            figures = link.figures()
            up = link.state == "connected" and link.linked
            silent_s = figures["silent_ns"] // 1_000_000_000 if up and figures else -1
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
                "master_link_error": link.why,
                "replica_full_syncs": link.full_syncs,
                "replica_partial_syncs": link.partial_syncs,
                "replica_written_bytes": figures.get("written_bytes", 0),
                "replica_received_bytes": figures.get("bytes", 0),
                "replica_damaged_pieces": figures.get("damaged", 0),
                **_lag_fields(figures),
            }
        fields["connected_slaves"] = sum(fed.is_linked for fed in self._fed)
        if get("min-replicas-to-write"):
            fields["min_slaves_good_slaves"] = self.good_replicas()
        for number, fed in enumerate(self._fed):
            row = fed.feeder.counters()
            fields[f"slave{number}"] = (
                f"ip={fed.host},port={fed.port},state={fed.state(row)},"
                f"offset={row['offset']},lag={row['silent_ns'] // 1_000_000_000},"
                f"wire={fed.session.wire or 'none'},writes={row['writes']},messages={row['messages']},"
                f"inlined={row['inlined']},repeats={row['repeats']},"
                f"rested_us={row['yielded_ns'] // 1000}"
            )
        return fields | {
            "master_failover_state": "no-failover",
            "master_replid": link.place.replid or NOWHERE if link is not None else self.replid,
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


def _lag_fields(figures: dict[str, Any]) -> dict[str, int]:
    """How late it was in the last eight seconds; 0: there was nothing to apply."""
    lags = Histogram(buckets=figures["lags"]) if figures else Histogram()
    return {
        f"replica_lag_p{percent}_us": int((lags.quantile_ns(percent / 100) or 0) / 1000)
        for percent in (50, 99)
    }


def _no(why: str) -> bytes:
    return json.dumps({"version": VERSION, "error": why}).encode()
