"""The table of keys, fourth part: `[registry]`, the container registry that `verbena registry` runs."""

from __future__ import annotations

from dataclasses import dataclass

from verbena.config.keys import Section, boolean, choice, integer, secret, section, size, text
from verbena.config.kinds import Secret, Text
from verbena.config.service import ADDRESS, FILE, KIB, MIB

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
    """What the registry keeps, and when it looks for what nobody needs."""

    READ_BY = "the registry"

    interval_s: int = integer(
        3600, 0, YEAR_S, "How often garbage is collected by itself; 0: only when asked."
    )
    grace_s: int = integer(
        86_400,
        0,
        YEAR_S,
        "How long a blob that no manifest names is kept.",
        "A push must be done within that time from its first blob to its manifest.",
    )
    upload_timeout_s: int = integer(
        604_800, 60, YEAR_S, "After how long without a chunk an unfinished upload is forgotten."
    )
    keep_tags: int = integer(
        0, 0, 1_000_000, "How many tags of a repository are kept, the newest first; 0: all of them."
    )
    keep_untagged_s: int = integer(
        0,
        0,
        10 * YEAR_S,
        "How long a manifest is kept that has no tag and that no other one needs; 0: for ever.",
    )


@dataclass(frozen=True)
class RegistryS3(Section):
    """The bucket of an S3-compatible store where the registry's blobs are; the folder then has copies."""

    READ_BY = "the registry"

    bucket: str = text(
        "", BUCKET, "The bucket's name; empty: blobs are files in the folder, and nowhere else."
    )
    endpoint: str = text(
        "", URL, "The store's address, such as `https://s3.example:9000`; empty: that of the region at AWS."
    )
    prefix: str = text(
        "",
        PREFIX,
        "What stands before the names of all objects.",
        "Registries that share a bucket need one each.",
    )
    region: str = text("us-east-1", REGION, "The region; stores of one's own mostly take any.")
    access_key: str = text(
        "",
        ACCESS_KEY,
        "The access key's name.",
        "Without it, credentials come from the usual places: AWS_ACCESS_KEY_ID and its kin, a web identity,"
        " the container's or the machine's role.",
    )
    secret_key: Secret = secret(
        8, "The access key's secret.", "There is no flag: command lines can be seen by all."
    )
    profile: str = text(
        "", PROFILE, "The profile of `~/.aws` that credentials are taken from; needs the package boto3."
    )
    path_style: bool = boolean(
        True, "Whether the bucket's name stands in the path, or (`false`) before the host's name."
    )
    ca: str = text("", FILE, "Certificates that the store's is checked by; empty: the usual ones.")
    timeout_s: int = integer(
        30, 1, 3600, "How long one request to the store may take, with what is repeated."
    )
    part_size: int = size(
        8 * MIB, 5 * MIB, 1024 * MIB, "How long the parts are that blobs are uploaded in, four at a time."
    )
    cache_size: int = size(
        10 * 1024 * MIB,
        0,
        1024 * TIB,
        "How much of what is in the bucket is kept in the folder as well.",
        "What was used last stays longest. Blobs on their way need room besides.",
    )
    redirect: bool = boolean(
        False,
        "Whether clients that GET a blob are sent to the bucket, by a signed address.",
        "They must be able to reach it.",
    )
    redirect_lifetime_s: int = integer(600, 10, 86_400, "How long such an address is good.")


