"""RDMA for Python: the same verbs on every wire, and sessions built on them.
Names are imported at first use."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from verbena import errors, transport, verbs
    from verbena._version import __version__
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
else:
    from verbena._lazy import importer

    __getattr__ = importer(
        __name__,
        dict.fromkeys(__all__, "transport")
        | {"__version__": "_version", "errors": "errors", "verbs": "verbs"},
    )

    def __dir__() -> list[str]:
        return __all__
