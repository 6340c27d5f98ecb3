"""The host names under which a node serves its web pages. A name that another site's DNS points at this
machine is refused: a browser would let the scripts of that site read the pages (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit


class HostNames:
    """Allowed are addresses, localhost, the name of this machine and `further` names. `key`: the
    configuration key of further names, for the text of a refusal."""

    def __init__(self, further: Iterable[str] = (), *, key: str = "metrics.host_names") -> None:
        own = socket.gethostname()
        names = ("localhost", own, own.partition(".")[0], *further)
        self._names = frozenset(name.strip().lower().rstrip(".") for name in names) - {""}
        self._key = key

    def refusal(self, hosts: Iterable[str]) -> str:
        """Returns why a request with these Host headers is refused; "": it is allowed. Browsers always send
        the header, so a request without one is allowed."""
        for host in hosts:
            if not self.allows(host):
                return f"{_shown(host)} is not a name of this node: add it to {self._key}\n"
        return ""

    def origin_refusal(self, origin: str, hosts: Iterable[str]) -> str:
        """Returns why a request that changes state is refused; "": it is allowed. Browsers send Origin with
        such requests; it must be the node's own page. `origin` "": there is no such header."""
        if not origin:
            return ""
        hosts = list(hosts)
        if refusal := self.refusal(hosts):
            return refusal
        if hosts != [_host_of(origin)]:
            return f"a page of {_shown(origin)} may not change anything here\n"
        return ""

    def allows(self, host: str) -> bool:
        """Returns whether it is an allowed value of the Host header."""
        try:
            parts = urlsplit(f"//{host}")
            name, _ = parts.hostname, parts.port
        except ValueError:
            return False
        if not name or parts.username is not None or parts.path or parts.query or parts.fragment:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.rstrip(".") in self._names
        return True


def _host_of(origin: str) -> str:
    scheme, separator, host = origin.partition("://")
    return host if separator and scheme in ("http", "https") else ""


def _shown(text: str) -> str:
    return repr(text[:100])