@dataclass(frozen=True)
class Registry(Section):
    """The container registry that `verbena registry` runs."""

    READ_BY = "the registry"

    folder: str = text(
        "verbena-registry",
        FILE,
        "The folder where everything is stored.",
        "It is made if it is not there. One server at a time may use it.",
    )
    listen_address: str = text(
        "127.0.0.1",
        ADDRESS,
        "The address where clients are taken.",
        "`0.0.0.0` and `::` mean every interface; then `htpasswd` or `anonymous` must say who may do what.",
    )
    port: int = integer(5000, 0, 65535, "The TCP port where clients are taken; 0 picks one.")
    tls: bool = boolean(
        False,
        "Whether clients speak TLS, with the certificate of `[tls]`.",
        "Where `tls.ca` and `tls.require_client_certificate` are set, clients must show one as well.",
    )
    htpasswd: str = text(
        "",
        FILE,
        "The file of users and passwords, as `htpasswd -B` writes it.",
        "It is read again when it changes. Without it everyone is anonymous.",
    )
    anonymous: str = choice(
        "default",
        ("default", "none", "pull", "push", "delete"),
        "What those may do who have not logged in; each includes those before it.",
        "By default nothing where there are passwords, and everything where there are none.",
    )
    access_file: str = text(
        "",
        FILE,
        "The file of rules that say which user may do what in which repositories.",
        "Where it is given, it alone decides, also for those who have not logged in.",
    )
    tokens: bool = boolean(
        False,
        "Whether clients exchange their password for a token at /token, instead of sending it each time.",
        "Basic credentials are taken all the same.",
    )
    token_secret: Secret = secret(
        32,
        "The secret that tokens are signed with.",
        "Nodes that share it take each other's tokens. Without it, one is made and kept in the folder.",
    )
    token_lifetime_s: int = integer(300, 60, 86_400, "How long a token is good.")
    delete: bool = boolean(True, "Whether manifests, tags and blobs can be deleted by clients.")
    read_only: bool = boolean(False, "Whether clients can only pull.")
    max_blob_size: int = size(TIB, KIB, 1024 * TIB, "The longest blob that is taken.")
    max_manifest_size: int = size(4 * MIB, KIB, 64 * MIB, "The longest manifest that is taken.")
    chunk_min_size: int = size(
        0, 0, 1024 * MIB, "The shortest chunk that clients are asked to send; 0: they are not asked."
    )
    sparse_manifests: bool = boolean(
        False, "Whether a manifest is taken although blobs or manifests that it names are missing."
    )
    requests_per_s: int = integer(
        0, 0, 1_000_000, "How many requests a second one address may send on average; 0: no bound."
    )
    max_connections: int = integer(1000, 1, 1_000_000, "How many connections of clients are held at once.")
    timeout_s: int = integer(60, 1, 86_400, "After how long a silence a client is given up.")
    access_log: str = text(
        "", FILE, "The file that gets a line for each request; empty: none.", '"-" is standard output.'
    )
    webhooks: str = text(
        "",
        LIST,
        "Addresses that are told of pushes, pulls and deletions, separated by commas.",
    )
    webhook_secret: Secret = secret(
        16,
        "The secret that notifications are signed with, in the header X-Verbena-Signature.",
        "There is no flag: command lines can be seen by all.",
    )
    page: bool = boolean(True, "Whether browsers are shown a page, at `/`, with what is here.")
    rdma_enabled: bool = boolean(False, "Whether this node exchanges blobs with others.")
    rdma_listen_addr: str = text("0.0.0.0", ADDRESS, "The address where other nodes are taken.")
    rdma_listen_port: int = integer(9999, 0, 65535, "The TCP port where other nodes are taken; 0 picks one.")
    peers: str = text(
        "",
        LIST,
        "The other nodes, HOST:PORT, separated by commas.",
        "One list can serve all nodes: one's own address in it does no harm.",
    )
    upstream: str = text(
        "",
        LIST,
        "Registries that are asked in turn for what no node has, separated by commas.",
        "`https://host`, or `http://user:password@host:5000/prefix`. What they give is verified and kept.",
    )
    tag_lifetime_s: int = integer(
        60, 0, YEAR_S, "How long a tag that came from upstream is believed before upstream is asked again."
    )
    replicas: int = integer(0, 0, 64, "How many other nodes get what is pushed to this one.")
    replication: str = choice(
        "async",
        ("async", "sync"),
        "Whether a push is answered before (`async`) or after (`sync`) those nodes have it.",
        "Where `sync` cannot have as many copies, the push is stored here, and answered by 503.",
    )
    piece_timeout_ms: int = integer(
        10_000, 100, 600_000, "How long another node may take for a piece of 4 MiB before others are asked."
    )
    window_size: int = size(
        32 * MIB,
        8 * MIB,
        1024 * MIB,
        "Registered memory that other nodes write to: the bound of what is on its way here.",
        "Half as much again is used to send from.",
    )
    retention: RegistryRetention = section(RegistryRetention)
    s3: RegistryS3 = section(RegistryS3)
