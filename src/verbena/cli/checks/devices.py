"""RDMA devices: whether there are any, whether this user may open them, and the state of their ports."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Collection
from pathlib import Path

from verbena.cli.checks.container import in_container, on_host
from verbena.cli.checks.diagnosis import (
    Diagnosis,
    Roots,
    Verdict,
    error,
    explained,
    names_in,
    ok,
    text_of,
    warn,
)
from verbena.cli.checks.kernel import SOFTWARE, Module, kernel_remedy, module_state, software_device
from verbena.errors import EXPLANATIONS
from verbena.transport.memory.placement import choose_node, online_nodes
from verbena.verbs import DeviceAttributes, PortAttributes, PortState, ProviderInfo

ACTIVE = (PortState.ACTIVE, PortState.ACTIVE_DEFER)
SMALL_MTU = 1024
LINK_LOCAL = b"\xfe\x80"
IN_CONTAINER = "in a container: docker run --device /dev/infiniband …"

Access = Callable[[Path, int], bool]


def has_device(roots: Roots) -> bool:
    """Whether the kernel has an RDMA device, or /dev a node of one."""
    nodes = (*names_in(roots.sys / "class/infiniband_verbs"), *names_in(roots.dev / "infiniband"))
    uverbs = [name for name in nodes if name.startswith("uverbs")]
    return bool(uverbs or names_in(roots.sys / "class/infiniband"))


def check_absence(roots: Roots, *, which: Callable[[str], str | None] = shutil.which) -> Diagnosis:
    """The one diagnosis of a machine without an RDMA device: how to get one, in a container or outside."""
    finding = "none: sessions use shared memory, TCP and QUIC"
    if in_container(roots):
        remedy = "start the container with --device /dev/infiniband, on a host with an RDMA device"
        return warn("RDMA device", finding, remedy=remedy)
    interface, words = software_device(roots, which=which)
    if interface:
        return warn("RDMA device", finding, remedy=f"{words}     (a software device, for tests)")
    if any(module_state(name, roots) is not Module.ABSENT for name in SOFTWARE):
        remedy = f"install an RDMA adapter; for tests a software device: {words}"
    else:
        remedy = kernel_remedy(roots)
        finding += "; this kernel cannot create a software device either"
    return warn("RDMA device", finding, remedy=remedy)


def check_devices(provider: ProviderInfo, roots: Roots) -> Diagnosis:
    """Lists the kernel's RDMA devices. ERROR if they cannot be used."""
    check = "RDMA devices"
    names = names_in(roots.sys / "class/infiniband")
    remedy = EXPLANATIONS["no_device"].remedy
    listed = ", ".join(names) or "only nodes in /dev/infiniband"
    if not provider.available:
        return error(check, f"{listed}: not usable", reason=provider.reason, remedy=remedy)
    return ok(check, listed)


def check_nodes(roots: Roots, *, access: Access = os.access) -> list[Diagnosis]:
    """Returns one diagnosis for each node in /dev/infiniband that Verbena opens; this user needs read and
    write access."""
    folder = roots.dev / "infiniband"
    wanted = [name for name in names_in(roots.sys / "class/infiniband_verbs") if name.startswith("uverbs")]
    there = [name for name in names_in(folder) if name.startswith("uverbs")]
    return [_node(folder / name, access, roots) for name in sorted({*wanted, *there})] + [
        _node(folder / "rdma_cm", access, roots)
    ]


def check_device(
    device: DeviceAttributes, roots: Roots, *, cores: Collection[int] | None = None
) -> list[Diagnosis]:
    """Checks the device's ports, GIDs and NUMA node. `cores` are those that this process may use (default:
    its affinity)."""
    name = f"{device.provider}:{device.name}"
    if device.reason:
        return [
            error(name, "not usable", reason=device.reason, remedy=EXPLANATIONS["no_device"].remedy),
        ]
    any_active = any(port.state in ACTIVE for port in device.ports)
    found = []
    for number, port in enumerate(device.ports, start=1):
        interface = interface_of(device.name, number, roots)
        found.append(_port(f"{name} port {number}", port, interface, any_active))
        if port.state in ACTIVE and device.transport != "iWARP":  # iWARP is addressed over TCP only
            found.append(_gids(f"{name} GIDs {number}", port, interface))
    found.append(_numa(f"{name} NUMA node", device.numa_node, roots, cores))
    if windows := device.capabilities.get("memory_windows"):
        found.append(_windows(f"{name} memory windows", windows))
    return found


