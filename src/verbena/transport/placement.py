"""Which NUMA node a wire's buffers come from: the device's own, where there is a choice."""

from __future__ import annotations

from pathlib import Path

from verbena import verbs

ONLINE = Path("/sys/devices/system/node/online")


def online_nodes(path: Path = ONLINE) -> tuple[int, ...]:
    """The machine's nodes; none if the kernel knows nothing of them."""
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
    """The node to take memory from, or -1 and why there is none."""
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
    """Tells the context; the node, or -1 and why memory comes from anywhere."""
    node, reason = choose_node(numa, context.attributes.numa_node, online_nodes())
    if node >= 0:
        reason = context.set_memory_node(node)
    return (-1, reason) if reason else (node, "")
