"""Messages between nodes: JSON objects in calls, validated by the receiver.
Sets of pieces are hexadecimal numbers: bit i stands for piece i."""

from __future__ import annotations

import json
import re
from typing import Any

from verbena.registry import digests, names
from verbena.registry.digests import Digest
from verbena.registry.nodes.settings import PIECE
from verbena.transport import RemoteRegion

HELLO = "registry.hello"  # exchanges the ids of the nodes
FIND = "registry.find"  # what the peer has of a blob; a short one is sent at once
FOLLOW = "registry.follow"  # waits until the peer has more of a blob
SEND = "registry.send"  # writes one of the listed pieces into the requester's window
SUMS = "registry.sums"  # digests of the pieces in the peer's file
MANIFEST = "registry.manifest"
LEASE = "registry.lease"  # permission to fetch a blob from upstream
RELEASE = "registry.release"
REPLICATE = "registry.replicate"  # stores a copy on the peer

MAX_BLOB_BYTES = 1 << 50
_MAX_BITS = MAX_BLOB_BYTES // PIECE
_MAX_KNOWN = 1024
_HEXADECIMAL = re.compile(r"[0-9a-f]*")


class BadMessage(ValueError):
    """A message from a node is invalid."""


def encode(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(payload: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadMessage("not JSON") from error
    if not isinstance(fields, dict):
        raise BadMessage("not a JSON object")
    return fields


def take_text(fields: dict[str, Any], name: str, most: int = 300) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise BadMessage(f"{name} must be a text of up to {most} characters")
    return value


def take_integer(fields: dict[str, Any], name: str, most: int = MAX_BLOB_BYTES) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise BadMessage(f"{name} must be a number from 0 to {most}")
    return value


def take_pieces(fields: dict[str, Any], name: str) -> int:
    text = take_text(fields, name, _MAX_BITS // 4)
    if not _HEXADECIMAL.fullmatch(text):
        raise BadMessage(f"{name} must be a hexadecimal number")
    return int(text or "0", 16)


def take_digest(fields: dict[str, Any]) -> Digest:
    try:
        return digests.parse(take_text(fields, "digest"))
    except digests.BadDigest as error:
        raise BadMessage(str(error)) from error


def take_repository(fields: dict[str, Any]) -> str:
    name = take_text(fields, "repository")
    if not names.is_repository(name):
        raise BadMessage("not a repository name")
    return name


def take_window(fields: dict[str, Any]) -> RemoteRegion:
    try:
        return RemoteRegion.from_bytes(bytes.fromhex(take_text(fields, "window", 80)))
    except ValueError as error:
        raise BadMessage("not a region") from error


def take_nodes(fields: dict[str, Any], name: str) -> frozenset[str]:
    known = fields.get(name, [])
    if not isinstance(known, list) or len(known) > _MAX_KNOWN:
        raise BadMessage(f"{name} must be a list of nodes")
    return frozenset(node for node in known if isinstance(node, str))
