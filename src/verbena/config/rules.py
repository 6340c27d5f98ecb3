"""Rules between keys. A rule has its keys, a text that states the condition, and a function that tests it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from verbena.config.model import Config

ROCE_V2_UDP_PORT = 4791


@dataclass(frozen=True)
class Rule:
    """A condition on the values of `keys`: `holds` tests it, `words` states it for messages."""

    keys: tuple[str, ...]
    words: str
    holds: Callable[[Config], bool]


def is_loopback(host: str) -> bool:
    """Whether a listener at this host can be reached from this machine only."""
    import ipaddress  # slow to import, and only needed here

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _quic_has_certificates(choice: str, config: Config) -> bool:
    return config[choice] != "quic" or bool(config.tls.ca)


RULES = (
    Rule(
        ("network.rdma.inline_threshold", "network.rdma.recv_buffer_size"),
        "a message that is sent inline must fit the buffer that receives it",
        lambda c: c.network.rdma.inline_threshold <= c.network.rdma.recv_buffer_size,
    ),
    Rule(
        ("network.rdma.cq_size", "network.rdma.send_queue_depth", "network.rdma.recv_queue_depth"),
        "the completion queue must hold at least the sends and receives of one connection",
        lambda c: c.network.rdma.cq_size >= c.network.rdma.send_queue_depth + c.network.rdma.recv_queue_depth,
    ),
    Rule(
        ("network.rdma.poll_batch", "network.rdma.cq_size"),
        "no more completions can be taken at a time than the queue holds",
        lambda c: c.network.rdma.poll_batch <= c.network.rdma.cq_size,
    ),
    Rule(
        ("network.rdma.recv_buffer_pool_size", "network.rdma.recv_queue_depth"),
        "the pool must hold at least the buffers that one connection keeps posted",
        lambda c: c.network.rdma.recv_buffer_pool_size >= c.network.rdma.recv_queue_depth,
    ),
    Rule(
        ("network.rdma.recv_buffer_size", "network.rdma.max_mr_size"),
        "a receive buffer lies in one memory region",
        lambda c: c.network.rdma.recv_buffer_size <= c.network.rdma.max_mr_size,
    ),
    Rule(
        ("shards.rdma.max_send_size", "network.rdma.max_mr_size"),
        "a piece of a shard lies in one memory region",
        lambda c: c.shards.rdma.max_send_size <= c.network.rdma.max_mr_size,
    ),
    Rule(
        ("session.peer_timeout_ms", "session.heartbeat_interval_ms"),
        "a peer is lost after two heartbeats at the earliest",
        lambda c: c.session.peer_timeout_ms >= 2 * c.session.heartbeat_interval_ms,
    ),
    Rule(
        ("session.upgrade_delay_ms", "session.upgrade_delay_max_ms"),
        "the first wait cannot be longer than the longest",
        lambda c: c.session.upgrade_delay_ms <= c.session.upgrade_delay_max_ms,
    ),
    Rule(
        ("session.secret", "session.secret_file"),
        "the secret is given in one place only",
        lambda c: not (c.session.secret and c.session.secret_file),
    ),
    Rule(
        ("tls.key", "tls.certificate"),
        "a key is of no use without its certificate",
        lambda c: not c.tls.key or bool(c.tls.certificate),
    ),
    Rule(
        ("tls.require_client_certificate", "tls.certificate", "tls.ca"),
        "clients' certificates can only be asked for over TLS, and are checked against `ca`",
        lambda c: not c.tls.require_client_certificate or bool(c.tls.certificate and c.tls.ca),
    ),
    Rule(
        ("session.listen_address", "session.secret", "session.secret_file", "tls.require_client_certificate"),
        "other machines are let in only with a secret or with certificates",
        lambda c: (
            is_loopback(c.session.listen_address)
            or bool(c.session.secret or c.session.secret_file)
            or c.tls.require_client_certificate
        ),
    ),
    Rule(
        ("registry.tls", "tls.certificate"),
        "a registry that speaks TLS needs a certificate",
        lambda c: not c.registry.tls or bool(c.tls.certificate),
    ),
    Rule(
        ("registry.listen_address", "registry.htpasswd", "registry.anonymous", "registry.access_file"),
        "a registry that other machines can reach must say who may do what: by `htpasswd` or `anonymous`",
        lambda c: (
            is_loopback(c.registry.listen_address)
            or bool(c.registry.htpasswd or c.registry.access_file)
            or c.registry.anonymous != "default"
        ),
    ),
    Rule(
        ("registry.rdma_enabled", "registry.rdma_listen_addr", "session.secret", "session.secret_file"),
        "nodes on other machines are let in only with a secret or with certificates",
        lambda c: (
            not c.registry.rdma_enabled
            or is_loopback(c.registry.rdma_listen_addr)
            or bool(c.session.secret or c.session.secret_file)
            or c.tls.require_client_certificate
        ),
    ),
    Rule(
        ("registry.peers", "registry.rdma_enabled"),
        "other nodes are asked only where `rdma_enabled` is on",
        lambda c: not c.registry.peers or c.registry.rdma_enabled,
    ),
    Rule(
        ("registry.tokens", "registry.htpasswd"),
        "tokens are given to users, who need passwords",
        lambda c: not c.registry.tokens or bool(c.registry.htpasswd),
    ),
    Rule(
        ("registry.s3.access_key", "registry.s3.secret_key"),
        "an access key has a name and a secret: give both, or neither",
        lambda c: bool(c.registry.s3.access_key) == bool(c.registry.s3.secret_key),
    ),
    Rule(
        ("replication.replicaof", "cluster.enabled"),
        "a cluster's map says who follows whom: CLUSTER REPLICATE",
        lambda c: not (c.cluster.enabled and c.replication.replicaof),
    ),
    *(
        Rule(
            (choice, "tls.certificate", "tls.ca"),
            "QUIC is always encrypted, and needs a `ca` to check certificates by",
            partial(_quic_has_certificates, choice),
        )
        for choice in ("network.rdma_fallback", "replication.transport", "cluster.transport")
    ),
)

# Conditions that cause a warning instead of an error: allowed, but probably not intended.
DOUBTS = (
    Rule(
        ("session.listen_port",),
        "4791 is the UDP port of RoCE v2 packets; sessions need a TCP port of their own",
        lambda c: c.session.listen_port != ROCE_V2_UDP_PORT,
    ),
    Rule(
        ("tls.verify",),
        "with verification off, anyone in between can pose as the peer",
        lambda c: c.tls.verify,
    ),
)
