"""The table of keys, second part: `[session]`, `[tls]`, `[iwarp]`, `[metrics]` and `[log]`."""

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
FILE = FilePath('a path, or "" for none', r"[^\x00-\x1f\x7f\ud800-\udfff]*")
SHORTEST_SECRET = 16


@dataclass(frozen=True)
class Session(Section):
    """Who we are, where we listen, and how a conversation with a peer is kept alive."""

    READ_BY = "sessions"

    node_name: str = text("", NODE_NAME, "What this node is called in logs, metrics and at its peers.")
    listen_address: str = text(
        "127.0.0.1",
        ADDRESS,
        "The address where sessions are taken.",
        "`0.0.0.0` and `::` mean every interface. Other machines are let in only with a secret or with"
        " certificates.",
    )
    listen_port: int = integer(
        7471,
        0,
        65535,
        "The TCP port where sessions are taken.",
        "Any free port will do; 0 picks one. RDMA connections are agreed upon here. 4791 is something else:"
        " the UDP port that RoCE v2 packets are sent to, which firewalls must let through as well.",
    )
    secret: Secret = secret(
        SHORTEST_SECRET,
        "The secret that peers must share; it never travels.",
        "It is better kept in a file (`secret_file`). There is no flag: command lines can be seen by all.",
    )
    secret_file: str = text(
        "",
        FILE,
        "A file that holds the secret.",
        "White space at its end does not count. Others than its owner and group must not be able to read it.",
    )
    heartbeat_interval_ms: int = integer(
        1000, 10, HOUR_MS, "How often an idle session asks whether its peer is there."
    )
    peer_timeout_ms: int = integer(
        10_000,
        20,
        HOUR_MS,
        "After how long a silence the peer counts as lost.",
        "It must span two heartbeats at least.",
    )
    resume_timeout_s: int = integer(
        30,
        1,
        86_400,
        "How long a session may be without a link before it counts as lost.",
        "Until then what was not acknowledged is kept, and sent again on the next link.",
    )
    idle_timeout_s: int = integer(
        300, 0, 31_536_000, "After how long without work a pooled connection is closed; 0 never."
    )
    max_message_size: int = size(
        64 * MIB,
        4 * KIB,
        1024 * MIB,
        "The longest request or answer that is taken from a peer.",
        "A longer one is refused before memory is found for it. Bulk transfers are not bounded by it, nor"
        " are the store's commands and replies, which go in parts.",
    )
    upgrade_delay_ms: int = integer(
        1000,
        1,
        HOUR_MS,
        "How long a session that fell back to a worse wire waits before it tries the better one again.",
        "The time doubles with every failure, up to `upgrade_delay_max_ms`.",
    )
    upgrade_delay_max_ms: int = integer(60_000, 1, 24 * HOUR_MS, "The longest such wait.")
    capture_folder: str = text(
        "",
        FILE,
        "A folder where each node writes what its sessions send, receive, read and write to a pcapng file.",
        "Wireshark opens it. It holds the program's data: only its owner may read it. For finding faults; it"
        " costs time.",
    )
    capture_headers_only: bool = boolean(
        False, "Whether those files leave out the payloads of messages and the data of transfers."
    )
    allow_drill: bool = boolean(
        False,
        "Whether peers that have proven who they are may break this node's links on purpose.",
        "`verbena failover-drill` asks for it. Sessions go on by another wire, or the same a moment later.",
    )


@dataclass(frozen=True)
class Tls(Section):
    """Certificates for sessions and QUIC. A listener that has one speaks TLS."""

    READ_BY = "sessions"

    certificate: str = text("", FILE, "This node's certificate and its chain, in PEM.")
    key: str = text(
        "", FILE, "The certificate's private key, in PEM.", "Without it, it is in the certificate's file."
    )
    ca: str = text(
        "",
        FILE,
        "The authorities whose certificates are believed, in PEM.",
        "Without it sessions are dialled without TLS.",
    )
    revoked: str = text(
        "",
        FILE,
        "The certificates that the authority has taken back, in PEM.",
        "Peers that show one of them are refused, by sessions and by QUIC.",
    )
    verify: bool = boolean(
        True,
        "Whether the certificate of a peer that we connect to is checked, and its name.",
        "Off, anyone in between can pose as the peer.",
    )
    require_client_certificate: bool = boolean(
        False, "Whether a peer that connects to us must show a certificate of `ca`."
    )


@dataclass(frozen=True)
class Iwarp(Section):
    """The wire over TCP."""

    READ_BY = "sessions"

    crc: bool = boolean(
        True,
        "Whether we ask for a checksum (CRC32C) on every packet.",
        "It is used if either end asks. The variable works for programs that use verbs alone, too.",
    )
    handshake_timeout_ms: int = integer(
        5000, 10, HOUR_MS, "How long a peer that has connected may take to say what it wants."
    )
    max_handshakes: int = integer(
        1024, 1, 65536, "How many such peers are borne with at once; further ones are closed."
    )


@dataclass(frozen=True)
class Metrics(Section):
    """Figures for Prometheus."""

    READ_BY = "sessions"

    listen: str = endpoint(
        "", "The address and port of the page with metrics.", "Anyone who can reach it can read it."
    )


@dataclass(frozen=True)
class Log(Section):
    """What is written to standard error."""

    READ_BY = "sessions"

    level: str = choice(
        "info", ("debug", "info", "warning", "error"), "The least important lines that are written."
    )
    format: str = choice("text", ("text", "json"), "How lines look: for people, or one JSON object each.")
