"""The table of keys: what is documented is in it, and each key takes what it says and nothing else."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from verbena import config
from verbena.config import KEYS, SECTIONS, Config, kinds
from verbena.config.keys import Key
from verbena.config.rules import RULES, WARNINGS
from verbena.errors import ConfigurationError

DOCUMENTED = {
    "network.rdma_enabled": False,
    "network.rdma_device": "mlx5_0",
    "network.rdma_port": 1,
    "network.rdma_gid_index": 3,
    "network.rdma_fallback": "tcp",
    "network.rdma.max_connections": 1000,
    "network.rdma.connection_timeout_ms": 5000,
    "network.rdma.connection_retries": 3,
    "network.rdma.retry_delay_ms": 1000,
    "network.rdma.max_mr_size": 10**9,
    "network.rdma.inline_threshold": 256,
    "network.rdma.send_queue_depth": 128,
    "network.rdma.recv_queue_depth": 128,
    "network.rdma.max_send_sge": 4,
    "network.rdma.max_recv_sge": 4,
    "network.rdma.cq_size": 4096,
    "network.rdma.poll_batch": 32,
    "network.rdma.adaptive_polling": True,
    "network.rdma.busy_poll_us": 100,
    "network.rdma.pin_memory": False,
    "network.rdma.huge_pages": False,
    "network.rdma.recv_buffer_pool_size": 10_000,
    "network.rdma.recv_buffer_size": 4096,
    "replication.transport": "rdma",
    "replication.rdma_device": "mlx5_0",
    "replication.rdma.use_rdma_write": True,
    "replication.rdma.max_inline_size": 512,
    "cluster.enabled": False,
    "cluster.transport": "rdma",
    "cluster.rdma.gossip_rdma": True,
    "cluster.rdma.migration_rdma": True,
    "shards.rdma.device": "mlx5_0",
    "shards.rdma.port": 1,
    "shards.rdma.gid_index": 0,
    "shards.rdma.max_send_size": 4 << 20,
    "shards.rdma.num_memory_regions": 16,
    "shards.rdma.qp_depth": 64,
}


S3_EXAMPLES: dict[str, tuple[list[Any], list[Any]]] = {
    "registry.s3.bucket": (["", "my-bucket.1", "x" * 255], ["a/b", "a b", "x" * 256, 1]),
    "registry.s3.endpoint": (
        ["", "http://[::1]:9000", "https://host/"],
        ["host:9000", "ftp://host", "http://h/p"],
    ),
    "registry.s3.prefix": (["", "a/b-c"], ["a b", "é", 1]),
    "registry.s3.region": (["us-east-1"], ["", "a b", 1]),
    "registry.s3.access_key": (["", "AKIA:x/1"], ["a b", "new\nline", 1]),
    "registry.s3.profile": (["", "a team's"], ["new\nline", 1]),
}


def examples(key: Key) -> tuple[list[Any], list[Any]]:
    """Values at a kind's bounds, which it takes, and just past them or of another type, which it refuses."""
    kind = key.kind
    if isinstance(kind, kinds.Integer):
        return [kind.low, kind.high], [kind.low - 1, kind.high + 1, 1.0, "1", True, [1]]
    if isinstance(kind, kinds.Size):
        taken = [kind.low, kind.high, kinds.format_size(kind.high), f"{kind.low}B"]
        return taken, [kind.low - 1, kind.high + 1, f"{kind.high + 1}B", "1 parsec", "", "1G", 0.5, True]
    if isinstance(kind, kinds.Boolean):
        return [True, False], [1, 0, "true", "", "yes"]
    if isinstance(kind, kinds.Choice):
        return list(kind.options), ["", kind.options[0].upper(), "other", 1, True, list(kind.options)]
    if isinstance(kind, kinds.Endpoint):
        return ["", "127.0.0.1:0", "[::1]:65535", "host:80"], ["host", ":80", "::1:80", "host:65536", 80]
    if isinstance(kind, kinds.SecretText):
        return ["", "x" * kind.shortest], ["x" * (kind.shortest - 1), 1234567890123456, False]
    if key.name in ("device", "rdma_device"):
        return ["mlx5_0", "auto", "rxe0", "x" * 64], ["", "a b", "a/b", "x" * 65, 0]
    if key.name == "numa":
        return ["auto", "off", "0", "12"], ["", "-1", "1000", "on", 0, True]
    if key.name == "node_name":
        return ["", "a-b.c_9", "x" * 64], ["a b", "é", "x" * 65, 1]
    if key.name in ("listen_address", "rdma_listen_addr"):
        return ["0.0.0.0", "::1", "localhost"], ["", "a b", "[::1]", "host/24", "x" * 254, 1]
    if key.path == "kv.rdma_listen":
        return ["", "rdma://0.0.0.0:6379", "shm://store"], ["0.0.0.0:6379", "tcp://host:1", 1]
    if key.path == "kv.notify_keyspace_events":
        return ["", "KEA", "Kg$lshzxe"], ["Q", "K E", 1]
    lists = ("kv.commands", "registry.webhooks", "registry.peers", "registry.upstream")
    if key.path in ("kv.client_output_buffer_limit", *lists):
        return ["", "a.py, b"], ["new\nline", 1, ["a"]]
    if key.path == "kv.rdma_listen":
        return ["", "rdma://0.0.0.0:6379", "shm://store"], ["0.0.0.0:6379", "quic://host:1", 1]
    if key.path == "cluster.map_store":
        wrong = ["", "map.db", "redis://host", "etcd://", "etcdss://host", 1]
        return ["sqlite:///var/map.db", "etcd://host:2379/one", "etcds://host:2379"], wrong
    if key.name == "host_names":
        wrong = ["a.example:80", "a,", ",a", "a b", "a..b", "http://a", "*", 1]
        return ["", "store-1", "a.example,b.example", "a, b.example"], wrong
    if key.path == "session.allow_uids":
        return ["", "1000", "0,1000,65534"], ["a", "1000,", "-1", "1 2", 1000]
    if key.path == "kv.session_users":
        wrong = ["secret", "secret=", ",secret=a", "secret=a,", "uid:me=a", "pid:1=a", "secret=a b", 1]
        return ["", "secret=a", "certificate:DNS:web=web, uid:1000=app,certificate:URI:x=y=z"], wrong
    if key.path == "cluster.announce_address":
        return ["", "10.0.0.1", "::1", "host"], ["a b", "[::1]", "host/24", "x" * 254, 1]
    if key.path in ("replication.primary_user", "cluster.etcd.user"):
        return ["", "alice", "x" * 64], ["a b", "x" * 65, 1]
    if key.path in S3_EXAMPLES:
        return S3_EXAMPLES[key.path]
    assert isinstance(kind, kinds.FilePath)
    return ["", "/etc/a b", "é.pem"], ["new\nline", "nul\0", 1, ["a"]]


