"""`verbena devices`: lists usable devices and why the others are not usable."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
from typing import TYPE_CHECKING, Any

from verbena.cli.help.parser import Parser

if TYPE_CHECKING:
    from verbena.verbs import Device, DeviceAttributes, PortAttributes, ProviderInfo

EPILOG = """\
examples:
  verbena devices            one line per device, and the reason for each absent wire
  verbena devices -v         with limits, capabilities, ports and GIDs
  verbena devices --json     as JSON

exit status: 0 if at least one device is usable, else 1
"""

_LIMITS = (
    ("max_qp", "queue pairs"),
    ("max_qp_wr", "requests per queue"),
    ("max_sge", "scatter/gather entries"),
    ("max_inline", "inline bytes"),
    ("max_cq", "completion queues"),
    ("max_cqe", "completions per queue"),
    ("max_mr", "memory regions"),
    ("max_mr_bytes", "bytes per region"),
    ("max_message_bytes", "bytes per message"),
    ("max_rd_atomic", "reads and atomics in flight"),
)


def add_parser(commands: argparse._SubParsersAction[Parser]) -> Parser:
    parser = commands.add_parser(
        "devices",
        description="Lists the devices of every wire with ports and GIDs, or why a wire is not usable.",
        epilog=EPILOG,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("-v", "--verbose", action="store_true", help="also print limits and capabilities")
    return parser


def run(options: argparse.Namespace) -> int:
    from verbena import verbs  # native code, which help does not need

    providers = verbs.providers()
    if options.json:
        print(json.dumps({"providers": [_provider_json(provider) for provider in providers]}, indent=2))
    else:
        for provider in providers:
            print("\n".join(_provider_lines(provider, verbose=options.verbose)))
    return 0 if any(provider.available and provider.devices for provider in providers) else 1


def _provider_lines(provider: ProviderInfo, *, verbose: bool) -> list[str]:
    if not provider.available:
        return [f"{provider.name:<8} not available", *_indented(provider.reason)]
    lines = []
    for device in provider.devices:
        lines += _device_lines(device, verbose=verbose)
    return lines or [f"{provider.name:<8} available, but has no device"]


def _device_lines(device: Device, *, verbose: bool) -> list[str]:
    attributes = device.attributes
    kind = "software" if attributes.software else "hardware"
    lines = [f"{attributes.provider:<8} {device.name:<12} {kind}, {attributes.transport}"]
    for number, port in enumerate(attributes.ports, start=1):
        lines += _port_lines(number, port, verbose=verbose)
    if attributes.reason:
        lines += _indented(f"not usable: {attributes.reason}")
    if verbose:
        lines += _indented(_details(attributes))
    return lines


def _port_lines(number: int, port: PortAttributes, *, verbose: bool) -> list[str]:
    state = port.state.name if isinstance(port.state, enum.Enum) else str(port.state)
    lines = [
        f"         port {number}       {state}, {port.link_layer or 'no link layer'}, MTU {port.active_mtu}"
    ]
    shown = port.gids if verbose else port.gids[:1]
    for index, gid in enumerate(shown):
        kind = port.gid_types[index] if index < len(port.gid_types) else ""
        lines.append(f"         GID {index:<8} {gid} {kind}".rstrip())
    if len(port.gids) > len(shown):
        lines.append(f"                      and {len(port.gids) - len(shown)} more (-v)")
    return lines


def _details(attributes: DeviceAttributes) -> str:
    rows = [("vendor", attributes.vendor), ("firmware", attributes.firmware)]
    rows.append(("NUMA node", _numa(attributes.numa_node)))
    rows += [(words, f"{getattr(attributes, name):,}") for name, words in _LIMITS]
    rows += sorted(attributes.capabilities.items())
    return "\n".join(f"{name:<28} {value}" for name, value in rows if value)


def _numa(node: int) -> str:
    """The device's NUMA node, and where sessions allocate buffers by default."""
    from verbena.transport.memory.placement import choose_node, online_nodes

    chosen, reason = choose_node("auto", node, online_nodes())
    here = str(node) if node >= 0 else "none"
    return f"{here}; session buffers on {f'node {chosen}' if chosen >= 0 else f'any node ({reason})'}"


def _indented(paragraph: str) -> list[str]:
    return [f"         {line}" for line in paragraph.splitlines()]


def _provider_json(provider: ProviderInfo) -> dict[str, Any]:
    return {
        "name": provider.name,
        "available": provider.available,
        "reason": provider.reason,
        "devices": [_plain(device.attributes) for device in provider.devices],
    }


def _plain(value: Any) -> Any:
    """Converts attributes for JSON: enumerations by name, GIDs as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
