"""Messages about named regions: each parser accepts exactly its own message, and raises its documented error
for everything else."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import verbena
from verbena import errors
from verbena.transport import RemoteRegion
from verbena.transport.memory.form import Form
from verbena.transport.named import messages
from verbena.transport.named.messages import REGION, REGIONS, WATCH, NameRequest

REMOTE = RemoteRegion(1000, 24, 5, 6)
GOOD = {"region": REMOTE.to_bytes().hex(), "dtype": "<f4", "shape": [2, 3]}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
fields = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("name", "version", "region", "dtype", "shape", "names", "failure"), values),
)
hostile = st.binary(max_size=200) | (values | fields).map(lambda value: json.dumps(value).encode())
ALWAYS = [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, b"\xff" * 1000, b"", b"null", b'{"failure"']


def check(payload: bytes) -> None:
    for method in (REGION, WATCH):
        with contextlib.suppress(ValueError):
            messages.parse_request(method, payload)
    for parse in (messages.parse_region, messages.parse_names, messages.parse_version):
        with contextlib.suppress(errors.ProtocolError):
            parse(payload, "peer")


@given(hostile)
def test_hostile_messages_raise_the_documented_errors(payload: bytes) -> None:
    check(payload)


@pytest.mark.parametrize("payload", ALWAYS, ids=range(len(ALWAYS)))
def test_deep_and_long_messages_raise_the_documented_errors(payload: bytes) -> None:
    check(payload)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "O"},
        {"dtype": "<f4,<f4"},
        {"dtype": "<f4\n"},
        {"dtype": "<f1"},
        {"dtype": "|V0", "shape": [24]},
        {"dtype": "float64_e1m2(__import__)"},
        {"dtype": None},
        {"shape": None},
        {"shape": [2, 4]},
        {"shape": [True, 6]},
        {"shape": [-2, -3]},
        {"shape": [2.0, 3]},
        {"shape": [1] * 33},
        {"shape": [2**63, 0]},
        {"region": "00"},
        {"region": "zz" * 40},
        {"region": 5},
        {"more": 1},
    ],
    ids=str,
)
def test_a_region_that_is_not_exact_is_refused(change: dict[str, Any]) -> None:
    """A shape that does not fill the bytes would make a program read other memory than it expects."""
    assert messages.parse_region(json.dumps(GOOD).encode(), "peer") == REMOTE
    with pytest.raises(errors.ProtocolError, match="bad_message"):
        messages.parse_region(json.dumps({**GOOD, **change}).encode(), "peer")


def test_a_region_survives_its_message() -> None:
    form = Form("<f4", (2, 3))
    found = messages.parse_region(messages.encode_region(REMOTE, form), "peer")
    assert found == REMOTE
    assert found.shape == (2, 3)  # type: ignore[attr-defined]
    plain = messages.parse_region(messages.encode_region(REMOTE, None), "peer")
    assert (type(plain), plain) == (RemoteRegion, REMOTE)


def test_an_unknown_failure_is_no_error_of_ours() -> None:
    """A peer cannot choose the class of the exception freely."""
    with pytest.raises(errors.ProtocolError):
        messages.parse_region(messages.encode_failure("bad_configuration", "pwned"), "peer")
    with pytest.raises(errors.DeniedError, match="not for you"):
        messages.parse_region(messages.encode_failure("region_not_permitted", "not for you"), "peer")


@pytest.mark.parametrize("name", ["", "x" * 256, "a\x00", 5, None, "\ud800"])
def test_a_name_is_checked_before_it_is_sent(name: Any) -> None:
    with pytest.raises(errors.StateError, match="printable"):
        NameRequest(name).encode(REGION)


async def test_hostile_calls_leave_the_listener_in_order() -> None:
    """The caller gets an error; the next request is served."""
    payloads = [
        b"[" * 4000,
        b"x" * 5000,
        b"{}",
        b'{"name": "a", "version": -1}',
        b'{"name": "a", "version": true}',
        b'{"name": ["a"]}',
        b'{"name": "\\ud800"}',
        b'{"name": "a", "more": 1}',
        b"\xff",
    ]
    async with verbena.listen("127.0.0.1:0") as listener, verbena.connect(listener.address) as session:
        listener.publish("text", b"hello")
        for method in (REGION, REGIONS, WATCH):
            for payload in payloads:
                with pytest.raises(errors.RemoteError):
                    await session.call(method, payload)
        assert await session.pull("text") == b"hello"
        assert not listener._publisher._watches
