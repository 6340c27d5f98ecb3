"""RDMA for Python: one verbs model on every wire, and sessions on top."""

from importlib.metadata import version

from verbena import errors, transport, verbs
from verbena.transport import (
    Listener,
    Node,
    Pool,
    Region,
    RemoteRegion,
    Request,
    Session,
    SessionState,
    connect,
    connect_blocking,
    dial,
    listen,
)

__all__ = [
    "Listener",
    "Node",
    "Pool",
    "Region",
    "RemoteRegion",
    "Request",
    "Session",
    "SessionState",
    "__version__",
    "connect",
    "connect_blocking",
    "dial",
    "errors",
    "listen",
    "transport",
    "verbs",
]

__version__ = version("verbena")