TAKEN = [(path, value) for path, key in KEYS.items() for value in examples(key)[0]]
REFUSED = [(path, value) for path, key in KEYS.items() for value in examples(key)[1]]


def line(path: str, value: Any) -> str:
    """`path = value`, in a document where the keys around it break no rule whatever it is."""
    return f"{path} = {json.dumps(value)}"


@pytest.mark.parametrize(("path", "default"), DOCUMENTED.items())
def test_every_documented_key_is_there_with_its_default(path, default):
    """Names and defaults are the documents' own; the switches that start something are off."""
    assert KEYS[path].default == default
    assert Config()[path] == default
    assert type(Config()[path]) is type(default)


def test_our_own_sections_are_the_rest():
    """Nothing is in the table by accident."""
    ours = {key.section for path, key in KEYS.items() if path not in (*DOCUMENTED, "network.rdma.numa")}
    assert ours == {
        "session",
        "tls",
        "iwarp",
        "metrics",
        "log",
        "replication",
        "replication.rdma",
        "cluster.etcd",
        "cluster",
        "kv",
        "kv.persistence",
        "registry",
        "registry.retention",
        "registry.s3",
    }


@pytest.mark.parametrize(("path", "value"), TAKEN)
def test_a_value_at_its_bound_is_taken(path, value):
    """By itself: whether it fits the other keys is for the rules."""
    kind = KEYS[path].kind
    expected = kind.from_toml(value)
    try:
        loaded = config.loads(line(path, value))
    except ConfigurationError as error:
        broken = [problem.message for problem in error.problems]
        assert all(any(message.endswith(rule.statement) for rule in RULES) for message in broken), broken
    else:
        assert loaded[path] == expected
        assert loaded.source_of(path).line == 1
    if isinstance(value, str) and value:
        assert kind.from_text(value) == expected


