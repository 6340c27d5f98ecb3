"""Certificates for ends of the iwarp wire, of a throw-away authority."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import socket
import struct
from pathlib import Path
from typing import Any

from support.certificates import Authority
from verbena.verbs import Tls

SIOCGIFADDR = 0x8915
HERE = "DNS:localhost,IP:127.0.0.1,IP:::1"
MISSING = "" if shutil.which("openssl") else "the openssl command is not installed"


def issue(authority: Authority, name: str = "end", *, names: str = HERE, **options: Any) -> Tls:
    """A certificate of the authority, which is also whom its holder believes."""
    pair = authority.issue(name, names=names, **options)
    return Tls(certificate=pair.certificate, key=pair.key, authority=authority.ca)


def names_here() -> str:
    """Every address of this machine, as a certificate lists them."""
    found = {HERE}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, interface in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                answer = fcntl.ioctl(any_socket, SIOCGIFADDR, struct.pack("256s", interface.encode()))
                found.add(f"IP:{socket.inet_ntoa(answer[20:24])}")
    with contextlib.suppress(OSError):  # no IPv6 here
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            found.add(f"IP:{socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0]))}")
    return ",".join(sorted(found))


def environment(tls: Tls, provider: str = "iwarp") -> dict[str, str]:
    """The variables that make every device of the provider use these files."""
    prefix = f"VERBENA_{provider.upper()}_TLS"
    return {
        f"{prefix}_CERTIFICATE": str(tls.certificate),
        f"{prefix}_KEY": str(tls.key),
        f"{prefix}_AUTHORITY": str(tls.authority),
    }
