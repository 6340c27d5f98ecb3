"""The address of a queue pair, which two ends exchange before connect_to()."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from verbena.verbs.gid import Gid

_LAYOUT = struct.Struct("<16sIIH")


@dataclass(frozen=True)
class Endpoint:
    """The address of a queue pair, for the peer's connect_to(): GID and LID of the port, number of the queue
    pair, first packet sequence number."""

    gid: Gid
    qp_num: int
    psn: int
    lid: int = 0

    def to_bytes(self) -> bytes:
        """Returns 26 bytes, little endian: gid, qp_num, psn, lid."""
        return _LAYOUT.pack(bytes(self.gid), self.qp_num, self.psn, self.lid)

    @classmethod
    def from_bytes(cls, data: bytes) -> Endpoint:
        """Returns the endpoint that to_bytes() encoded. ValueError if the length is wrong."""
        if len(data) != _LAYOUT.size:
            raise ValueError(f"an Endpoint is {_LAYOUT.size} bytes, not {len(data)}")
        gid, qp_num, psn, lid = _LAYOUT.unpack(data)
        return cls(Gid(gid), qp_num, psn, lid)
