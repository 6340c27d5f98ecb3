"""The request of a replica to follow a primary's log. It comes from the network: every field is checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

# Limits of replication.rdma.ring_size: a sender fills a ring with pieces, and a tiny one has room for none.
_MIN_RING_BYTES, _MAX_RING_BYTES = 64 << 10, 1 << 30
_U64 = (1 << 64) - 1
_RANGES = {
    "port": (0, 65535),
    "lsn": (0, _U64),
    "offset": (0, _U64),
    "ring_key": (0, _U64),
    "ring_bytes": (_MIN_RING_BYTES, _MAX_RING_BYTES),
    "ring_tag": (0, _U64),
    "databases": (1, 1 << 31),
}
_MAX_REPLID = 64


@dataclass(frozen=True)
class SyncRequest:
    """What a replica has of the log, and the ring in its memory into which the primary writes."""

    version: int
    stream: int | None  # whose user may follow; None in a cluster
    port: int
    replid: str
    lsn: int
    offset: int
    ring_key: int
    ring_bytes: int
    ring_tag: int
    databases: int

    @classmethod
    def parse(cls, payload: bytes, *, version: int) -> SyncRequest:
        """ValueError for a request that this version does not understand; its text is the reason."""
        try:
            fields: Any = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise ValueError("the request is not JSON") from error
        if not isinstance(fields, dict):
            raise ValueError("the request is not an object")
        asked = fields.get("version")
        if asked != version:
            raise ValueError(f"this server replicates with version {version}, not {str(asked)[:20]}")
        stream, replid = fields.get("stream"), fields.get("replid")
        if not isinstance(replid, str) or len(replid) > _MAX_REPLID:
            raise ValueError("replid is not a short string")
        numbers = {}
        for name, (lowest, highest) in _RANGES.items():
            number = fields.get(name)
            if type(number) is not int or not lowest <= number <= highest:
                raise ValueError(f"{name} is not a number from {lowest} to {highest}")
            numbers[name] = number
        return cls(version=version, stream=stream if type(stream) is int else None, replid=replid, **numbers)
