"""Parses addresses of nodes: "host:port", "[v6]:port"."""

from __future__ import annotations

from dataclasses import dataclass

from verbena.errors import setup_error

DEFAULT_PORT = 7471  # of sessions, as in the configuration


@dataclass(frozen=True)
class HostPort:
    host: str
    port: int

    @property
    def bracketed(self) -> str:
        """The host, in brackets if it is an IPv6 address."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"{self.bracketed}:{self.port}"


def parse_host_port(text: str) -> HostPort:
    """Parses "host", "host:port", "[v6]:port" or ":port" (all interfaces). AddressError for anything else."""
    host, separator, port = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        host, separator, port = text, "", ""
    elif not separator:
        host, port = text, ""
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    valid = (port.isdecimal() and int(port) < 65536) if separator else True
    if not valid or (":" in host and "[" not in text):
        detail = f"{text!r} is not host:port; an IPv6 address needs brackets: [::1]:{DEFAULT_PORT}"
        raise setup_error("unreachable", operation="connect", detail=detail)
    return HostPort(host, int(port) if separator else DEFAULT_PORT)
