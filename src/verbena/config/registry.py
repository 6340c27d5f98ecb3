"""The keys of `[registry]`: the container registry that `verbena registry` runs."""

from __future__ import annotations

from dataclasses import dataclass

from verbena.config.keys import Section, boolean, choice, integer, secret, section, size, text
from verbena.config.kinds import Secret, Text
from verbena.config.service import ADDRESS, FILE, HOST_NAMES, KIB, MIB

TIB = 1 << 40
YEAR_S = 31_536_000
LIST = Text("addresses, separated by commas")
BUCKET = Text('a bucket\'s name, or "" for none', r"[A-Za-z0-9._-]{0,255}")
URL = Text('an address such as "https://host:9000", or ""', r"(https?://[^\s/]+/?)?")
PREFIX = Text('parts of a name with "/" between them, or ""', r"[A-Za-z0-9._/-]{0,512}")
REGION = Text('a name such as "us-east-1"', r"[A-Za-z0-9-]{1,64}")
ACCESS_KEY = Text('a name, or "" for none', r"[!-~]{0,256}")
PROFILE = Text('a name, or "" for none', r"[^\x00-\x1f\x7f]{0,128}")


@dataclass(frozen=True)
class RegistryRetention(Section):
    """Retention and garbage collection of the registry."""

    READ_BY = "the registry"

    interval_s: int = integer(3600, 0, YEAR_S, "The interval of automatic garbage collection; 0: none.")
    grace_s: int = integer(
        86_400,
        0,
        YEAR_S,
        "How long a blob without a manifest is kept.",
        "A push must finish within this time, from its first blob to its manifest.",
    )
    upload_timeout_s: int = integer(
        604_800, 60, YEAR_S, "The time without a chunk after which an unfinished upload is deleted."
    )
    keep_tags: int = integer(
        0, 0, 1_000_000, "The number of newest tags that are kept in a repository; 0: all."
    )
    keep_untagged_s: int = integer(
        0,
        0,
        10 * YEAR_S,
        "How long an untagged manifest that no other manifest references is kept; 0: for ever.",
    )


@dataclass(frozen=True)
class RegistryS3(Section):
    """Blobs in a bucket of an S3-compatible store; the folder is then a cache."""

    READ_BY = "the registry"

    bucket: str = text("", BUCKET, "The name of the bucket; empty: blobs are files in the folder.")
    endpoint: str = text(
        "", URL, "The endpoint, such as `https://s3.example:9000`; empty: the AWS endpoint of the region."
    )
    prefix: str = text(
        "",
        PREFIX,
        "The prefix of all object names.",
        "Registries that share a bucket need different prefixes.",
    )
    region: str = text("us-east-1", REGION, "The region; self-hosted stores usually accept any.")
    access_key: str = text(
        "",
        ACCESS_KEY,
        "The access key ID.",
        "If empty, credentials come from the environment (AWS_ACCESS_KEY_ID and so on), a web"
        " identity, or the"
        " role of the container or machine.",
    )
    secret_key: Secret = secret(
        8,
        "The secret of the access key.",
        "There is no flag, because command lines are visible to all users of a machine.",
    )
    profile: str = text("", PROFILE, "The profile in `~/.aws` for credentials; needs the package boto3.")
    path_style: bool = boolean(True, "Whether the bucket name is in the path or, if false, in the host name.")
    ca: str = text("", FILE, "The trusted certificate authorities for the store; empty: those of the system.")
    timeout_s: int = integer(30, 1, 3600, "The time limit for one request to the store, including retries.")
    part_size: int = size(
        8 * MIB, 5 * MIB, 1024 * MIB, "The size of the parts of an upload; four are sent at a time."
    )
    cache_size: int = size(
        10 * 1024 * MIB,
        0,
        1024 * TIB,
        "The size of the cache in the folder.",
        "The least recently used blobs are removed first. Blobs in transfer need additional space.",
    )
    redirect: bool = boolean(
        False,
        "Whether a GET of a blob redirects the client to a signed address of the bucket.",
        "Clients must be able to reach the bucket.",
    )
    redirect_lifetime_s: int = integer(600, 10, 86_400, "The lifetime of a signed address.")


