"""What nodes need to know, as plain values; the configuration's names where it has them."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class NodesSettings:
    peers: tuple[str, ...] = ()
    """Where other nodes listen: "host:port". Our own address among them does no harm."""
    upstreams: tuple[str, ...] = ()
    """Registries asked in turn for what no node has: "https://host", "http://user:password@host:port"."""
    listen: str = "127.0.0.1:0"
    """Where other nodes are taken; empty: nowhere."""
    replicas: int = 0
    """How many peers get what is pushed here."""
    replicate_synchronously: bool = False
    """Whether a push is answered only after they have it."""
    piece_timeout_s: float = 10.0
    """A peer that takes longer for a piece stalls: others are asked."""
    tag_lifetime_s: float = 60.0
    """How long a tag taken from upstream is believed before upstream is asked again."""
    avoid_s: float = 600.0
    """How long a peer that sent wrong bytes is not asked."""
    window_bytes: int = 32 * MIB
    """Registered memory that peers write to, and the bound of what is on its way to us."""
    source_bytes: int = 16 * MIB
    """Registered memory that files are read into on their way to peers."""


PIECE = 4 * MIB
"""What is asked for, checked and passed on at a time. All nodes must agree: it is in every message."""
