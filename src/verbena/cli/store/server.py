"""Runs the store: sockets, sessions, persistence, replication and cluster, until a stop signal."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from verbena import __version__, transport
from verbena.cli.checks.limits import memlock_note
from verbena.cli.safety import require_memory, session_note, store_note
from verbena.cli.service import stop_event
from verbena.config import Config
from verbena.config.rules import is_loopback
from verbena.errors import VerbenaError, setup_error
from verbena.kv.cluster import ClusterNode, ClusterSettings
from verbena.kv.frontends.session_users import SessionUsers
from verbena.kv.frontends.sessions import SessionFrontend
from verbena.kv.frontends.valkey_rdma import RdmaListener, wire_of
from verbena.kv.observe.store_metrics import StoreMetrics
from verbena.kv.replication.replication import Replication
from verbena.kv.server.health import EngineCheck
from verbena.kv.server.panels import panels
from verbena.kv.server.server import Server
from verbena.kv.server.startup import Listening, listen, make_server
from verbena.kv.storage.persistence import Persistence, Settings
from verbena.transport.configured import configure_log, listen_address, settings_from
from verbena.transport.opening import WIRES


async def serve(config: Config) -> int:
    loop, stopped = asyncio.get_running_loop(), stop_event()
    require_memory(config, "kv.maxmemory", "replication.backlog_size")
    configure_log(config)
    node, gateway = None, None
    if config.kv.sessions:
        node = await asyncio.to_thread(transport.Node, _wired(config))
        gateway = SessionFrontend(
            node, users=SessionUsers.parse(config.kv.session_users), loopback_only=_loopback_only(config)
        )
    if config.cluster.enabled and node is None:
        raise setup_error("invalid_argument", operation="join the cluster", detail="kv.sessions is off")
    places, listener, rdma, cluster, replication = Listening(), None, None, None, None
    try:
        # Slots move between nodes, so a cluster offers no one-sided reads; its memory need not be shared with
        # wires.
        shared = gateway is not None and not config.cluster.enabled
        server = make_server(config, memory=gateway.memory if gateway is not None and shared else None)
        kept = Persistence(server, Settings.of(config.kv.persistence))
        server.services.shut_down = partial(_set, loop, stopped)
        places = listen(server, config)
        if node is not None and gateway is not None:
            gateway.open(server)
            server.services.info_sections["rdma"] = node.info_rdma
            node.panels.update(panels(server))
            node.metric_sources["store"] = StoreMetrics(server)
            node.health_checks["engine"] = EngineCheck(server)
            if config.cluster.enabled:
                cluster = ClusterNode(server, node, ClusterSettings.of(config), config)
            replication = Replication(server, config)
            handlers = {**replication.handlers, **(cluster.handlers if cluster else {})}
            listener = await _sessions(config, node, places, handlers)
            gateway.admit_through(listener)
        if config.kv.rdma_listen:
            rdma = RdmaListener(server, *wire_of(config.kv.rdma_listen))
        wires = {*(node.wires.names if node is not None else ()), *((rdma.wire,) if rdma is not None else ())}
        if note := memlock_note(wires):
            places.notes.append(note)
        places.notes += filter(None, _access_notes(config, server, gateway))
        server.start()
        try:
            await asyncio.to_thread(kept.open)
            if replication is not None and listener is not None:
                await replication.open(int(listener.address.rpartition(":")[2]))
            if cluster is not None and listener is not None:
                await _join(config, cluster, places, listener)
        except BaseException:
            await asyncio.to_thread(server.stop)
            raise
        gc.freeze()  # exclude long-lived objects of the start from garbage collection
        print(_banner(config, places, listener, rdma, cluster), flush=True)
        await stopped.wait()
        if replication is not None:
            await replication.close()
        if cluster is not None:
            await cluster.close()
        if rdma is not None:
            await rdma.close()
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(kept.close)
    finally:
        places.close()
        if listener is not None:
            await listener.close()
        if node is not None:
            await asyncio.to_thread(node.close)
    print("verbena: store stopped", file=sys.stderr)
    return 0


def _set(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    loop.call_soon_threadsafe(stopped.set)


def _wired(config: Config) -> transport.Settings:
    """The settings of sessions, plus the wire that the cluster requires."""
    settings, wanted = settings_from(config), WIRES.get(config.cluster.transport, config.cluster.transport)
    if config.cluster.enabled and wanted != "ibv" and wanted not in settings.wires:
        return replace(settings, wires=(*settings.wires, wanted))
    return settings


async def _join(
    config: Config, cluster: ClusterNode, places: Listening, listener: transport.Listener
) -> None:
    """Joins the cluster under an address that other nodes and clients can reach. Raises VerbenaError."""
    if not places.tcp:
        raise setup_error("invalid_argument", operation="join the cluster", detail="kv.tcp is off")
    host, _, port = places.tcp.rpartition(":")
    host = config.cluster.announce_address or host.strip("[]")
    sessions = listener.address.rpartition(":")[2]
    await cluster.open(
        host=host, port=int(port), sessions=f"[{host}]:{sessions}" if ":" in host else f"{host}:{sessions}"
    )


async def _sessions(
    config: Config, node: transport.Node, places: Listening, handlers: Mapping[str, transport.Handler]
) -> transport.Listener:
    """Listens for sessions. If the default port is in use, listens on a free one and adds a note; a
    configured port raises."""
    try:
        return await transport.listen("", handlers=handlers, node=node, config=config)
    except VerbenaError as error:
        asked = config.source_of("session.listen_port").kind != "default"
        if asked or error.code != "address_in_use":
            raise
    session = replace(config.session, listen_port=0)
    listener = await transport.listen(
        "", handlers=handlers, node=node, config=replace(config, session=session)
    )
    places.notes.append(f"{listen_address(config)} is in use: sessions are accepted on {listener.address}")
    return listener


def _loopback_only(config: Config) -> bool:
    """Whether every address on which the store accepts clients is a loopback address."""
    kv = config.kv
    return all(map(is_loopback, (config.session.listen_address, kv.listen_address, *_rdma_hosts(config))))


def _rdma_hosts(config: Config) -> list[str]:
    address = config.kv.rdma_listen
    if not address or address.startswith("shm://"):
        return []
    return [address.partition("://")[2].rpartition(":")[0].strip("[]")]


def _access_notes(config: Config, server: Server, gateway: SessionFrontend | None) -> Iterator[str]:
    """What is refused, and what is unsafe."""
    kv = config.kv
    hosts = [kv.listen_address] if kv.tcp or kv.tls_port else []
    yield store_note(
        (*hosts, *_rdma_hosts(config)),
        open_to_all=server.acl.default.needs_no_password,
        protected=server.clients.protected,
    )
    if gateway is not None:
        yield session_note(config, admits_unproved=gateway.admits_unproved)


def _banner(
    config: Config,
    places: Listening,
    listener: transport.Listener | None,
    rdma: RdmaListener | None,
    cluster: ClusterNode | None,
) -> str:
    lines = [f"verbena {__version__} store, pid {os.getpid()}"]
    for name, where in (("redis", places.tcp), ("redis, tls", places.tls), ("redis, unix", places.unix)):
        if where:
            lines.append(f"  {name:<12}{where}")
    if rdma is not None:
        lines.append(f"  {'valkey rdma':<12}{rdma.address} on {rdma.wire}")
    if config.kv.persistence.dir:
        lines.append(f"  {'data':<12}{config.kv.persistence.dir}, fsync {config.kv.persistence.fsync}")
    if listener is not None:
        lines.append(f"  {'sessions':<12}{listener.address} on {', '.join(listener.wires)}")
        page = "off (--metrics-listen 127.0.0.1:9121)"
        if config.metrics.listen:
            page = f"http://{config.metrics.listen}/ (metrics at /metrics)"
        lines.append(f"  {'status page':<12}{page}")
    if cluster is not None:
        lines.append(f"  {'cluster':<12}node {cluster.id}, map in {cluster.settings.map_store}")
    lines += [f"  note: {note}" for note in places.notes]
    if places.tcp:
        lines.append(f"try: redis-cli -p {places.tcp.rpartition(':')[2]} ping")
    return "\n".join(lines)
