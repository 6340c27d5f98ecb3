"""Which of several RDMA devices serves an address."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from verbena import verbs
from verbena.kv.frontends.rdma_device import address_of, choose, device_at, own_address

DOWN, ACTIVE = verbs.PortState.DOWN, verbs.PortState.ACTIVE


def device(name: str, *gids: str, state: verbs.PortState = ACTIVE) -> verbs.DeviceAttributes:
    """The attributes of a device with such a port."""
    with verbs.open_device("fake") as context:
        attributes = context.attributes
    port = verbs.PortAttributes(state, 1024, 0, "Ethernet", tuple(map(verbs.Gid.parse, gids)), ())
    return replace(attributes, name=name, ports=(port,))


DEVICES = [
    device("down", "::ffff:192.0.2.2", state=DOWN),
    device("first", "fe80::1", "::ffff:192.0.2.1"),
    device("second", "fe80::2", "::ffff:192.0.2.2", "2001:db8::2"),
    device("third"),
]


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ("192.0.2.1", "first"),
        ("192.0.2.2", "second"),
        ("2001:db8::2", "second"),
        ("192.0.2.3", "third"),
        ("192.0.2.4", "first"),
        ("", "first"),
    ],
)
def test_a_device_is_chosen_by_its_address(own: str, name: str) -> None:
    """By a GID, by its interface, or the first active one."""
    chosen = choose(
        DEVICES,
        ipaddress.ip_address(own) if own else None,
        interface_of=lambda device: "eth3" if device == "third" else "",
        address_of=lambda interface: {"eth3": "192.0.2.3"}[interface],
    )
    assert chosen == name


def test_there_may_be_none() -> None:
    assert choose(DEVICES[:1], None) == ""


def test_the_way_to_a_peer_begins_at_an_address_of_ours() -> None:
    """A server's address is its own; a wildcard address selects none. For a peer, the route decides."""
    assert str(own_address("127.0.0.1:6379", dials=True)) == "127.0.0.1"
    assert str(own_address("192.0.2.7:6379", dials=False)) == "192.0.2.7"
    assert str(own_address("[2001:db8::2]:6379", dials=False)) == "2001:db8::2"
    assert own_address("0.0.0.0:6379", dials=False) is None
    assert own_address("no such host:6379", dials=False) is None
    assert address_of("lo") == "127.0.0.1"


def test_the_name_is_one_that_can_be_opened() -> None:
    """If there is no device, opening "ibv" reports it."""
    assert device_at("127.0.0.1:6379").partition(":")[0] == "ibv"
