"""Selects the NUMA node for the buffers of a wire: the node of its device, if there are several."""

from __future__ import annotations

from pathlib import Path

from verbena import verbs

ONLINE = Path("/sys/devices/system/node/online")


def online_nodes(path: Path = ONLINE) -> tuple[int, ...]:
    """Returns the NUMA nodes of the machine; empty if the kernel does not report them."""
    try:
        text = path.read_text().strip()
    except OSError:
        return ()
    nodes: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        nodes += range(int(first), int(last or first) + 1)
    return tuple(nodes)


def choose_node(numa: str, device_node: int, online: tuple[int, ...]) -> tuple[int, str]:
    """Returns the NUMA node to allocate from, or -1 and the reason."""
    if numa == "off":
        return -1, "switched off"
    if numa != "auto":
        return int(numa), ""
    if len(online) < 2:
        return -1, "this machine has one NUMA node"
    if device_node < 0:
        return -1, "the device is not tied to a NUMA node"
    return device_node, ""


def place(context: verbs.Context, numa: str) -> tuple[int, str]:
    """Sets the NUMA node of the context. Returns the node, or -1 and the reason."""
    node, reason = choose_node(numa, context.attributes.numa_node, online_nodes())
    if node >= 0:
        reason = context.set_memory_node(node)
    return (-1, reason) if reason else (node, "")
