"""Rules between keys. A rule has its keys, a text that states the condition, and a function that tests it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from verbena.config.model import Config

ROCE_V2_UDP_PORT = 4791


@dataclass(frozen=True)
class Rule:
    """A condition on the values of `keys`: `holds` tests it, `statement` describes it for messages."""

    keys: tuple[str, ...]
    statement: str
    holds: Callable[[Config], bool]


def _one_of_two(secret: str) -> Rule:
    """A secret stands in the configuration or in a file."""
    file = f"{secret}_file"
    return Rule((secret, file), "set only one of the two", lambda c: not (c[secret] and c[file]))


def is_loopback(host: str) -> bool:
    """Whether a listener at this host can be reached from this machine only."""
    import ipaddress  # slow to import, and only needed here

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _maps_each_once(session_users: str) -> bool:
    principals = [pair.rpartition("=")[0].strip() for pair in session_users.split(",")]
    return len(principals) == len(set(principals))


def _quic_has_certificates(choice: str, config: Config) -> bool:
    return config[choice] != "quic" or bool(config.tls.ca)


RULES = (
    Rule(
        ("network.rdma.inline_threshold", "network.rdma.recv_buffer_size"),
        "an inline message must fit into a receive buffer",
        lambda c: c.network.rdma.inline_threshold <= c.network.rdma.recv_buffer_size,
    ),
    Rule(
        ("network.rdma.cq_size", "network.rdma.send_queue_depth", "network.rdma.recv_queue_depth"),
        "the completion queue must hold at least the sends and receives of one connection",
        lambda c: c.network.rdma.cq_size >= c.network.rdma.send_queue_depth + c.network.rdma.recv_queue_depth,
    ),
    Rule(
        ("network.rdma.poll_batch", "network.rdma.cq_size"),
        "one poll cannot take more completions than the queue holds",
        lambda c: c.network.rdma.poll_batch <= c.network.rdma.cq_size,
    ),
    Rule(
        ("network.rdma.recv_buffer_pool_size", "network.rdma.recv_queue_depth"),
        "the pool must hold at least the buffers that one connection keeps posted",
        lambda c: c.network.rdma.recv_buffer_pool_size >= c.network.rdma.recv_queue_depth,
    ),
    Rule(
        ("network.rdma.recv_buffer_size", "network.rdma.max_mr_size"),
        "a receive buffer must fit into one memory region",
        lambda c: c.network.rdma.recv_buffer_size <= c.network.rdma.max_mr_size,
    ),
    Rule(
        ("shards.rdma.max_send_size", "network.rdma.max_mr_size"),
        "a piece of a shard must fit into one memory region",
        lambda c: c.shards.rdma.max_send_size <= c.network.rdma.max_mr_size,
    ),
    Rule(
        ("session.peer_timeout_ms", "session.heartbeat_interval_ms"),
        "the timeout must be at least two heartbeat intervals",
        lambda c: c.session.peer_timeout_ms >= 2 * c.session.heartbeat_interval_ms,
    ),
    Rule(
        ("session.upgrade_delay_ms", "session.upgrade_delay_max_ms"),
        "the first delay cannot exceed the maximum",
        lambda c: c.session.upgrade_delay_ms <= c.session.upgrade_delay_max_ms,
    ),
    _one_of_two("session.secret"),
    _one_of_two("kv.password"),
    _one_of_two("replication.primary_password"),
    _one_of_two("cluster.etcd.password"),
    Rule(
        ("cluster.etcd.key", "cluster.etcd.certificate"),
        "a key needs a certificate",
        lambda c: not c.cluster.etcd.key or bool(c.cluster.etcd.certificate),
    ),
    Rule(
        ("cluster.map_store", "cluster.etcd.ca", "cluster.etcd.certificate"),
        "certificates need TLS: write etcds:// instead of etcd://",
        lambda c: (
            c.cluster.map_store.startswith("etcds://")
            or not (c.cluster.etcd.ca or c.cluster.etcd.certificate)
        ),
    ),
    Rule(
        ("cluster.etcd.user", "cluster.etcd.password", "cluster.etcd.password_file"),
        "a user needs a password, and a password a user",
        lambda c: bool(c.cluster.etcd.user) == bool(c.cluster.etcd.password or c.cluster.etcd.password_file),
    ),
    Rule(
        ("kv.session_users",),
        "each principal has one user",
        lambda c: _maps_each_once(c.kv.session_users),
    ),
    Rule(
        ("tls.key", "tls.certificate"),
        "a key needs a certificate",
        lambda c: not c.tls.key or bool(c.tls.certificate),
    ),
    Rule(
        ("tls.require_client_certificate", "tls.certificate", "tls.ca"),
        "client certificates need TLS, and `ca` to verify them",
        lambda c: not c.tls.require_client_certificate or bool(c.tls.certificate and c.tls.ca),
    ),
    Rule(
        ("session.listen_address", "session.secret", "session.secret_file", "tls.require_client_certificate"),
        "connections from other machines need a secret or certificates",
        lambda c: (
            is_loopback(c.session.listen_address)
            or bool(c.session.secret or c.session.secret_file)
            or c.tls.require_client_certificate
        ),
    ),
    Rule(
        ("registry.tls", "tls.certificate"),
        "TLS needs a certificate",
        lambda c: not c.registry.tls or bool(c.tls.certificate),
    ),
    Rule(
        ("registry.listen_address", "registry.htpasswd", "registry.anonymous", "registry.access_file"),
        "a registry that other machines can reach needs `htpasswd` or `anonymous`",
        lambda c: (
            is_loopback(c.registry.listen_address)
            or bool(c.registry.htpasswd or c.registry.access_file)
            or c.registry.anonymous != "default"
        ),
    ),
    Rule(
        ("registry.rdma_enabled", "registry.rdma_listen_addr", "session.secret", "session.secret_file"),
        "nodes on other machines need a secret or certificates",
        lambda c: (
            not c.registry.rdma_enabled
            or is_loopback(c.registry.rdma_listen_addr)
            or bool(c.session.secret or c.session.secret_file)
            or c.tls.require_client_certificate
        ),
    ),
    Rule(
        ("registry.peers", "registry.rdma_enabled"),
        "`peers` needs `rdma_enabled`",
        lambda c: not c.registry.peers or c.registry.rdma_enabled,
    ),
    Rule(
        ("registry.tokens", "registry.htpasswd"),
        "tokens need users with passwords",
        lambda c: not c.registry.tokens or bool(c.registry.htpasswd),
    ),
    Rule(
        ("registry.s3.access_key", "registry.s3.secret_key"),
        "set both the access key and its secret, or neither",
        lambda c: bool(c.registry.s3.access_key) == bool(c.registry.s3.secret_key),
    ),
    Rule(
        ("replication.replicaof", "cluster.enabled"),
        "in a cluster, CLUSTER REPLICATE assigns replicas",
        lambda c: not (c.cluster.enabled and c.replication.replicaof),
    ),
    *(
        Rule(
            (choice, "tls.certificate", "tls.ca"),
            "QUIC is always encrypted and needs `ca` to verify certificates",
            partial(_quic_has_certificates, choice),
        )
        for choice in ("network.rdma_fallback", "replication.transport", "cluster.transport")
    ),
)

# Conditions that cause a warning instead of an error: allowed, but probably not intended.
WARNINGS = (
    Rule(
        ("session.listen_port",),
        "4791 is the UDP port of RoCE v2 packets; sessions need a TCP port of their own",
        lambda c: c.session.listen_port != ROCE_V2_UDP_PORT,
    ),
    Rule(
        ("tls.verify",),
        "without verification a man in the middle can impersonate the peer",
        lambda c: c.tls.verify,
    ),
)
