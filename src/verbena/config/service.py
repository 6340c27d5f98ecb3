"""The keys of `[session]`, `[tls]`, `[iwarp]`, `[metrics]` and `[log]`."""

from __future__ import annotations

from dataclasses import dataclass

from verbena.config.keys import Section, boolean, choice, endpoint, integer, secret, size, text
from verbena.config.kinds import FilePath, Secret, Text

KIB, MIB = 1 << 10, 1 << 20
HOUR_MS = 3_600_000

ADDRESS = Text(
    'an address or host name such as "0.0.0.0" or "::1"', r"[^\s\[\]/\x00-\x1f\x7f\ud800-\udfff]{1,253}"
)
NODE_NAME = Text(
    'a name of up to 64 letters, digits, ".", "_" and "-", or "" for the host\'s', r"[A-Za-z0-9._-]{0,64}"
)
UIDS = Text('uids such as "1000,1001", or "" for none', r"([0-9]{1,9}(,[0-9]{1,9})*)?")
HOST_NAMES = Text(
    'host names such as "store-1,store-1.example.com", or "" for none',
    r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(, ?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)*)?",
)
FILE = FilePath('a path, or "" for none', r"[^\x00-\x1f\x7f\ud800-\udfff]*")
MIN_SECRET_LENGTH = 16
SECRET_FILE_NOTE = "Trailing white space is ignored. Only the owner and the group may have read access."


@dataclass(frozen=True)
class Session(Section):
    """Identity, listening address and lifetime of sessions."""

    READ_BY = "sessions"

    node_name: str = text("", NODE_NAME, "The name of this node in logs, metrics and at its peers.")
    listen_address: str = text(
        "127.0.0.1",
        ADDRESS,
        "The address on which sessions are accepted.",
        "`0.0.0.0` and `::` mean every interface. Other machines need a secret or a certificate.",
    )
    listen_port: int = integer(
        7471,
        0,
        65535,
        "The TCP port on which sessions are accepted.",
        "0 selects a free port. The wire `iwarp` uses this TCP port too, and the wire `quic` the UDP port of"
        " the same number, if `data_port` is 0. RDMA connections are negotiated here. RoCE v2 packets use UDP"
        " port 4791, which a firewall must also allow.",
    )
    data_port: int = integer(
        0,
        0,
        65535,
        "The port of the wires `iwarp` (TCP) and `quic` (UDP); 0: the port on which sessions are accepted.",
        "The wires listen on the addresses on which sessions are accepted.",
    )
    secret: Secret = secret(
        MIN_SECRET_LENGTH,
        "The secret that peers must share; it is never transmitted.",
        "Prefer `secret_file`. There is no flag, because command lines are visible to all users of a"
        " machine.",
    )
    secret_file: str = text("", FILE, "The file with the secret.", SECRET_FILE_NOTE)
    allow_uids: str = text(
        "",
        UIDS,
        "Users of this host that may open sessions without a secret, by uid, separated by commas.",
        "Root and the user of the node always may. The kernel reports the uid of a peer on the same host; on"
        " other hosts a peer needs a secret or a certificate.",
    )
    heartbeat_interval_ms: int = integer(1000, 10, HOUR_MS, "The interval of heartbeats on an idle session.")
    peer_timeout_ms: int = integer(
        10_000,
        20,
        HOUR_MS,
        "The time without any message after which a link counts as lost.",
        "It must be at least two heartbeat intervals.",
    )
    resume_timeout_s: int = integer(
        30,
        1,
        86_400,
        "How long a session may be without a link before it fails.",
        "Until then unacknowledged messages are kept and repeated on the next link.",
    )
    idle_timeout_s: int = integer(
        300, 0, 31_536_000, "The idle time after which a pooled session is closed; 0: never."
    )
    max_message_size: int = size(
        64 * MIB,
        4 * KIB,
        1024 * MIB,
        "The largest request or reply that is accepted from a peer.",
        "A larger one is rejected before memory is allocated. Bulk transfers are not limited by it; commands"
        " and replies of the store are split.",
    )
    upgrade_delay_ms: int = integer(
        1000,
        1,
        HOUR_MS,
        "The delay before a session that fell back tries the better wire again.",
        "It doubles with every failure, up to `upgrade_delay_max_ms`.",
    )
    upgrade_delay_max_ms: int = integer(
        60_000, 1, 24 * HOUR_MS, "The maximum of `upgrade_delay_ms` after failures."
    )
    capture_folder: str = text(
        "",
        FILE,
        "The folder for a pcapng file with the messages and one-sided operations of each node's sessions.",
        "Wireshark opens it. The file contains application data and is readable by its owner only. Captures"
        " cost time; use them for debugging.",
    )
    capture_headers_only: bool = boolean(False, "Whether captures omit payloads and transferred data.")
    allow_drill: bool = boolean(
        False,
        "Whether authenticated peers may break this node's links on purpose.",
        "`verbena failover-drill` needs it. Sessions continue on another wire, or on the same wire"
        " after a reconnect.",
    )


@dataclass(frozen=True)
class Tls(Section):
    """Certificates for sessions and QUIC. A listener with a certificate uses TLS."""

    READ_BY = "sessions"

    certificate: str = text("", FILE, "This node's certificate and its chain, in PEM.")
    key: str = text(
        "", FILE, "The certificate's private key, in PEM.", "If empty, the key is in the certificate's file."
    )
    ca: str = text(
        "",
        FILE,
        "The trusted certificate authorities, in PEM.",
        "If empty, sessions connect without TLS.",
    )
    revoked: str = text(
        "",
        FILE,
        "The certificate revocation list of the authority, in PEM.",
        "Sessions and QUIC reject peers with a revoked certificate.",
    )
    verify: bool = boolean(
        True,
        "Whether the certificate and the name of a dialled peer are verified.",
        "If off, a man in the middle can impersonate the peer.",
    )
    require_client_certificate: bool = boolean(
        False, "Whether connecting peers must present a certificate of `ca`."
    )


@dataclass(frozen=True)
class Iwarp(Section):
    """The wire over TCP."""

    READ_BY = "sessions"

    crc: bool = boolean(
        True,
        "Whether this end requests a CRC32C checksum on every segment.",
        "It is used if either end requests it. The environment variable also applies to programs"
        " that use verbs only.",
    )
    handshake_timeout_ms: int = integer(
        5000, 10, HOUR_MS, "The time limit for a connecting peer to send its request."
    )
    max_handshakes: int = integer(
        1024, 1, 65536, "The maximum number of unfinished handshakes; the longest silent one is closed."
    )


@dataclass(frozen=True)
class Metrics(Section):
    """Metrics for Prometheus and the status page."""

    READ_BY = "sessions"

    listen: str = endpoint(
        "", "The address and port of the metrics page; empty: none.", "The page has no access control."
    )
    host_names: str = text(
        "",
        HOST_NAMES,
        "Further host names under which the metrics page is requested, separated by commas.",
        "Addresses, `localhost` and the name of the machine are always allowed. Requests for other names are"
        " refused, because a web site could point its own name at this machine.",
    )


@dataclass(frozen=True)
class Log(Section):
    """Log output on standard error."""

    READ_BY = "sessions"

    level: str = choice("info", ("debug", "info", "warning", "error"), "The lowest level that is written.")
    format: str = choice(
        "text", ("text", "json"), "The format of log lines: text, or one JSON object per line."
    )
