"""Chooses the RDMA device for an address: a machine may have several, each with its own addresses."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from verbena import verbs

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_GET_ADDRESS = 0x8915  # SIOCGIFADDR


def device_at(address: str, *, dials: bool = False) -> str:
    """Returns the name for open_device() of the device that has the address or, with `dials`, from which the
    address is reached. "ibv", the first device, if none can be determined."""
    own = own_address(address, dials=dials)
    found = [device for info in verbs.providers() if info.name == "ibv" for device in info.devices]
    chosen = choose([device.attributes for device in found], own)
    return f"ibv:{chosen}" if chosen else "ibv"


def own_address(address: str, *, dials: bool) -> Address | None:
    """Returns the local address of host:port or, with `dials`, from which it is reached; None: any."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, _, _, target = socket.getaddrinfo(
            host.strip("[]"), int(port or 0) or 1, type=socket.SOCK_DGRAM
        )[0]
        if dials:
            with socket.socket(family, kind) as probe:  # sends nothing: connect() selects the route
                probe.connect(target)
                target = probe.getsockname()
    except (OSError, ValueError):
        return None  # the error is reported where the address is used
    own = ipaddress.ip_address(str(target[0]).partition("%")[0])
    return None if own.is_unspecified else own


def interface_of(device: str) -> str:
    """Returns the network interface of a device; empty if unknown."""
    with contextlib.suppress(OSError):
        return Path(f"/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0").read_text().strip()
    return ""


def address_of(interface: str) -> str:
    """Returns the IPv4 address of an interface; empty if it has none."""
    request = struct.pack("256s", interface.encode()[:15])
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _GET_ADDRESS, request)[20:24])
    return ""


def choose(
    devices: Iterable[verbs.DeviceAttributes],
    own: Address | None,
    *,
    interface_of: Callable[[str], str] = interface_of,
    address_of: Callable[[str], str] = address_of,
) -> str:
    """Among devices with an active port: the one that has the address as a GID (RoCE), else on its interface
    (iWARP), else the first. Empty: there is none."""
    active = [
        device for device in devices if any(port.state is verbs.PortState.ACTIVE for port in device.ports)
    ]
    if own is not None:
        gid = own.packed if own.version == 6 else bytes(10) + b"\xff\xff" + own.packed
        for device in active:
            if any(bytes(known) == gid for port in device.ports for known in port.gids):
                return device.name
        for device in active:
            interface = interface_of(device.name)
            if interface and address_of(interface) == str(own):
                return device.name
    return active[0].name if active else ""
