"""Checkpoints on disk with damage in every field: the node refuses to start and reports the file and the
fault."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kv.cluster import Cluster, Node, cluster

from verbena import _native
from verbena.errors import ProtocolError
from verbena.kv.migration.checkpoint import Checkpoints, decode, encode
from verbena.shards.migration import CatchUp, Facts
from verbena.shards.positions import SourcePosition
from verbena.shards.slots import SlotRange

MOVE = "5e" * 16
STATE = CatchUp(Facts(MOVE, SlotRange(0, 99), "a" * 40, "b" * 40, 2), SourcePosition(7), SourcePosition(9))
GOOD = encode(STATE)


def signed(data: bytes) -> bytes:
    """Signs it with a correct checksum, so that only the contents are wrong."""
    return data[:-4] + struct.pack("<I", _native.crc32c(data[:-4]))


def changed(at: int, value: bytes) -> bytes:
    return signed(GOOD[:at] + value + GOOD[at + len(value) :])


DAMAGED = {
    "nothing": (b"", "0 bytes are too few"),
    "a part of the header": (GOOD[:20], "20 bytes are too few"),
    "a part of the payload": (GOOD[:60], "60 bytes, where the header says"),
    "without its last byte": (GOOD[:-1], "where the header says"),
    "a byte too many": (GOOD + b"x", "where the header says"),
    "magic": (changed(0, b"XXXX"), "b'XXXX' version 1 is not"),
    "version": (changed(4, struct.pack("<H", 2)), "version 2 is not"),
    "phase": (changed(6, struct.pack("<H", 99)), "99 is not a valid Phase"),
    "another phase": (
        changed(6, struct.pack("<H", 5)),
        "its phase is DECIDING, which takes digest, facts, fenced_at, and holds what CATCH_UP has",
    ),
    "migration": (changed(8, bytes(16)), "do not belong together"),
    "attempt": (changed(24, struct.pack("<I", 3)), "do not belong together"),
    "length": (changed(28, struct.pack("<I", 5)), "where the header says 5"),
    "payload": (changed(32, b"not"), "Expecting value"),
    "checksum": (GOOD[:-4] + bytes(4), "the checksum is wrong"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("checkpoints"), 1) as found:
        found[0].raw("SET", "key", "value")
        found[0].kill()
        yield found


def file_of(node: Node) -> Path:
    return node.folder / node.name / "cluster" / "moves" / f"{MOVE}.checkpoint"


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_record_is_refused(what: str, tmp_path: Path) -> None:
    data, says = DAMAGED[what]
    (tmp_path / f"{MOVE}.checkpoint").write_bytes(data)
    with pytest.raises(ProtocolError) as caught:
        Checkpoints(tmp_path).read_all()
    assert f"{MOVE}.checkpoint" in caught.value.detail
    assert says in caught.value.detail


def test_every_bit_counts() -> None:
    for at in range(len(GOOD) * 8):
        flipped = bytearray(GOOD)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(ProtocolError):
            decode(bytes(flipped))
    assert decode(GOOD) == STATE


@pytest.mark.parametrize("what", ["a part of the payload", "phase", "checksum"])
def test_a_node_does_not_start_with_it(made: Cluster, what: str) -> None:
    """The node exits with a message that names the file and the fault, and has changed nothing."""
    node, (data, says) = made[0], DAMAGED[what]
    file_of(node).write_bytes(data)
    log = node.folder / node.name / "log"
    before = log.stat().st_size
    node.start()
    assert node.process is not None
    assert node.process.wait(60) == 1
    said = log.read_bytes()[before:].decode()
    assert "verbena: " in said
    assert str(file_of(node)) in said
    assert says in said
    assert "Traceback" not in said
    assert file_of(node).read_bytes() == data


def test_without_it_the_node_serves_what_it_had(made: Cluster) -> None:
    """A valid checkpoint of a move that is not in the map is undone, and its file is deleted."""
    node = made[0]
    facts = Facts(MOVE, SlotRange(0, 99), node.id, "b" * 40, 1)
    file_of(node).write_bytes(encode(CatchUp(facts, SourcePosition(7), SourcePosition(9))))
    node.start().ready()
    assert node.raw("GET", "key") == b"value"
    made.until(lambda: not file_of(node).exists())
