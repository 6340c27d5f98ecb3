"""Binding a listener: one port on every address, and what wires add to it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from verbena.transport.listening import binding
from verbena.transport.listening.binding import bind, close_all, data_addresses

Sockets = list[socket.socket]
LOOPBACK = [
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0)),
]


@pytest.fixture
def opened() -> Iterator[Sockets]:
    sockets: Sockets = []
    yield sockets
    close_all(sockets)


def resolve_to(monkeypatch: pytest.MonkeyPatch, found: list[tuple[object, ...]]) -> None:
    """Makes every name have these addresses."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: found)


def ports(sockets: Sockets) -> set[int]:
    return {one.getsockname()[1] for one in sockets}


async def test_port_zero_is_one_port_on_every_address(
    opened: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, [*LOOPBACK, LOOPBACK[0]])
    opened += await bind("twice", 0)
    assert [one.getsockname()[0] for one in opened] == ["127.0.0.1", "127.0.0.2"], "each once"
    assert len(ports(opened)) == 1
    assert 0 not in ports(opened)


async def test_the_wildcard_covers_both_families(opened: Sockets) -> None:
    """On a host without IPv6, the other one."""
    opened += await bind("", 0)
    assert {one.getsockname()[0] for one in opened} <= {"0.0.0.0", "::"}
    assert len(ports(opened)) == 1
    for one in opened:
        with socket.socket(one.family, one.type) as client:
            client.connect(("127.0.0.1" if one.family == socket.AF_INET else "::1", *ports(opened)))


async def test_another_port_is_tried_if_one_is_taken_on_another_address(
    opened: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Port 0 chooses a port that is free on the first address only: then it chooses again."""
    resolve_to(monkeypatch, list(LOOPBACK))
    listen, tries = binding._listen, 0

    def taken_twice(family: int, kind: int, protocol: int, address: tuple[str, int]) -> socket.socket:
        nonlocal tries
        tries += address[0] == "127.0.0.2"
        if address[0] == "127.0.0.2" and tries <= 2:
            raise OSError(errno.EADDRINUSE, "taken")
        return listen(family, kind, protocol, address)

    monkeypatch.setattr(binding, "_listen", taken_twice)
    opened += await bind("twice", 0)
    assert (tries, len(opened), len(ports(opened))) == (3, 2, 1)


async def test_a_port_that_is_taken_is_an_error(opened: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    """On any of the addresses; nothing stays open."""
    resolve_to(monkeypatch, list(LOOPBACK))
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
        found = [(*one[:4], (one[4][0], port)) for one in LOOPBACK]
        resolve_to(monkeypatch, found)
        with pytest.raises(OSError, match="in use") as caught:
            await bind("twice", port)
        assert caught.value.errno == errno.EADDRINUSE
    opened += await bind("twice", port)
    assert ports(opened) == {port}


async def test_an_address_of_another_host_is_an_error() -> None:
    with pytest.raises(OSError, match="assign"):
        await bind("192.0.2.1", 0)


async def test_wires_listen_on_the_same_addresses(opened: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    """One socket of a wire covers both wildcards; IPv6 addresses are in brackets."""
    resolve_to(monkeypatch, list(LOOPBACK))
    opened += await bind("twice", 0)
    assert data_addresses(opened, 9) == ["127.0.0.1:9", "127.0.0.2:9"]
    monkeypatch.undo()
    (v6, wildcard) = (await bind("::1", 0)), (await bind("", 0))
    opened += v6 + wildcard
    assert data_addresses(v6, 9) == ["[::1]:9"]
    if len(wildcard) == 2:
        assert data_addresses(wildcard, 9) == [":9"]
