"""The settings of a client's sessions."""

from __future__ import annotations

import math
import ssl
from dataclasses import dataclass

from verbena.errors import setup_error


@dataclass(frozen=True)
class Access:
    """How a client connects to each store of a cluster: within `timeout_s` (None: the configured limits)."""

    secret: bytes | str
    tls: ssl.SSLContext | None
    wire: str | None
    timeout_s: float | None


def check_timeout(timeout_s: float | None) -> float | None:
    """Returns the timeout; None for one without end."""
    if timeout_s is None or timeout_s == math.inf:
        return None
    if not timeout_s > 0:
        raise setup_error("invalid_argument", operation="open a client", detail=f"timeout_s is {timeout_s}")
    return timeout_s
