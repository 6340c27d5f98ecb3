"""Certificates of a throw-away authority, for both ends of the iwarp wire."""

from __future__ import annotations

import shutil
from typing import Any

from support.certificates import Authority
from verbena.transport.handshake.authority import local_addresses
from verbena.verbs import Tls

HERE = "DNS:localhost,IP:127.0.0.1,IP:::1"
MISSING = "" if shutil.which("openssl") else "the openssl command is not installed"


def issue(authority: Authority, name: str = "end", *, names: str = HERE, **options: Any) -> Tls:
    """Issues a certificate; its holder trusts the same authority."""
    pair = authority.issue(name, names=names, **options)
    return Tls(certificate=pair.certificate, key=pair.key, authority=authority.ca)


def names_here() -> str:
    """Every address of this machine, in the form that certificates use."""
    return ",".join([HERE, *(f"IP:{address}" for address in local_addresses())])


def environment(tls: Tls, provider: str = "iwarp") -> dict[str, str]:
    """The environment variables that make every device of the provider use these files."""
    prefix = f"VERBENA_{provider.upper()}_TLS"
    return {
        f"{prefix}_CERTIFICATE": str(tls.certificate),
        f"{prefix}_KEY": str(tls.key),
        f"{prefix}_AUTHORITY": str(tls.authority),
    }
