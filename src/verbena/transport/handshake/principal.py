"""The principal of a session: what the peer has proved to this end. Never taken from a field that the peer
wrote."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from verbena.transport.handshake.peer_uid import PeerProcess

Method = Literal["certificate", "secret", "uid", "none"]


@dataclass(frozen=True)
class Principal:
    """`method`: the strongest proof; "none": the peer is unproved. `name`: the name in its certificate, such
    as "DNS:web", or "". `uid` and `pid`: what the kernel reports for a peer on this host, whatever the method
    is; None: unknown. `has_secret`: it proved the shared secret."""

    method: Method = "none"
    name: str = ""
    uid: int | None = None
    pid: int | None = None
    has_secret: bool = False

    @property
    def is_proved(self) -> bool:
        return self.method != "none"

    @property
    def names(self) -> tuple[str, ...]:
        """All proved facts in the form of the configuration, strongest first: "certificate:DNS:web",
        "secret", "uid:1000". Empty for an unproved peer."""
        if not self.is_proved:
            return ()
        certificate = (f"certificate:{self.name}",) if self.name else ()
        uid = (f"uid:{self.uid}",) if self.uid is not None else ()
        return certificate + (("secret",) if self.has_secret else ()) + uid

    def __str__(self) -> str:
        if self.is_proved:
            return " ".join(self.names)
        return "unproved" if self.uid is None else f"unproved, uid {self.uid}"


def principal_of(
    *,
    certificate: str,
    has_secret: bool,
    process: PeerProcess | None,
    allowed_uids: Collection[int] = (),
) -> Principal:
    """Returns the principal of a peer. Its uid is a proof if it is this process's own, root's or one of
    `allowed_uids`."""
    uid = process.uid if process is not None else None
    by_uid = uid is not None and uid in {0, os.geteuid(), *allowed_uids}
    method: Method = "certificate" if certificate else "secret" if has_secret else "uid" if by_uid else "none"
    pid = process.pid if process is not None else None
    return Principal(method, certificate, uid, pid, has_secret)
