"""Checkpoints of slot moves: one small file each, replaced atomically, so that a crash leaves the former one
or the new one. A record is {migration id, phase, attempt, payload, CRC32C}."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

from verbena import _native
from verbena._files import make_folder, private
from verbena.errors import VerbenaError, setup_error
from verbena.shards.migration import Phase, State, from_payload, to_payload

MAGIC = b"VSCP"
VERSION = 1
_HEADER = struct.Struct("<4sHH16sII")  # magic, version, phase, migration, attempt, payload length
_CHECKSUM = struct.Struct("<I")
_MAX_BYTES = 1 << 20


def encode(state: State) -> bytes:
    payload = json.dumps(to_payload(state), separators=(",", ":"), sort_keys=True).encode()
    facts = state.facts
    head = _HEADER.pack(
        MAGIC, VERSION, state.phase, bytes.fromhex(facts.migration), facts.attempt, len(payload)
    )
    return head + payload + _CHECKSUM.pack(_native.crc32c(head + payload))


def decode(data: bytes) -> State:
    """Returns the state in a record. ProtocolError: it is not exactly one valid record."""
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise _fault(f"{len(data)} bytes are too few")
    magic, version, phase, migration, attempt, length = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise _fault(f"{magic!r} version {version} is not {MAGIC!r} version {VERSION}")
    if length > _MAX_BYTES or len(data) != _HEADER.size + length + _CHECKSUM.size:
        raise _fault(f"{len(data)} bytes, where the header says {length} of payload")
    (checksum,) = _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)
    if checksum != _native.crc32c(data[: -_CHECKSUM.size]):
        raise _fault("the checksum is wrong")
    try:
        state = from_payload(Phase(phase), json.loads(data[_HEADER.size : -_CHECKSUM.size]))
    except ValueError as error:
        raise _fault(str(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise _fault(f"its payload is of another version ({type(error).__name__}: {error})") from error
    if bytes.fromhex(state.facts.migration) != migration or state.facts.attempt != attempt:
        raise _fault("the header and the payload do not belong together")
    return state


class Checkpoints:
    """The files of one node. `path` None: nothing is stored, for a node without persistence. `on_written` is
    called after each write, for tests."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = Path(path) if path is not None else None
        self.on_written: Callable[[State], None] = lambda state: None
        if self.path is not None:
            make_folder(self.path)

    def write(self, state: State, *, sync: bool = True) -> None:
        """Stores a state; it is on disk when this returns. Without `sync` it is in the kernel's cache, which
        survives a killed process: enough while clients wait, since the map decides after a crash. Blocks."""
        if self.path is not None:
            file = self.path / f"{state.facts.migration}.checkpoint"
            beside = file.with_suffix(".new")
            with open(beside, "wb", opener=private) as out:
                out.write(encode(state))
                out.flush()
                if sync:
                    os.fsync(out.fileno())
            os.replace(beside, file)
            if sync:
                self._sync_folder()
        self.on_written(state)

    def read_all(self) -> list[State]:
        """Returns all stored states, in order of file names. ProtocolError names the damaged file."""
        states = []
        for file in sorted(self.path.glob("*.checkpoint")) if self.path is not None else []:
            try:
                states.append(decode(file.read_bytes()))
            except VerbenaError as error:
                raise _fault(f"{file}: {error.detail}") from error
        return states

    def remove(self, migration: str) -> None:
        if self.path is not None:
            (self.path / f"{migration}.checkpoint").unlink(missing_ok=True)
            self._sync_folder()

    def _sync_folder(self) -> None:
        assert self.path is not None
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _fault(detail: str) -> VerbenaError:
    return setup_error("bad_checkpoint", operation="read a checkpoint", detail=detail)
