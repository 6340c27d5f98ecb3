"""Replication at one server: the replicas it sends its log to, or the primary it follows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from verbena import _native, transport
from verbena.kv.commands.replies import CommandError
from verbena.kv.replication import report
from verbena.kv.replication.authentication import log_in, refusal
from verbena.kv.replication.link import METHOD, VERSION, ReplicaLink, ReplicaPosition
from verbena.kv.replication.replica import Replica
from verbena.kv.replication.report import NO_HISTORY
from verbena.kv.replication.settings import Settings, node_settings
from verbena.kv.replication.sync_request import SyncRequest
from verbena.kv.server.blocked_clients import REPLICAS
from verbena.verbs import Access

if TYPE_CHECKING:
    from verbena.config import Config
    from verbena.kv.server.clients import Client
    from verbena.kv.server.server import Server

log = logging.getLogger("verbena.kv")
Result = TypeVar("Result")

READONLY = "READONLY You can't write against a read only replica."
NOREPLICAS = "NOREPLICAS Not enough good replicas to write."
UNBLOCKED = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
MAX_BACKLOG_BYTES = 256 << 20


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
        self.replicas: list[Replica] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._pruning = False
        self._ending: set[asyncio.Task[None]] = set()
        self._refused: dict[str, str] = {}  # the last reason for each host that was refused, for the log
        self._eager = False
        # In a cluster: whether a session is a member's, which follows without a user's right. Called on the
        # engine's thread too.
        self.is_member: Callable[[transport.Session], bool] = lambda session: False
        # In a cluster: makes a session known to the primary, instead of AUTH.
        self.introduce: Callable[[transport.Session], Awaitable[None]] | None = None
        self.handlers: dict[str, transport.Handler] = {METHOD: self._serve}
        server.services.replication = self
        server.services.on_tick.append(self._tick)
        server.clients.on_rights_changed.append(self.check_rights)

    # Set-up, on the event loop

    async def open(self, sessions_port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.sessions_port = sessions_port
        host, _, port = self._settings.replicaof.rpartition(":")
        if host:
            self.follow(host.strip("[]"), int(port))

    async def close(self) -> None:
        await self._unfollow()
        await asyncio.gather(*self._ending)
        replicas, self.replicas = self.replicas, []
        for replica in replicas:
            await asyncio.to_thread(replica.close)

    # Primary

    async def _serve(self, request: transport.Request) -> bytes:
        """Handles a replica's request to follow: starts sending, and answers with the position at which the
        stream begins."""
        try:
            sync_request = SyncRequest.parse(request.payload, version=VERSION)
        except ValueError as error:
            return _refusal(str(error))
        client, why = await self._on_engine(partial(self._authorise, request.session, sync_request.stream))
        if why:
            return _refusal(why)
        if self.link is not None:
            return _refusal("this server is a replica itself: follow its primary")
        if self.server.engine.loading:
            return _refusal("this server is loading")
        if self.server.services.cluster is not None and self.term is None:
            return _refusal("this server has not read its cluster's map yet")
        if sync_request.databases < len(self.server.databases):
            return _refusal(
                f"{len(self.server.databases)} databases here, {sync_request.databases} there: kv.databases"
            )
        host = request.session.peer.rpartition(":")[0].strip("[]")
        for replica in self._former(host, sync_request.port, client):
            self.replicas.remove(replica)
            await asyncio.to_thread(replica.close)
        known = sync_request.replid == self.replid
        replica = await asyncio.to_thread(
            self._start_sender, request.session, client, sync_request, known, host
        )
        sender = replica.sender
        self.full_syncs += sender.full
        self.partial_syncs += not sender.full
        self.refused_partials += bool(sync_request.replid) and sender.full
        self.replicas.append(replica)
        if self._eager:
            sender.set_eager(True)
        await self._on_engine(partial(self._accepted, replica))
        answer = {
            "version": VERSION,
            "replid": self.replid,
            "term": self.term or (0, 0),
            "full": sender.full,
            "lsn": sender.lsn,
            "offset": sender.offset,
            "position_key": replica.position_region.remote.key if replica.position_region is not None else 0,
        }
        return json.dumps(answer).encode()

    def _former(self, host: str, port: int, client: Client | None) -> list[Replica]:
        """Returns the entries of a replica that reconnected before its old session was seen to end. The port
        is the replica's own claim: only an entry of the same user is replaced."""
        user = client.user if client is not None else None
        return [
            replica
            for replica in self.replicas
            if replica.name == (host, port)
            and (replica.client.user if replica.client is not None else None) is user
        ]

    def _authorise(self, session: transport.Session, stream: int | None) -> tuple[Client | None, str]:
        """Returns the stream whose user may follow, and why the session may not; "": it may. On the engine's
        thread."""
        if self.is_member(session):
            return None, ""
        if self.server.services.cluster is not None:
            why = "the cluster map does not list the session's node as a replica of this server"
            self.log_refusal(session.peer, f"{why} ({session.principal})")
            return None, why
        clients, now_ms = self.server.clients, self.server.engine.now_ms
        client = clients.of_stream(session.id, stream) if stream is not None else None
        why = refusal(self.server, client)
        if why:
            self.server.acl.note(client, "command", b"psync", now_ms, client_text=f"addr={session.peer}")
            self.log_refusal(session.peer, f"{why} ({session.principal})")
        return client, why

    def log_refusal(self, peer: str, why: str) -> None:
        """Logs that a replica was refused. A replica repeats its request: only the first refusal for a reason
        is logged."""
        host = peer.rpartition(":")[0]
        if self._refused.get(host) != why:
            self._refused[host] = why
            log.warning("a replica at %s was refused: %s", peer, why)

    def _accepted(self, replica: Replica) -> None:
        self._refused.pop(replica.session.peer.rpartition(":")[0], None)
        if replica.client is not None:
            replica.client.is_replica = True
            self.server.clients.limits.apply(replica.client)
        self.check_rights()  # they may have changed since the request

    def check_rights(self) -> None:
        """Ends the links of replicas that have lost the right to follow. Call it on the engine's thread when
        users, their rights or the members of a cluster may have changed."""
        for replica in list(self.replicas):
            if self.is_member(replica.session):
                continue
            client = replica.client
            why = refusal(self.server, client) if client is not None else "the replica has left the cluster"
            if why:
                with contextlib.suppress(ValueError):  # it is closed already
                    replica.sender.stop(why)
                self._start_pruning()
                self.check_writes()

    async def _on_engine(self, function: Callable[[], Result]) -> Result:
        """Runs a function on the engine's thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            try:
                result = function()
            except Exception as error:
                loop.call_soon_threadsafe(future.set_exception, error)
            else:
                loop.call_soon_threadsafe(future.set_result, result)

        self.server.engine.post(run)
        return await future

    def _start_sender(
        self,
        session: transport.Session,
        client: Client | None,
        sync_request: SyncRequest,
        known: bool,
        host: str,
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
            ring_key=sync_request.ring_key,
            ring_tag=sync_request.ring_tag,
            ring_bytes=sync_request.ring_bytes,
            by_write=by_write,
            position=region,
            max_inline=self._settings.max_inline_size,
            lsn=sync_request.lsn if known else None,
            offset=sync_request.offset,
            on_receipt=self._on_receipt,
        )
        return Replica(sender, session, host, sync_request.port, region, client)

    def limit_backlog(self) -> None:
        """Sets how much of the log the backlog keeps."""
        keep = self.server.parameters.get("repl-backlog-size")
        self.server.engine.set_backlog_limits(keep_bytes=keep, max_bytes=max(keep, MAX_BACKLOG_BYTES))

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
        self.check_rights()
        if any(replica.sender.counters()["ended"] for replica in self.replicas):
            self._start_pruning()
        self.check_writes()

    def _start_pruning(self) -> None:
        if self._loop is not None and not self._pruning:
            self._pruning = True
            self._loop.call_soon_threadsafe(self._prune)

    def _prune(self) -> None:
        self._pruning = False
        for replica in [replica for replica in self.replicas if replica.sender.counters()["ended"]]:
            self.replicas.remove(replica)
            why = replica.sender.counters()["why"]
            log.warning("the link to replica %s:%d ended: %s", replica.host, replica.port, why)
            task = asyncio.ensure_future(self._end(replica))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, replica: Replica) -> None:
        """Closes the session too, so that the replica notices, connects again and learns the reason."""
        await asyncio.to_thread(replica.close)
        await replica.session.close()

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

    @property
    def followers(self) -> int:
        """The number of clients that are streams of replicas."""
        known = self.server.clients
        clients = [replica.client for replica in list(self.replicas)]
        return sum(one is not None and known.get(one.id) is one for one in clients)

    def good_replicas(self) -> int:
        longest_ns = self.server.parameters.get("min-replicas-max-lag") * 1_000_000_000
        rows = [(replica.state(row := replica.sender.counters()), row) for replica in self.replicas]
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
        counters = [replica.sender.counters() for replica in self.replicas]
        return sum(not row["copying"] and not row["ended"] and row[field] >= offset for row in counters)

    def await_receipts(self) -> None:
        """Called when a client waits for replicas: makes them report each position at once from now on."""
        if not self._eager:
            self._set_eager(True)

    def _set_eager(self, eager: bool) -> None:
        self._eager = eager
        for replica in self.replicas:
            replica.sender.set_eager(eager)

    # Replica

    def follow(self, host: str, port: int, *, sessions: str = "") -> None:
        """REPLICAOF: follows a primary. `sessions`: its address for sessions; by default the primary is asked
        for it. Any thread may call it; the link runs on the event loop."""
        if self._loop is None:
            raise CommandError("ERR replication needs sessions: kv.sessions is off")
        position = ReplicaPosition()
        if self.link is not None:
            self.link.stop()
            position = self.link.position
        else:  # a write by a waiting client would never reach the primary, nor be acknowledged
            self.server.engine.post(lambda: self.server.blocking.unblock_all(UNBLOCKED))
        self.link = ReplicaLink(
            self.server,
            self._config,
            self._settings,
            host,
            port,
            position,
            authenticate=self._authenticate,
            sessions=sessions,
        )
        self.check_writes()
        self.server.engine.active_expiry = False
        self._loop.call_soon_threadsafe(partial(self._spawn, self.link))

    async def _authenticate(self, session: transport.Session) -> int | None:
        if self.introduce is not None:
            await self.introduce(session)
            return None
        settings = self._settings
        return await log_in(session, user=settings.primary_user, password=settings.primary_password)

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
            engine.restart_log_at(link.offset)
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
        replicas, self.replicas = self.replicas, []
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
        return report.role(self)

    def info(self) -> dict[str, Any]:
        """Returns the fields of INFO replication."""
        return report.info(self)


def _refusal(why: str) -> bytes:
    return json.dumps({"version": VERSION, "error": why}).encode()
