"""Attributes of devices, ports and queue pairs, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from verbena import _native
from verbena._native import PortState, QpState
from verbena.verbs.access import Access
from verbena.verbs.gid import Gid


@dataclass(frozen=True)
class PortAttributes:
    state: PortState
    active_mtu: int
    lid: int
    link_layer: str
    gids: tuple[Gid, ...]
    gid_types: tuple[str, ...]

    @classmethod
    def from_native(cls, native: _native.PortAttributes) -> PortAttributes:
        gids = tuple(Gid(gid) for gid in native.gids)
        return cls(
            native.state, native.active_mtu, native.lid, native.link_layer, gids, tuple(native.gid_types)
        )


@dataclass(frozen=True)
class DeviceAttributes:
    """Limits and properties of a device. `reason` is why it cannot be used, or empty."""

    name: str
    provider: str
    transport: str
    vendor: str
    firmware: str
    reason: str
    software: bool
    numa_node: int
    max_mr_bytes: int
    max_message_bytes: int
    max_qp: int
    max_qp_wr: int
    max_sge: int
    max_cq: int
    max_cqe: int
    max_mr: int
    max_pd: int
    max_srq: int
    max_srq_wr: int
    max_inline: int
    max_rd_atomic: int
    ports: tuple[PortAttributes, ...]
    capabilities: dict[str, str]

    @classmethod
    def from_native(cls, native: _native.DeviceAttributes) -> DeviceAttributes:
        values = _values(cls, native)
        values["ports"] = tuple(PortAttributes.from_native(port) for port in native.ports)
        values["capabilities"] = dict(native.capabilities)
        return cls(**values)

    @property
    def gid(self) -> Gid:
        """The first valid GID of port 1; all zero if there is none."""
        port_gids = self.ports[0].gids if self.ports else ()
        return next((gid for gid in port_gids if gid), Gid(bytes(16)))


@dataclass(frozen=True)
class QpLimits:
    """The actual limits of a queue pair: at least those that were requested."""

    max_send: int
    max_recv: int
    max_send_sge: int
    max_recv_sge: int
    max_inline: int

    @classmethod
    def from_native(cls, native: _native.QpLimits) -> QpLimits:
        return cls(**_values(cls, native))


@dataclass(frozen=True)
class QpAttributes:
    """The state of a queue pair and the attributes that its transitions have set."""

    state: QpState
    access_flags: Access
    pkey_index: int
    port: int
    dest_gid: Gid
    gid_index: int
    dest_lid: int
    path_mtu: int
    dest_qp_num: int
    rq_psn: int
    sq_psn: int
    max_rd_atomic: int
    max_dest_rd_atomic: int
    min_rnr_timer: int
    timeout: int
    retry_count: int
    rnr_retry: int

    @classmethod
    def from_native(cls, native: _native.QpAttributes) -> QpAttributes:
        values = _values(cls, native)
        values["access_flags"] = Access(native.access_flags)
        values["dest_gid"] = Gid(native.dest_gid)
        return cls(**values)


def _values(cls: type[Any], native: object) -> dict[str, Any]:
    return {field.name: getattr(native, field.name) for field in fields(cls)}
