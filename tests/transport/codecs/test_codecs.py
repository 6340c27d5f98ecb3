"""Codecs of calls: each value returns as it was sent, and messages of a hostile peer raise ValueError."""

from __future__ import annotations

import datetime
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena import errors
from verbena.transport.codecs.codec import Codec, codec_for

numpy_codec, msgpack, pickle5 = (codec_for(name) for name in ("numpy", "msgpack", "pickle5"))
assert numpy_codec is not None
assert msgpack is not None
assert pickle5 is not None


def again(codec: Codec, value: Any) -> Any:
    return codec.decode(bytes(codec.encode(value)))


ARRAYS = [
    numpy.arange(24, dtype="f4").reshape(2, 3, 4),
    numpy.arange(24, dtype=">i2").reshape(4, 6)[:, ::2],
    numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
    numpy.empty((0, 5)),
    numpy.array(3.5),
    numpy.array(["2026-01-01"], dtype="M8[D]"),
    numpy.array([b"ab", b"c"]),
    numpy.array(["ä", "bc"]),
    numpy.array([True, False]),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
@pytest.mark.parametrize("codec", [numpy_codec, pickle5], ids=lambda codec: codec.name)
def test_an_array_returns_with_dtype_and_shape(codec: Codec, array: Any) -> None:
    found = again(codec, array)
    assert found.shape == array.shape
    assert codec is pickle5 or found.dtype == array.dtype  # pickle may change the byte order
    assert numpy.array_equal(found, array)


@pytest.mark.parametrize("codec", [numpy_codec, pickle5], ids=lambda codec: codec.name)
def test_a_received_array_is_a_view_of_the_message(codec: Codec) -> None:
    """Aligned, so that it is as fast as any other, and read-only."""
    data = bytes(codec.encode(numpy.arange(1000.0)))
    array = codec.decode(data)
    assert numpy.shares_memory(array, numpy.frombuffer(data, dtype="u1"))
    assert array.flags.aligned
    assert not array.flags.writeable


def test_numpy_takes_what_numpy_makes_an_array_of() -> None:
    assert again(numpy_codec, [1, 2, 3]).tolist() == [1, 2, 3]
    assert float(again(numpy_codec, 2.5)) == 2.5
    assert again(numpy_codec, None) is None


@pytest.mark.parametrize("value", [{"a": 1}, object(), numpy.zeros(2, dtype="i4,f4"), [1, "a", None]])
def test_numpy_refuses_objects_and_records(value: Any) -> None:
    with pytest.raises(errors.StateError, match="cannot be shared"):
        numpy_codec.encode(value)


@pytest.mark.parametrize("codec", [msgpack, pickle5], ids=lambda codec: codec.name)
def test_plain_values_return(codec: Codec) -> None:
    value = {"name": "ä", 5: [1, -2.5, True, None, b"bytes", "x" * 100_000], "inner": {"a": []}}
    assert again(codec, value) == value
    assert again(codec, None) is None


def test_pickle5_takes_any_value() -> None:
    value = {"when": datetime.date(2026, 1, 2), "arrays": [numpy.arange(3), numpy.ones((2, 2))]}
    found = again(pickle5, value)
    assert found["when"] == value["when"]
    assert [one.tolist() for one in found["arrays"]] == [[0, 1, 2], [[1, 1], [1, 1]]]


@pytest.mark.parametrize("codec", [numpy_codec, msgpack], ids=lambda codec: codec.name)
@given(data=st.binary(max_size=200))
def test_hostile_messages_raise_value_error(codec: Codec, data: bytes) -> None:
    try:
        codec.decode(data)
    except (ValueError, errors.UnavailableError):
        return
    assert isinstance(data, bytes)  # it was a message


@given(data=st.data())
def test_a_damaged_array_is_refused_or_has_the_size_of_its_message(data: st.DataObject) -> None:
    """Never one that reaches beyond the message."""
    message = bytearray(numpy_codec.encode(numpy.arange(12, dtype="i4").reshape(3, 4)))
    at = data.draw(st.integers(0, 40))
    message[at] = data.draw(st.integers(0, 255))
    cut = bytes(message[: data.draw(st.integers(0, len(message)))])
    try:
        array = numpy_codec.decode(cut)
    except (ValueError, errors.UnavailableError):
        return
    assert array is None or array.nbytes <= len(cut)


@pytest.mark.parametrize("count", [0, 2, 3, 2**16 + 1, 2**63])
def test_pickle5_checks_the_parts_before_it_loads(count: int) -> None:
    import struct

    pickled = pickle.dumps("value", protocol=5)
    for lengths in ([len(pickled)], [2**63, 1], [len(pickled) + 1, 5]):
        message = struct.pack(f"<{len(lengths) + 1}Q", count, *lengths) + bytes(8) + pickled
        with pytest.raises(ValueError, match="part"):
            pickle5.decode(message)


def test_deep_messages_are_refused() -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - msgpack chooses the text
        msgpack.decode(b"\x91" * 100_000)


@pytest.mark.parametrize("chosen", ["json", "", "pickle", 5, object()])
def test_an_unknown_codec_is_named(chosen: Any) -> None:
    with pytest.raises(errors.StateError, match="codec"):
        codec_for(chosen)


@pytest.mark.parametrize(
    ("codec", "message"), [("msgpack", "pip install msgpack"), ("numpy", "pip install numpy")]
)
def test_a_missing_package_is_named_at_once(codec: str, message: str) -> None:
    """connect() and listen() raise, not the first call."""
    program = f"""
import sys
sys.modules["{codec}"] = None
from verbena import errors, sync
try:
    sync.listen("127.0.0.1:0", codec="{codec}")
except errors.UnavailableError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert message in done.stdout


def test_bytes_need_no_codec() -> None:
    check: Callable[[str], Codec | None] = codec_for
    assert check("bytes") is None
