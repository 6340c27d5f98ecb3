"""Binds the TCP sockets of a listener: one on each address of the host, all on one port."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

from verbena._forks import close_in_child
from verbena.transport.address import HostPort

_BACKLOG = 1024
_TRIES = 16  # to choose a port that is free on every address
_NO_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


async def bind(host: str, port: int) -> list[socket.socket]:
    """Returns listening sockets on every address of `host`; "": on all interfaces. Port 0: a port that is
    free on all of them. OSError if it cannot listen on one of them."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    addresses = [(family, kind, protocol, address) for family, kind, protocol, _, address in found]
    for left in reversed(range(_TRIES)):
        try:
            return _bind_all(list(dict.fromkeys(addresses)), port, is_wildcard=not host)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or not left:
                raise
    raise AssertionError("unreachable")


def data_addresses(sockets: list[socket.socket], port: int) -> list[str]:
    """The addresses at which wires listen beside these sockets, on `port`. One socket of a wire covers both
    wildcard addresses."""
    hosts = [str(one.getsockname()[0]) for one in sockets]
    if {"0.0.0.0", "::"} <= set(hosts):
        return [f":{port}"]
    return [str(HostPort(host, port)) for host in hosts]


def _bind_all(addresses: list[Any], port: int, *, is_wildcard: bool) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for family, kind, protocol, address in addresses:
            at = (address[0], opened[0].getsockname()[1] if opened else port, *address[2:])
            try:
                opened.append(_listen(family, kind, protocol, at))
            except OSError as error:
                # A host without IPv6 has the address "::" all the same.
                if not is_wildcard or error.errno not in _NO_FAMILY:
                    raise
        if not opened:
            raise OSError(errno.EADDRNOTAVAIL, "no address to listen on")
    except OSError:
        close_all(opened)
        raise
    return opened


def close_all(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


def _listen(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
        opened.setblocking(False)
        close_in_child(opened)
    except OSError:
        opened.close()
        raise
    return opened
