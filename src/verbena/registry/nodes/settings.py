"""Settings of the nodes as plain values, with the configuration's names where it has them."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class NodesSettings:
    peers: tuple[str, ...] = ()
    """Addresses of other nodes, "host:port". This node's own address may be among them."""
    upstreams: tuple[str, ...] = ()
    """Registries to query in turn for content that no node has: "https://host",
    "http://user:password@host:port"."""
    listen: str = "127.0.0.1:0"
    """The address for other nodes; empty to accept none."""
    replicas: int = 0
    """The number of peers that get a copy of each push."""
    replicate_synchronously: bool = False
    """Whether the response to a push waits for the copies."""
    piece_timeout_s: float = 10.0
    """After this time without the piece, the peer counts as stalled and others are tried."""
    tag_lifetime_s: float = 60.0
    """How long a tag from upstream is served before upstream is queried again."""
    avoid_s: float = 600.0
    """How long a peer that sent wrong bytes is avoided at first."""
    window_bytes: int = 32 * MIB
    """Registered memory that peers write to; it also bounds what is in transit to this node."""
    source_bytes: int = 16 * MIB
    """Registered memory into which files are read before they are sent to peers."""


PIECE = 4 * MIB
"""The unit of requests and transfers. All nodes must agree on it; SEND requests carry it."""
