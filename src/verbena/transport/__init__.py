"""Sessions: authenticated connections between nodes on the best common wire, with failover between wires.
Provides connect(), listen(), Node, Session, Pool, Region: calls, one-sided operations, bulk transfer.
May depend on verbena.verbs, verbena.config and below only."""

from verbena.transport.address import DEFAULT_PORT
from verbena.transport.codecs.codec import Codec
from verbena.transport.direct import DirectLink, DirectListener, dial
from verbena.transport.failover.policy import LinkState as SessionState
from verbena.transport.handshake.principal import Principal
from verbena.transport.listening.listener import Listener
from verbena.transport.memory.region import Region, RemoteRegion
from verbena.transport.memory.remote_array import RemoteArray
from verbena.transport.named.publication import Publication
from verbena.transport.node import Node
from verbena.transport.opening import connect, listen
from verbena.transport.pool import Pool, PoolStats
from verbena.transport.session import Handler, Request, Session
from verbena.transport.settings import Settings

__all__ = [
    "DEFAULT_PORT",
    "Codec",
    "DirectLink",
    "DirectListener",
    "Handler",
    "Listener",
    "Node",
    "Pool",
    "PoolStats",
    "Principal",
    "Publication",
    "Region",
    "RemoteArray",
    "RemoteRegion",
    "Request",
    "Session",
    "SessionState",
    "Settings",
    "connect",
    "dial",
    "listen",
]
