"""Checks the configuration against this machine: whether it is valid, and whether the devices that it names
exist."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

from verbena.cli import text
from verbena.cli.checks.devices import ACTIVE
from verbena.cli.checks.diagnosis import Diagnosis, Roots, Verdict, error, explained, failed, ok, warn
from verbena.cli.checks.limits import memlock_limit
from verbena.config import Config
from verbena.errors import VerbenaError
from verbena.transport.address import HostPort
from verbena.verbs import DeviceAttributes, ProviderInfo


def check_settings(
    config: Config | VerbenaError, providers: list[ProviderInfo], roots: Roots
) -> Iterator[Diagnosis]:
    """Yields diagnoses of the configuration; also of devices and locked memory if it enables RDMA."""
    check = "configuration"
    if isinstance(config, VerbenaError):
        yield failed(check, config)
        return
    where = config.file or "no verbena.toml: all keys have their defaults"
    yield ok(check, str(where))
    yield _check_session_port(config)
    if not config.network.rdma_enabled:
        yield ok("network.rdma_enabled", "false: sessions use shm and the fallback")
        return
    fallback, network, rdma = config.network.rdma_fallback, config.network, config.shards.rdma
    gid = network.rdma_gid_index, config.was_set("network.rdma_gid_index")
    wanted = _DeviceKeys("network.rdma_", network.rdma_device, network.rdma_port, *gid)
    yield from _device(wanted, fallback, providers)
    if config.cluster.enabled and config.cluster.transport == "rdma" and config.cluster.rdma.migration_rdma:
        gid = rdma.gid_index, config.was_set("shards.rdma.gid_index")
        wanted = _DeviceKeys("shards.rdma.", rdma.device, rdma.port, *gid)
        yield from _device(wanted, fallback, providers)
    yield _check_locked_memory(config, roots)


def _check_session_port(config: Config) -> Diagnosis:
    """Checks whether the port for sessions is free."""
    check = "session port"
    where = HostPort(config.session.listen_address, config.session.listen_port)
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((where.host, where.port))
    except OSError as problem:
        why = "another node or program already listens on the port"
        return warn(
            check, f"{where}: {problem.strerror}", reason=why, remedy=f"sudo ss -ltnp sport = :{where.port}"
        )
    return ok(check, f"{where} is free")


@dataclass(frozen=True)
class _DeviceKeys:
    """The values of keys with a common prefix."""

    prefix: str
    device: str
    port: int
    gid_index: int
    gid_was_set: bool

    def variable(self, name: str) -> str:
        return "VERBENA_" + (self.prefix + name).replace(".", "_").upper()


def _device(wanted: _DeviceKeys, fallback: str, providers: list[ProviderInfo]) -> Iterator[Diagnosis]:
    check = wanted.prefix + "device"
    devices = [
        device.attributes
        for provider in providers
        if provider.name == "ibv"
        for device in provider.devices
        if not device.attributes.reason
    ]
    chosen = next((device for device in devices if wanted.device in ("auto", device.name)), None)
    names = ", ".join(device.name for device in devices) or "none"
    if chosen is None and wanted.device == "auto" and not devices and fallback != "none":
        yield ok(check, f"auto: there is no device, so sessions use the fallback {fallback}")
        return
    if chosen is None:
        verdict = Verdict.ERROR if fallback == "none" else Verdict.WARN
        finding = f"{wanted.device} not found (devices: {names}); fallback: {fallback}"
        command = (
            f"{wanted.variable('device')}={devices[0].name}" if devices else "sudo modprobe ib_core mlx5_ib"
        )
        yield explained(check, verdict, finding, code="no_device", command=command)
        return
    yield ok(check, chosen.name)
    yield from _port(chosen, wanted)


def _port(device: DeviceAttributes, wanted: _DeviceKeys) -> Iterator[Diagnosis]:
    check, number, index = wanted.prefix + "port", wanted.port, wanted.gid_index
    if not 1 <= number <= len(device.ports):
        finding = f"{number}, but the last port of {device.name} is {len(device.ports)}"
        yield error(
            check,
            finding,
            reason="there is no such port",
            remedy=f"{wanted.variable('port')}=1 verbena doctor",
        )
        return
    port = device.ports[number - 1]
    if port.state not in ACTIVE:
        yield explained(
            check, Verdict.ERROR, f"{number} is {port.state.name}", code="port_down", command="rdma link"
        )
    else:
        yield ok(check, f"{number} is ACTIVE")
    if index >= 0 and port.link_layer == "Ethernet":
        check = wanted.prefix + "gid_index"
        other = f"{wanted.variable('gid_index')}=-1 verbena doctor     (selects the best entry)"
        there = index < len(port.gids) and bool(port.gids[index])
        kind = port.gid_types[index] if index < len(port.gid_types) else ""
        if not there:
            # Not an error for the default index: the best entry is used instead.
            verdict, so = (
                (Verdict.ERROR, "")
                if wanted.gid_was_set
                else (Verdict.WARN, ": the best entry is used instead")
            )
            yield explained(check, verdict, f"{index} is empty{so}", code="no_gid", command=other)
        elif kind and kind != "RoCE v2":
            why = f"{kind} packets cannot be routed, and RoCE v2 peers reject them"
            yield warn(
                check,
                f"{index}: {port.gids[index]} {kind}",
                reason=why,
                remedy=other,
            )
        else:
            yield ok(check, f"{index}: {port.gids[index]} {kind}".rstrip())


def _check_locked_memory(config: Config, roots: Roots) -> Diagnosis:
    """Checks whether the memory that the configuration registers at start may be locked."""
    check = "memory to lock"
    rdma = config.network.rdma
    needed = rdma.recv_buffer_pool_size * rdma.recv_buffer_size
    finding = f"{text.size(needed)} for buffers (recv_buffer_pool_size × recv_buffer_size), before any data"
    limit = memlock_limit(roots)
    if limit is None or needed <= limit:
        return ok(check, finding)
    return explained(
        check,
        Verdict.ERROR,
        f"{finding}; the limit is {text.size(limit)}",
        code="memlock",
        command="ulimit -l unlimited     (this shell)",
        reason="RDMA devices lock registered memory: the node would not start",
    )
