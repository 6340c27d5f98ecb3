"""The registry as a program: starts and stops everything that the configuration enables, in order.
The only module that knows all parts; the command line runs it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from pathlib import Path

from verbena.config import Config
from verbena.registry.access.passwords import Passwords
from verbena.registry.access.rules import Policy, read_rules
from verbena.registry.access.tokens import Tokens, load_secret
from verbena.registry.bucket import bucket_of
from verbena.registry.gc import Collected, collect
from verbena.registry.gc import Policy as Retention
from verbena.registry.http.access_log import AccessLog
from verbena.registry.http.authentication import Authenticator
from verbena.registry.http.call import Settings
from verbena.registry.http.server import Server
from verbena.registry.http.webhooks import Webhooks
from verbena.registry.metrics import Metrics
from verbena.registry.nodes.configured import open_nodes
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.service import Limits, Registry
from verbena.registry.web.health import health_page
from verbena.registry.web.node_page import add_node_page
from verbena.registry.web.pages import add_pages
from verbena.transport.address import parse_host_port
from verbena.transport.configured import names_in, server_tls
from verbena.transport.observe.host_names import HostNames

logger = logging.getLogger("verbena.registry")

# Each value includes the rights of those above it.
_ANONYMOUS = {
    "none": frozenset[str](),
    "pull": frozenset({"pull"}),
    "push": frozenset({"pull", "push"}),
    "delete": frozenset({"pull", "push", "delete"}),
}


@dataclass
class Program:
    """A running registry."""

    registry: Registry
    server: Server
    metrics_address: str = ""
    nodes: Nodes | None = None
    """The exchange with other nodes and upstream registries, if it is enabled."""


@contextlib.asynccontextmanager
async def serving(config: Config) -> AsyncIterator[Program]:
    """Serves until the block ends, then stops: running requests may finish, and all resources are released.
    Raises the set-up errors of its parts, such as ConfigurationError and AddressError."""
    keys = config.registry
    async with contextlib.AsyncExitStack() as stack:
        registry = await asyncio.to_thread(
            Registry,
            keys.folder,
            limits=Limits(keys.max_blob_size, keys.max_manifest_size, keys.sparse_manifests),
            bucket=bucket_of(config.registry.s3),
            cache_bytes=keys.s3.cache_size,
        )
        stack.push_async_callback(asyncio.to_thread, registry.close)
        metrics = Metrics()
        if registry.recall is not None:
            metrics.bucket = registry.recall.metric_values
            stack.push_async_callback(registry.recall.close)
        server = Server(
            registry,
            make_authenticator(config),
            Settings(
                delete=keys.delete,
                read_only=keys.read_only,
                chunk_min_bytes=keys.chunk_min_size,
                timeout_s=keys.timeout_s,
                requests_per_s=keys.requests_per_s,
                max_connections=keys.max_connections,
                redirect_s=keys.s3.redirect_lifetime_s if keys.s3.bucket and keys.s3.redirect else 0,
            ),
            metrics,
            AccessLog(keys.access_log),
            host_names=HostNames(names_in(keys.host_names), key="registry.host_names"),
        )
        program = Program(registry, server)
        if addresses := [address.strip() for address in keys.webhooks.split(",") if address.strip()]:
            secret = keys.webhook_secret.reveal().encode()
            webhooks = Webhooks(addresses, secret=secret, metrics=metrics)
            stack.push_async_callback(webhooks.close)
            registry.listeners.append(webhooks)
        if keys.retention.interval_s:
            task = asyncio.create_task(_collect_periodically(config, metrics))
            stack.push_async_callback(_end, task)
        program.nodes = await open_nodes(config, registry)
        if program.nodes is not None:
            metrics.nodes = program.nodes.metric_values
            stack.push_async_callback(program.nodes.close)
        if config.metrics.listen:
            program.metrics_address = await _serve_metrics(config, program, stack)
        if keys.page:
            add_pages(server, program.nodes)
        stack.push_async_callback(server.stop)
        tls = server_tls(config) if keys.tls else None
        await server.start(keys.listen_address, keys.port, tls)
        yield program


def make_authenticator(config: Config) -> Authenticator:
    """Builds the authenticator. Raises ConfigurationError for unusable files."""
    keys = config.registry
    anonymous = keys.anonymous
    if anonymous == "default":
        anonymous = "none" if keys.htpasswd else "delete"
    rules = read_rules(Path(keys.access_file)) if keys.access_file else None
    tokens = None
    if keys.tokens:
        given = keys.token_secret.reveal().encode()
        secret = given or load_secret(Path(keys.folder) / "token-secret")
        tokens = Tokens(secret, service="verbena", lifetime_s=keys.token_lifetime_s)
    passwords = Passwords(Path(keys.htpasswd)) if keys.htpasswd else None
    return Authenticator(Policy(_ANONYMOUS[anonymous], rules), passwords, tokens)


def retention_of(config: Config) -> Retention:
    keys = config.registry.retention
    return Retention(keys.grace_s, keys.upload_timeout_s, keys.keep_tags, keys.keep_untagged_s)


async def _serve_metrics(config: Config, program: Program, stack: contextlib.AsyncExitStack) -> str:
    """Serves metrics and the node's page on their own address, because its readers need not have the right to
    pull."""
    where = parse_host_port(config.metrics.listen)
    page = Server(
        program.registry,
        Authenticator(Policy(frozenset())),
        metrics=Metrics(),
        host_names=HostNames(names_in(config.metrics.host_names)),
    )
    page.pages["/metrics"] = program.server.metrics_page
    page.pages["/healthz"] = health_page(program.registry)
    if program.nodes is not None:
        add_node_page(page, program.nodes)
    stack.push_async_callback(page.stop)
    await page.start(where.host or "127.0.0.1", where.port)
    return page.addresses[0]


async def _collect_periodically(config: Config, metrics: Metrics) -> None:
    while True:
        await asyncio.sleep(config.registry.retention.interval_s)
        try:
            await collect_once(config, metrics)
        except Exception:
            logger.exception("garbage collection failed; retrying later")


async def collect_once(config: Config, metrics: Metrics) -> None:
    """Runs one garbage collection on another thread, and adds its counts to the metrics."""
    folder, policy = Path(config.registry.folder), retention_of(config)
    collected = await asyncio.to_thread(
        collect, folder, policy, pause_s=0.01, bucket=bucket_of(config.registry.s3)
    )
    for entry in fields(Collected):
        metrics.collected[entry.name] += getattr(collected, entry.name)
    logger.info("garbage collection removed %s", collected)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
