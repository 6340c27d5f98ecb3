"""Machines made of network namespaces on one switch. Tests can disconnect them from each other: packets are
lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_NOWHERE = "02:00:00:00:00:00"  # no interface has this address: packets to it are lost


class NoNamespaces(Exception):
    """Network namespaces cannot be created here, with the reason."""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """Machines number 0, 1, …: each has its own namespace (`spaces`) and address."""

    def __init__(self, prefix: str, spaces: list[str]) -> None:
        self.prefix = prefix
        self.spaces = spaces

    def address(self, number: int) -> str:
        return f"{self.prefix}.{number + 1}"

    def inside(self, number: int, *command: str) -> list[str]:
        """The command line that runs a command on that machine."""
        return ["ip", "netns", "exec", self.spaces[number], *command]

    def part(self, one: int, other: int) -> None:
        """Disconnects two machines from each other; their other connections stay."""
        for here, there in ((one, other), (other, one)):
            neighbour = (self.address(there), "lladdr", _NOWHERE, "dev", "eth0", "nud", "permanent")
            ip("-n", self.spaces[here], "neigh", "replace", *neighbour)

    def mend(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            ip("-n", self.spaces[here], "neigh", "del", self.address(there), "dev", "eth0")

    @contextmanager
    def silent(self, number: int) -> Iterator[None]:
        """Drops all packets that the programs of this machine send to each other over IP."""
        ip("-n", self.spaces[number], "link", "set", "lo", "down")
        try:
            yield
        finally:
            ip("-n", self.spaces[number], "link", "set", "lo", "up")

    @contextmanager
    def parted(self, *pairs: tuple[int, int]) -> Iterator[None]:
        for pair in pairs:
            self.part(*pair)
        try:
            yield
        finally:
            for pair in pairs:
                self.mend(*pair)


@contextmanager
def machines(count: int, *, prefix: str, reachable: bool = False) -> Iterator[Network]:
    """Creates the machines. `prefix`: of their addresses, such as 10.79.0. `reachable`: this process can
    reach them from prefix.254. Raises NoNamespaces if the system does not provide them."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        raise NoNamespaces("network namespaces need root and iproute2")
    name = f"vb{os.getpid() % 100000}"
    switch, spaces = f"{name}-switch", [f"{name}-{number}" for number in range(count)]
    try:
        try:
            for space in (switch, *spaces):
                ip("netns", "add", space)
        except subprocess.CalledProcessError as error:
            raise NoNamespaces(f"no network namespaces here: {error.stderr.decode().strip()}") from error
        ip("-n", switch, "link", "add", "switch", "type", "bridge")
        ip("-n", switch, "link", "set", "switch", "up")
        for number, space in enumerate(spaces):
            ip("-n", switch, "link", "add", f"p{number}", "type", "veth", "peer", "eth0", "netns", space)
            ip("-n", switch, "link", "set", f"p{number}", "up", "master", "switch")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "address", "add", f"{prefix}.{number + 1}/24", "dev", "eth0")
        if reachable:
            ip("link", "add", name, "type", "veth", "peer", "host", "netns", switch)
            ip("-n", switch, "link", "set", "host", "up", "master", "switch")
            ip("link", "set", name, "up")
            ip("address", "add", f"{prefix}.254/24", "dev", name)
        yield Network(prefix, spaces)
    finally:
        for space in (switch, *spaces):
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)