@pytest.mark.parametrize(("path", "value"), REFUSED)
def test_a_value_past_its_bound_is_refused_by_name(path, value):
    """The message has the key, the line, and what is allowed."""
    with pytest.raises(ConfigurationError) as caught:
        config.loads(f"# first\n{line(path, value)}\n")
    (problem,) = caught.value.problems
    assert (problem.key, problem.line, problem.source) == (path, 2, "<text>")
    assert problem.message.startswith(f"{path} must be {KEYS[path].kind.allowed}, not ")


@pytest.mark.parametrize("path", KEYS)
def test_a_default_is_allowed_and_written_so_that_it_can_be_read(path):
    key = KEYS[path]
    assert config.loads(f"{path} = {key.default_toml}")[path] == key.default


@pytest.mark.parametrize("path", KEYS)
def test_every_key_is_explained(path):
    """One sentence of meaning, more sentences if need be."""
    key = KEYS[path]
    for words in filter(None, (key.meaning, key.more)):
        assert words.endswith(".")
        assert words == " ".join(words.split())
    assert len(key.meaning.split()) > 2
    assert ". " not in key.meaning
    assert key.read_by


def test_every_section_is_explained():
    assert [name for name, section in SECTIONS.items() if not (section.__doc__ or "").endswith(".")] == []


def test_no_two_keys_share_a_variable_or_a_flag():
    """Dots and underscores become one, so two paths could."""
    variables = [key.variable for key in KEYS.values()]
    flags = [key.flag for key in KEYS.values() if key.flag]
    assert len(set(variables)) == len(variables)
    assert len({*flags, "--config", "--json", "--changed", "--origin"}) == len(flags) + 4
    assert KEYS["network.rdma.inline_threshold"].variable == "VERBENA_NETWORK_RDMA_INLINE_THRESHOLD"
    assert KEYS["network.rdma.inline_threshold"].flag == "--network-rdma-inline-threshold"


def test_units_are_in_the_names():
    """A duration's unit is its name's ending; a size is in bytes."""
    assert KEYS["network.rdma.busy_poll_us"].unit == "microseconds"
    assert KEYS["session.idle_timeout_s"].unit == "seconds"
    assert KEYS["network.rdma.max_mr_size"].unit == "bytes"
    assert KEYS["network.rdma.cq_size"].unit == ""


