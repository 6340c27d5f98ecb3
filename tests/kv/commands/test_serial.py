"""Serialized values: round trips, and the refusal of damaged or forged ones."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kv.memory_database import MemoryServer

from verbena.kv.storage import serial
from verbena.kv.values.collections import Hash, List, Set, SortedSet

words = st.binary(max_size=300)
scores = st.dictionaries(words, st.floats(allow_nan=False), min_size=1)
values = st.one_of(
    words,
    st.dictionaries(words, words, min_size=1).map(Hash),
    st.lists(words, min_size=1).map(List),
    st.sets(words, min_size=1).map(Set),
    scores.map(SortedSet.of),
)


def plain(value):
    return (value.scores, list(value.order)) if isinstance(value, SortedSet) else value


@given(values)
def test_what_is_dumped_is_loaded(value):
    again = serial.load(serial.dump(value))
    assert type(again) is type(value)
    assert plain(again) == plain(value)


@given(values, st.data())
def test_damage_is_noticed(value, data):
    """A flipped bit or missing bytes anywhere: the payload is refused."""
    payload = bytearray(serial.dump(value))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(serial.Damaged):
        serial.load(bytes(payload))
    with pytest.raises(serial.Damaged):
        serial.load(serial.dump(value)[: data.draw(st.integers(0, len(payload) - 1))])


def sealed(body: bytes) -> bytes:
    version = bytes((serial.VERSION,))
    return body + version + struct.pack("<I", zlib.crc32(body + version))


@given(st.binary(min_size=6, max_size=60))
def test_a_forged_payload_is_a_value_or_refused(body):
    """With a valid checksum over garbage, load() raises Malformed or returns a value that can be dumped."""
    try:
        value = serial.load(sealed(body))
    except serial.Malformed:
        return
    serial.load(serial.dump(value))


@pytest.mark.parametrize(
    "body",
    [
        struct.pack("<BIB", 3, 2, 1) + b"\1\1aa",  # a duplicate member
        struct.pack("<BIB", 2, 0, 1),  # an empty list
        struct.pack("<BIB", 4, 1, 1) + b"\1" + struct.pack("<d", float("nan")) + b"a",
        struct.pack("<BIB", 2, 0xFFFFFFFF, 4),
        struct.pack("<BIB", 9, 1, 1) + b"\1a",
    ],
)
def test_restore_refuses_what_makes_no_value(body):
    server = MemoryServer()
    assert server.run("RESTORE", "k", 0, sealed(body)).text == "ERR Bad data format"
    assert server.run("EXISTS", "k") == 0


def test_restore_with_a_time_to_live():
    """A time to live is stored as an absolute time, so that replaying the log later gives the same result."""
    server = MemoryServer(now_ms=5000)
    server.run("RPUSH", "k", "a", "b")
    payload = server.run("DUMP", "k")
    assert server.run("RESTORE", "k", 0, payload).text == "BUSYKEY Target key name already exists."
    assert server.run("RESTORE", "k", 100, payload, "REPLACE") == "OK"
    assert server.run("PEXPIRETIME", "k") == 5100
    assert server.run("RESTORE", "other", 4999, payload, "ABSTTL") == "OK"
    assert server.run("EXISTS", "other") == 0
    assert server.replayed().contents() == server.contents()
