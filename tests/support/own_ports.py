"""The ports on which this process listens, as the kernel lists them."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

_STATES = {"tcp": "0A", "udp": "07"}  # LISTEN; unconnected

Port = tuple[str, str, int]  # protocol, address, number


def own_ports() -> Counter[Port]:
    """Listening TCP sockets and unconnected bound UDP sockets."""
    inodes = set(_own_inodes())
    found: Counter[Port] = Counter()
    for protocol, state in _STATES.items():
        for family in ("", "6"):
            for line in Path(f"/proc/self/net/{protocol}{family}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == state and fields[9] in inodes:
                    found[(protocol, *_end(fields[1]))] += 1
    return found


def _own_inodes() -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            if name.startswith("socket:["):
                yield name.removeprefix("socket:[").removesuffix("]")


def _end(field: str) -> tuple[str, int]:
    digits, _, port = field.partition(":")
    words = struct.unpack(f">{len(digits) // 8}I", bytes.fromhex(digits))
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))), int(port, 16)
