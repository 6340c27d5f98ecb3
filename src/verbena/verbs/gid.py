"""The global identifier (GID) of a port."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True)
class Gid:
    """16 bytes in the format of an IPv6 address: str() returns the text, bytes() the bytes. All zero is
    false."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 16:
            raise ValueError(f"a GID is 16 bytes, not {len(self.raw)}")

    @classmethod
    def parse(cls, text: str) -> Gid:
        """Parses an IPv6 address. ValueError if it is not valid."""
        return cls(ipaddress.IPv6Address(text).packed)

    def __bytes__(self) -> bytes:
        return self.raw

    def __bool__(self) -> bool:
        return any(self.raw)

    def __str__(self) -> str:
        return str(ipaddress.IPv6Address(self.raw))

    def __repr__(self) -> str:
        return f"Gid('{self}')"