def _node(path: Path, access: Access, roots: Roots) -> Diagnosis:
    check = f"/dev/infiniband/{path.name}"
    if not path.exists():
        if path.name == "rdma_cm":
            why = "connections by address need it; connections by exchanged endpoints do not"
            load = on_host("sudo modprobe rdma_ucm", roots)
            return warn(check, "missing", reason=why, remedy=f"{load}\n{IN_CONTAINER}")
        why = "the kernel has the device, but /dev has no node for it"
        return error(
            check, "missing", reason=why, remedy=f"{IN_CONTAINER}\non the host: sudo udevadm trigger"
        )
    if access(path, os.R_OK | os.W_OK):
        return ok(check, "readable and writable by this user")
    facts = path.stat()
    mode, group = stat.filemode(facts.st_mode), _group(facts.st_gid)
    for_group = facts.st_mode & 0o060 == 0o060 and facts.st_gid != 0
    remedy = (
        f"sudo usermod -aG {group} $USER     (then log in again)" if for_group else f"sudo chmod 666 {check}"
    )
    why = f"mode {mode}, owner {facts.st_uid}, group {group}; this process has uid {os.geteuid()}"
    return error(check, "not readable and writable by this user", reason=why, remedy=remedy)


def _port(check: str, port: PortAttributes, interface: str, any_active: bool) -> Diagnosis:
    layer = port.link_layer or "no link layer"
    finding = f"{port.state.name}, {layer}, MTU {port.active_mtu}" + (f", on {interface}" * bool(interface))
    if port.state not in ACTIVE:
        if port.link_layer == "InfiniBand" and port.state is PortState.INIT:
            command = "sudo systemctl start opensm     (on one machine of the subnet)"
        else:
            command = f"sudo ip link set {interface} up" if interface else "rdma link"
        # A spare port without a cable is common, so it is no error if another port is active.
        verdict = Verdict.WARN if any_active else Verdict.ERROR
        return explained(check, verdict, finding, code="port_down", command=command)
    if 0 < port.active_mtu < SMALL_MTU:
        why = "messages are split into small packets, so large transfers are slow"
        remedy = f"sudo ip link set {interface or 'INTERFACE'} mtu 1500     (9000 if the network supports it)"
        return warn(check, finding, reason=why, remedy=remedy)
    return ok(check, finding)


def _gids(check: str, port: PortAttributes, interface: str) -> Diagnosis:
    rows = [
        (index, gid, port.gid_types[index] if index < len(port.gid_types) else "")
        for index, gid in enumerate(port.gids)
        if gid
    ]
    finding = "; ".join(f"{index}: {gid} {kind}".rstrip() for index, gid, kind in rows)
    add_address = f"sudo ip address add ADDRESS/PREFIX dev {interface or 'INTERFACE'}"
    if not rows:
        return explained(check, Verdict.ERROR, "none", code="no_gid", command=add_address)
    if port.link_layer != "Ethernet":
        return ok(check, finding)
    if all(bytes(gid).startswith(LINK_LOCAL) for _, gid, _ in rows):
        why = "all GIDs are link-local: without an IP address only hosts on the same link are reachable"
        return warn(check, finding, reason=why, remedy=add_address)
    if not any(kind == "RoCE v2" for _, _, kind in rows):
        why = "no GID is RoCE v2: packets cannot be routed, and most peers expect v2"
        remedy = f"{add_address}     (a device that supports v2 then lists it)"
        return warn(check, finding, reason=why, remedy=remedy)
    return ok(check, finding)


def _numa(check: str, node: int, roots: Roots, cores: Collection[int] | None) -> Diagnosis:
    chosen, reason = choose_node("auto", node, online_nodes(roots.sys / "devices/system/node/online"))
    buffers = f"buffers on node {chosen}" if chosen >= 0 else f"buffers on any node ({reason})"
    if node < 0:
        return ok(check, f"none; {buffers}")
    near = _cores(text_of(roots.sys / f"devices/system/node/node{node}/cpulist"))
    mine = set(os.sched_getaffinity(0) if cores is None else cores)
    if near and not near & mine:
        why = "this process is bound to cores of other nodes, so every transfer crosses nodes"
        return warn(check, f"{node}; {buffers}", reason=why, remedy=f"numactl --cpunodebind={node} COMMAND")
    return ok(check, f"{node}; {buffers}")


def _windows(check: str, windows: str) -> Diagnosis:
    if not windows.startswith("none"):
        return ok(check, windows)
    why = (
        "memory that a node lends to one session is within reach of every session on this device that learns"
        " the key"
    )
    remedy = "use a device with memory windows of type 2 if sessions of this node distrust each other"
    return warn(check, "none", reason=why, remedy=remedy)


def interface_of(device: str, port: int, roots: Roots) -> str:
    """Returns the network interface of a port; "" if there is none or it is unknown."""
    folder = roots.sys / "class/infiniband" / device
    beneath = names_in(folder / "device/net")
    return (
        text_of(folder / f"ports/{port}/gid_attrs/ndevs/0")
        or text_of(folder / "parent")
        or (beneath[0] if len(beneath) == 1 else "")
    )


def _cores(cpulist: str) -> set[int]:
    """Parses a CPU list: {0, 1, 2, 8} from "0-2,8"."""
    found: set[int] = set()
    for part in filter(None, cpulist.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
