"""The envelope: one header on every wire. Anything else is rejected."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from verbena import _native
from verbena.errors import ProtocolError
from verbena.shards.envelope import HEADER_BYTES, Envelope, Flag, Kind, parse

SOME = Envelope(
    kind=Kind.SEGMENT,
    source=b"s" * 20,
    target=b"t" * 20,
    first_slot=7,
    last_slot=9,
    migration=bytes(range(16)),
    payload=b"some records",
    flags=Flag.LAST,
    segment=3,
    offset=100,
    total=112,
    sequence=5,
    boot_epoch=2**63 + 1,
)
U64 = st.integers(0, 2**64 - 1)


def resealed(data: bytes, at: int, patch: bytes) -> bytes:
    """Returns the envelope with changed bytes and a valid checksum."""
    data = data[:at] + patch + data[at + len(patch) :]
    head, payload = data[: HEADER_BYTES - 4], data[HEADER_BYTES:]
    return head + struct.pack("<I", _native.crc32c(payload, _native.crc32c(head))) + payload


def test_the_layout_is_fixed() -> None:
    """Other versions depend on the layout, so it must not change by accident."""
    data = bytes(SOME)
    assert HEADER_BYTES == 112
    assert data[:8] == b"VSHD\x01\x02\x02\x00"
    assert data[8:48] == b"s" * 20 + b"t" * 20
    assert struct.unpack_from("<HH16sIQQQQI", data, 48) == (
        7,
        9,
        bytes(range(16)),
        3,
        100,
        112,
        5,
        2**63 + 1,
        12,
    )
    assert data[112:] == b"some records"


@given(
    st.builds(
        Envelope,
        kind=st.sampled_from(sorted(set(Kind) - {Kind.SEGMENT, Kind.TAIL})),
        source=st.binary(min_size=20, max_size=20),
        target=st.binary(min_size=20, max_size=20),
        first_slot=st.integers(0, 100),
        last_slot=st.integers(100, 16383),
        migration=st.binary(min_size=16, max_size=16),
        payload=st.binary(max_size=200),
        flags=st.integers(0, 7).map(Flag),
        segment=st.integers(0, 2**32 - 1),
        offset=U64,
        total=U64,
        sequence=U64,
        boot_epoch=U64,
    )
)
def test_a_packed_envelope_parses_to_itself(envelope: Envelope) -> None:
    assert parse(bytes(envelope)) == envelope
    assert bytes(parse(bytes(envelope))) == bytes(envelope)


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, len(bytes(SOME)) - 1])
def test_a_truncated_envelope_is_rejected(length: int) -> None:
    with pytest.raises(ProtocolError):
        parse(bytes(SOME)[:length])


def test_an_envelope_with_an_extra_byte_is_rejected() -> None:
    with pytest.raises(ProtocolError, match="where the header says"):
        parse(bytes(SOME) + b"x")


@given(st.integers(0, len(bytes(SOME)) * 8 - 1))
@settings(max_examples=400)
def test_every_flipped_bit_is_detected(bit: int) -> None:
    data = bytearray(bytes(SOME))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ProtocolError):
        parse(data)


@pytest.mark.parametrize(
    ("at", "patch", "says"),
    [
        (0, b"VSHX", "magic bytes"),
        (4, b"\x00", "version 0"),
        (4, b"\x02", "version 2 is unknown"),
        (5, b"\x00", "type 0"),
        (5, b"\xff", "type 255"),
        (6, b"\x08\x00", "flags"),
        (48, struct.pack("<HH", 9, 7), "not slots"),
        (48, struct.pack("<HH", 0, 16384), "not slots"),
        (72, struct.pack("<Q", 2**64 - 1), "at offset"),
        (104, struct.pack("<I", 2**32 - 1), "where the header says"),
    ],
)
def test_invalid_fields_are_named_even_with_a_valid_checksum(at: int, patch: bytes, says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        parse(resealed(bytes(SOME), at, patch))


@given(st.binary(max_size=400), st.booleans())
@example(b"", True)
@settings(max_examples=600)
def test_any_bytes_parse_or_are_rejected(data: bytes, sealed: bool) -> None:
    """Includes random bytes after a valid start and with a valid checksum."""
    if sealed:
        start = bytes(SOME)[:5]
        data = resealed((start + data).ljust(HEADER_BYTES, b"\0"), 0, start)
        length = struct.pack("<I", len(data) - HEADER_BYTES)
        data = resealed(data, HEADER_BYTES - 8, length)
    try:
        found = parse(data)
    except ProtocolError:
        return
    assert bytes(found) == data


def test_a_value_that_does_not_fit_cannot_be_packed() -> None:
    with pytest.raises(TypeError):
        bytes(replace(SOME, segment=2**32))
    with pytest.raises(ValueError, match="wrong length"):
        bytes(replace(SOME, source=b"s" * 19))
