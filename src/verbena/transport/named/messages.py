"""The messages about named regions: JSON objects with exactly the fields below, so that nothing else has to
be considered. Both ends check what they receive."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from verbena.errors import VerbenaError, setup_error
from verbena.transport.memory.form import Form, checked_form
from verbena.transport.memory.region import RemoteRegion
from verbena.transport.memory.remote_array import RemoteArray

REGION = "verbena.region"
REGIONS = "verbena.regions"
WATCH = "verbena.watch"

MAX_REQUEST_BYTES = 4096
MAX_NAME_LENGTH = 255

# What a publisher may reply instead of a result.
FAILURES = frozenset({"no_such_region", "region_not_permitted", "limit_exceeded"})

_REGION_BYTES = 40


def is_region_name(value: object) -> bool:
    """1 to 255 printable characters."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_LENGTH and value.isprintable()


# Requests


@dataclass(frozen=True)
class NameRequest:
    """Asks for a region; with a version: for the next version."""

    name: str
    version: int = 0

    def encode(self, method: str) -> bytes:
        if not is_region_name(self.name):
            detail = f"a name is 1 to {MAX_NAME_LENGTH} printable characters"
            raise setup_error("invalid_argument", operation=method.removeprefix("verbena."), detail=detail)
        fields: dict[str, Any] = {"name": self.name}
        if method == WATCH:
            fields["version"] = self.version
        return json.dumps(fields).encode()


def parse_request(method: str, payload: bytes) -> NameRequest:
    """Returns the request of a peer for REGION or WATCH. ValueError if it is not exact."""
    fields = _object(payload, {"name", "version"} if method == WATCH else {"name"}, MAX_REQUEST_BYTES)
    if not is_region_name(fields["name"]):
        raise ValueError(f"a name is 1 to {MAX_NAME_LENGTH} printable characters")
    return NameRequest(fields["name"], _version(fields.get("version", 0)))


# Replies


def encode_region(remote: RemoteRegion, form: Form | None) -> bytes:
    described = {"dtype": form.dtype, "shape": list(form.shape)} if form else {"dtype": None, "shape": None}
    return json.dumps({"region": remote.to_bytes().hex(), **described}).encode()


def encode_names(names: list[str]) -> bytes:
    return json.dumps({"names": names}).encode()


def encode_version(version: int) -> bytes:
    return json.dumps({"version": version}).encode()


def encode_failure(code: str, detail: str) -> bytes:
    return json.dumps({"failure": code, "detail": detail}).encode()


def parse_region(reply: bytes, peer: str) -> RemoteRegion:
    """Returns the region; a RemoteArray if it has a form. Raises what the publisher reported, or
    `bad_message`."""
    fields = _reply(reply, {"region", "dtype", "shape"}, "region", peer)
    try:
        packed = bytes.fromhex(fields["region"])
        remote = RemoteRegion.from_bytes(packed)
        if fields["dtype"] is None and fields["shape"] is None:
            return remote
        form = checked_form(fields["dtype"], fields["shape"], remote.length)
    except (TypeError, ValueError) as error:
        raise _bad_message("region", peer, error) from error
    return RemoteArray(remote.addr, remote.length, remote.key, remote.epoch, remote.offset, form=form)


def parse_names(reply: bytes, peer: str) -> list[str]:
    names = _reply(reply, {"names"}, "regions", peer)["names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _bad_message("regions", peer, "the names are texts")
    return names


def parse_version(reply: bytes, peer: str) -> int:
    fields = _reply(reply, {"version"}, "watch", peer)
    try:
        return _version(fields["version"])
    except ValueError as error:
        raise _bad_message("watch", peer, error) from error


def _reply(reply: bytes, wanted: set[str], operation: str, peer: str) -> dict[str, Any]:
    try:
        if reply.startswith(b'{"failure"'):
            failure = _object(reply, {"failure", "detail"})
            if failure["failure"] not in FAILURES:
                raise ValueError("the failure is not a known one")
        else:
            return _object(reply, wanted)
    except ValueError as error:
        raise _bad_message(operation, peer, error) from error
    raise setup_error(failure["failure"], operation=operation, peer=peer, detail=str(failure["detail"]))


def _object(payload: bytes, wanted: set[str], max_bytes: int | None = None) -> dict[str, Any]:
    if max_bytes is not None and len(payload) > max_bytes:
        raise ValueError(f"the arguments have {max_bytes} bytes at most")
    try:
        fields = json.loads(payload)
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None
    if not isinstance(fields, dict) or set(fields) != wanted:
        raise ValueError(f"the arguments are a JSON object of {', '.join(sorted(wanted))}")
    return fields


def _version(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError("a version is a number")
    return value


def _bad_message(operation: str, peer: str, why: object) -> VerbenaError:
    return setup_error("bad_message", operation=operation, peer=peer, detail=str(why))
