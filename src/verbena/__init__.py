"""RDMA for Python: the same verbs on every wire, and sessions built on them.
Names are imported at first use.
May not import a layer before a name of it is used."""

from typing import TYPE_CHECKING

from verbena import _ending  # noqa: F401 - at once: what the program registers with atexit later runs first

__all__ = [
    "Access",
    "Listener",
    "Node",
    "Pool",
    "Region",
    "RemoteArray",
    "RemoteRegion",
    "Request",
    "Session",
    "SessionState",
    "__version__",
    "connect",
    "dial",
    "errors",
    "far",
    "integrations",
    "kv",
    "listen",
    "sync",
    "testing",
    "transport",
    "verbs",
]

if TYPE_CHECKING:
    from verbena import errors, far, integrations, kv, sync, testing, transport, verbs
    from verbena._version import __version__
    from verbena.transport import (
        Listener,
        Node,
        Pool,
        Region,
        RemoteArray,
        RemoteRegion,
        Request,
        Session,
        SessionState,
        connect,
        dial,
        listen,
    )
    from verbena.verbs import Access
else:
    from verbena._lazy import importer

    _MODULES = ("errors", "far", "integrations", "kv", "sync", "testing", "transport", "verbs")

    __getattr__ = importer(
        __name__,
        dict.fromkeys(__all__, "transport")
        | {"Access": "verbs", "__version__": "_version"}
        | {name: name for name in _MODULES},
    )

    def __dir__() -> list[str]:
        return __all__