def test_sections_are_frozen():
    """A configuration that is handed around cannot change under those who have it."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().network.rdma.cq_size = 1  # type: ignore[misc]


def test_a_rule_names_keys_of_the_table_and_holds_for_the_defaults():
    for rule in (*RULES, *WARNINGS):
        assert set(rule.keys) <= set(KEYS)
        assert rule.holds(Config()), rule.statement


BROKEN_RULES = [
    ({"network.rdma.inline_threshold": 5000}, "fit into a receive buffer"),
    ({"network.rdma.cq_size": 255}, "sends and receives of one connection"),
    ({"network.rdma.poll_batch": 4096, "network.rdma.cq_size": 4095}, "more completions than"),
    ({"network.rdma.recv_buffer_pool_size": 127}, "keeps posted"),
    ({"network.rdma.recv_buffer_size": "8KiB", "network.rdma.max_mr_size": 4096,
      "shards.rdma.max_send_size": 4096}, "receive buffer must fit"),
    ({"shards.rdma.max_send_size": "4MiB", "network.rdma.max_mr_size": "2MiB"}, "piece of a shard"),
    ({"session.peer_timeout_ms": 1999}, "two heartbeat intervals"),
    ({"session.upgrade_delay_ms": 60_001}, "exceed the maximum"),
    ({"session.secret": "x" * 16, "session.secret_file": "/run/secret"}, "only one of the two"),
    ({"kv.password": "pass", "kv.password_file": "/run/secret"}, "only one of the two"),
    ({"tls.key": "a.pem"}, "a key needs a certificate"),
    ({"cluster.etcd.key": "a.pem"}, "a key needs a certificate"),
    ({"cluster.etcd.ca": "ca.pem"}, "certificates need TLS"),
    ({"kv.session_users": "secret=a, secret=b"}, "each principal has one user"),
    ({"cluster.etcd.user": "node"}, "a user needs a password"),
    ({"tls.require_client_certificate": True}, "client certificates need TLS"),
    ({"session.listen_address": "0.0.0.0"}, "need a secret or certificates"),
    ({"session.listen_address": "example.org"}, "need a secret or certificates"),
    ({"registry.tls": True}, "needs a certificate"),
    ({"registry.listen_address": "0.0.0.0"}, "needs `htpasswd` or `anonymous`"),
    ({"registry.tokens": True}, "tokens need users"),
    ({"registry.s3.access_key": "me"}, "the access key and its secret"),
    ({"registry.rdma_enabled": True}, "nodes on other machines"),
    ({"registry.peers": "other:9999"}, "needs `rdma_enabled`"),
    ({"cluster.enabled": True, "replication.replicaof": "other:6379"}, "CLUSTER REPLICATE assigns replicas"),
    ({"network.rdma_fallback": "quic"}, "QUIC is always encrypted"),
    ({"replication.transport": "quic"}, "QUIC is always encrypted"),
    ({"cluster.transport": "quic"}, "QUIC is always encrypted"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "words"), BROKEN_RULES)
def test_keys_that_contradict_each_other_are_refused(values, words):
    """The message names the keys with their values and what must hold; the caret is at one that is set."""
    text = "\n".join(line(path, value) for path, value in values.items())
    with pytest.raises(ConfigurationError) as caught:
        config.loads(text)
    (problem,) = caught.value.problems
    assert words in problem.message
    assert problem.line is not None
    assert problem.key in values
    assert f"{problem.key} is " in problem.message


def test_every_rule_has_a_case_above():
    assert all(any(words in rule.statement for _, words in BROKEN_RULES) for rule in RULES)


@pytest.mark.parametrize(
    "values",
    [
        {"session.listen_address": "0.0.0.0", "session.secret": "x" * 16},
        {"session.listen_address": "::", "session.secret_file": "/run/secret"},
        {"session.listen_address": "127.3.2.1"},
        {"session.listen_address": "::1"},
        {"network.rdma_fallback": "quic", "tls.ca": "ca.pem"},
        {"tls.certificate": "a", "tls.key": "b", "tls.ca": "c", "tls.require_client_certificate": True,
         "session.listen_address": "10.0.0.1"},
    ],
)  # fmt: skip
def test_keys_that_fit_are_taken(values):
    loaded = config.loads("\n".join(line(path, value) for path, value in values.items()))
    assert {path: loaded.source_of(path).kind for path in values} == dict.fromkeys(values, "file")


def test_a_rule_is_not_checked_on_a_value_that_is_wrong_by_itself():
    """One mistake, one message."""
    with pytest.raises(ConfigurationError) as caught:
        config.loads("network.rdma.cq_size = 1")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [("session.listen_port = 4791", "RoCE v2"), ("tls.verify = false", "impersonate the peer")],
)
def test_what_is_hardly_meant_is_a_warning(text, words):
    (warning,) = config.loads(text).warnings
    assert words in warning
    assert "<text>:1" in warning