@dataclass(frozen=True)
class Registry(Section):
    """The container registry that `verbena registry` runs."""

    READ_BY = "the registry"

    folder: str = text(
        "verbena-registry",
        FILE,
        "The folder of blobs and database.",
        "It is created if it does not exist. Only one server at a time can use it.",
    )
    listen_address: str = text(
        "127.0.0.1",
        ADDRESS,
        "The address on which clients are accepted.",
        "`0.0.0.0` and `::` mean every interface; then `htpasswd` or `anonymous` must be set.",
    )
    port: int = integer(5000, 0, 65535, "The TCP port on which clients are accepted; 0 selects a free port.")
    tls: bool = boolean(
        False,
        "Whether clients must use TLS, with the certificate of `[tls]`.",
        "If `tls.ca` and `tls.require_client_certificate` are set, clients must present a certificate.",
    )
    htpasswd: str = text(
        "",
        FILE,
        "The file of users and passwords, as `htpasswd -B` writes it.",
        "It is read again when it changes. Without it every client is anonymous.",
    )
    anonymous: str = choice(
        "default",
        ("default", "none", "pull", "push", "delete"),
        "The rights of clients that have not logged in; each value includes those before it.",
        "By default none if there are passwords, and all if there are none.",
    )
    access_file: str = text(
        "",
        FILE,
        "The file of access rules for users and repositories.",
        "If set, it alone decides, also for anonymous clients.",
    )
    tokens: bool = boolean(
        False,
        "Whether clients exchange their password for a token at /token.",
        "Basic credentials are accepted as well.",
    )
    token_secret: Secret = secret(
        32,
        "The signing key of tokens.",
        "Nodes with the same key accept each other's tokens. If empty, a key is generated and stored"
        " in the folder.",
    )
    token_lifetime_s: int = integer(300, 60, 86_400, "The lifetime of a token.")
    delete: bool = boolean(True, "Whether clients can delete manifests, tags and blobs.")
    read_only: bool = boolean(False, "Whether pushes and deletes are rejected.")
    max_blob_size: int = size(TIB, KIB, 1024 * TIB, "The maximum size of a blob.")
    max_manifest_size: int = size(4 * MIB, KIB, 64 * MIB, "The maximum size of a manifest.")
    chunk_min_size: int = size(
        0, 0, 1024 * MIB, "The minimum chunk size that is announced to clients; 0: none."
    )
    sparse_manifests: bool = boolean(
        False, "Whether a manifest is accepted while blobs or manifests that it references are missing."
    )
    requests_per_s: int = integer(
        0, 0, 1_000_000, "The average number of requests per second that one address may send; 0: no limit."
    )
    max_connections: int = integer(1000, 1, 1_000_000, "The maximum number of client connections.")
    timeout_s: int = integer(60, 1, 86_400, "The time without data after which a client is disconnected.")
    access_log: str = text("", FILE, "The access log; empty: none.", '"-" is standard output.')
    webhooks: str = text(
        "",
        LIST,
        "Addresses that receive notifications of pushes, pulls and deletes, separated by commas.",
    )
    webhook_secret: Secret = secret(
        16,
        "The signing key of notifications, in the header X-Verbena-Signature.",
        "There is no flag, because command lines are visible to all users of a machine.",
    )
    page: bool = boolean(True, "Whether `/` serves a web page with the contents of the registry.")
    host_names: str = text(
        "",
        HOST_NAMES,
        "Further host names under which the web page is requested, separated by commas.",
        "Addresses, `localhost` and the name of the machine are always allowed. Requests of clients such as"
        " docker may use any name.",
    )
    rdma_enabled: bool = boolean(False, "Whether this node exchanges blobs with other nodes.")
    rdma_listen_addr: str = text("0.0.0.0", ADDRESS, "The address on which other nodes are accepted.")
    rdma_listen_port: int = integer(
        9999, 0, 65535, "The TCP port on which other nodes are accepted; 0 selects a free port."
    )
    peers: str = text(
        "",
        LIST,
        "The addresses of the other nodes, HOST:PORT, separated by commas.",
        "The list may contain the node's own address, so that all nodes can share it.",
    )
    upstream: str = text(
        "",
        LIST,
        "Registries to fetch from if no node has the content, in this order, separated by commas.",
        "`https://host`, or `http://user:password@host:5000/prefix`. Fetched content is verified and stored.",
    )
    tag_lifetime_s: int = integer(
        60, 0, YEAR_S, "How long a tag from upstream is valid before it is fetched again."
    )
    replicas: int = integer(0, 0, 64, "The number of other nodes that get a copy of each push.")
    replication: str = choice(
        "async",
        ("async", "sync"),
        "Whether a push is acknowledged before (`async`) or after (`sync`) the copies exist.",
        "If `sync` cannot make enough copies, the push is stored here and answered with 503.",
    )
    piece_timeout_ms: int = integer(
        10_000,
        100,
        600_000,
        "The time limit for a node to deliver a piece of 4 MiB; after it, other nodes are asked.",
    )
    window_size: int = size(
        32 * MIB,
        8 * MIB,
        1024 * MIB,
        "The registered memory that other nodes write to; it bounds the data in flight to this node.",
        "Half of this size is used in addition for sending.",
    )
    retention: RegistryRetention = section(RegistryRetention)
    s3: RegistryS3 = section(RegistryS3)
