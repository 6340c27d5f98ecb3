"""The network of RDMA ports: MTU, lost or damaged packets, congestion control, firewall."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from verbena.cli.checks.devices import ACTIVE, interface_of
from verbena.cli.checks.diagnosis import Diagnosis, Roots, names_in, ok, text_of, warn
from verbena.verbs import DeviceAttributes

ROCE_HEADERS = 58  # bytes of headers in an Ethernet frame's payload: IP, UDP, BTH and RETH, CRC
MAX_MTU = 4096
SOFTWARE = ("rxe", "siw")

# Counters that stay 0 on a healthy network, with their meaning; names as in rxe, mlx5 and others.
LOSS = {
    "local_ack_timeout_err": "acknowledgement timeouts",
    "packet_seq_err": "packets that the peer did not receive",
    "out_of_sequence": "packets that this device did not receive",
    "out_of_seq_request": "packets that this device did not receive",
    "retry_exceeded_err": "requests that failed after all retries",
    "rx_icrc_encapsulated": "corrupted packets",
    "port_rcv_errors": "packets corrupted on the link",
    "port_xmit_discards": "packets dropped for lack of buffers",
    "symbol_error": "bit errors on the link",
    "link_downed": "link failures",
}
NOT_READY = {
    "rnr_nak_retry_err": "messages that arrived without a posted receive",
    "retry_rnr_exceeded_err": "messages that failed because no receive was posted",
}


def check_network(device: DeviceAttributes, roots: Roots) -> Iterator[Diagnosis]:
    """Yields diagnoses for each active port of an RDMA device."""
    name = f"{device.provider}:{device.name}"
    folder = roots.sys / "class/infiniband" / device.name
    for number, port in enumerate(device.ports, start=1):
        if port.state not in ACTIVE:
            continue
        interface = interface_of(device.name, number, roots)
        yield _counters(f"{name} counters {number}", folder / f"ports/{number}")
        if port.link_layer == "Ethernet" and interface:
            yield _mtu(f"{name} MTU {number}", port.active_mtu, interface, roots)
            if not device.name.startswith(SOFTWARE) and device.transport == "RoCE":
                yield _congestion(f"{name} PFC, ECN {number}", interface, roots)


def check_firewall(
    config_port: int, *, which: Callable[[str], str | None] = shutil.which, roots: Roots | None = None
) -> Diagnosis:
    """Reports whether the kernel may filter packets and which ports must be open. Does not read the rules,
    which needs root."""
    roots = roots or Roots()
    check = "firewall"
    wanted = f"TCP {config_port} (sessions), UDP 4791 (RoCE v2) and the ports of the wires"
    filters = [module for module in ("nf_tables", "ip_tables") if (roots.sys / "module" / module).is_dir()]
    manager = next((tool for tool in ("firewall-cmd", "ufw", "nft", "iptables") if which(tool)), "")
    if not filters:
        return ok(check, f"no packet filter here; firewalls on the path must allow {wanted}")
    shows = {
        "firewall-cmd": "sudo firewall-cmd --list-all",
        "ufw": "sudo ufw status verbose",
        "nft": "sudo nft list ruleset",
        "iptables": "sudo iptables -nvL",
    }
    how = f"; rules: {shows[manager]}" if manager else ""
    return ok(check, f"{' and '.join(filters)} may filter packets; required: {wanted}{how}")


def _counters(check: str, folder: Path) -> Diagnosis:
    found: dict[str, int] = {}
    for group in ("counters", "hw_counters"):
        for name in names_in(folder / group):
            value = text_of(folder / group / name)
            if value.isdigit() and int(value) and name in {**LOSS, **NOT_READY}:
                found[name] = int(value)
    if not found:
        return ok(check, "no lost, corrupted or rejected packets since the device started")
    finding = ", ".join(f"{name} {value}" for name, value in found.items())
    meanings = "; ".join(f"{name}: {({**LOSS, **NOT_READY})[name]}" for name in found)
    if not set(found) & set(LOSS):
        remedy = "rdma statistic     (run it twice to see whether the counters grow)\npost more receives"
        return warn(check, finding, reason=meanings, remedy=remedy)
    remedy = (
        "rdma statistic     (run it twice to see whether the counters grow)\n"
        "growth under load: enable PFC or ECN for this traffic on the switch; growth on an idle network:"
        " check cable and MTU"
    )
    return warn(check, finding, reason=meanings, remedy=remedy)


def _mtu(check: str, active: int, interface: str, roots: Roots) -> Diagnosis:
    """Compares the MTU of RDMA and interface: RoCE uses the largest of 256 … 4096 that fits."""
    mtu = text_of(roots.sys / "class/net" / interface / "mtu")
    finding = f"RDMA {active}, {interface} {mtu or 'unknown'}"
    if not mtu.isdigit() or active >= MAX_MTU or int(mtu) >= MAX_MTU + ROCE_HEADERS:
        return ok(check, finding)
    return ok(check, f"{finding} (an MTU of 9000 on the whole path lets RDMA use 4096)")


def _congestion(check: str, interface: str, roots: Roots) -> Diagnosis:
    ecn = roots.sys / "class/net" / interface / "ecn"
    values = [
        text_of(path) for side in ("roce_np", "roce_rp") for path in sorted((ecn / side / "enable").glob("*"))
    ]
    look = f"dcb pfc show dev {interface}     (or mlnx_qos -i {interface})"
    if not values:
        return ok(check, f"not reported by the driver; see: {look.partition('     ')[0]}")
    if "1" in values:
        return ok(check, "ECN is on for at least one priority")
    why = "without ECN or PFC a busy switch drops RoCE packets, and throughput collapses"
    enable = f'for f in {ecn}/roce_*/enable/3; do echo 1 | sudo tee "$f"; done     (priority 3)'
    return warn(check, "ECN is off for every priority", reason=why, remedy=f"{enable}\n{look}")
