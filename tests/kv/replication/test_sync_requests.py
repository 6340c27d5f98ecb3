"""The request of a replica is input from the network: every field has a type and a range."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kv.kv_store import Store, running

from verbena import kv
from verbena.kv.replication.link import METHOD, VERSION
from verbena.kv.replication.sync_request import SyncRequest

GOOD = {
    "version": VERSION,
    "stream": 1,
    "port": 6379,
    "replid": "a" * 40,
    "lsn": 1,
    "offset": 2,
    "ring_key": 3,
    "ring_bytes": 4 << 20,
    "ring_tag": 5,
    "databases": 16,
}
BAD: list[tuple[str, Any]] = [
    ("ring_bytes", 0),
    ("ring_bytes", -1),
    ("ring_bytes", 1),
    ("ring_bytes", (64 << 10) - 1),
    ("ring_bytes", (1 << 30) + 1),
    ("ring_bytes", 1e9),
    ("ring_bytes", True),
    ("ring_bytes", "4194304"),
    ("port", 65536),
    ("port", [6379]),
    ("lsn", -1),
    ("lsn", 1 << 64),
    ("offset", None),
    ("ring_key", 1 << 64),
    ("ring_tag", -1),
    ("databases", 0),
    ("replid", "a" * 65),
    ("replid", None),
    ("version", VERSION + 1),
    ("version", "x" * 100_000),
]


def parse(fields: Any) -> SyncRequest:
    return SyncRequest.parse(json.dumps(fields).encode(), version=VERSION)


def test_a_request_in_range_is_taken() -> None:
    request = parse(GOOD)
    assert (request.stream, request.ring_bytes, request.replid) == (1, 4 << 20, "a" * 40)
    assert parse({**GOOD, "stream": None}).stream is None
    assert parse({**GOOD, "unknown": 1}) == request


@pytest.mark.parametrize(("field", "value"), BAD, ids=[f"{field}={str(value)[:12]}" for field, value in BAD])
def test_a_field_out_of_range_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field) as refusal:
        parse({**GOOD, field: value})
    assert len(str(refusal.value)) < 100
    with pytest.raises(ValueError, match=field):
        parse({name: known for name, known in GOOD.items() if name != field})


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD, "x"]), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_input_is_a_request_or_a_value_error(payload: bytes) -> None:
    try:
        SyncRequest.parse(payload, version=VERSION)
    except ValueError:
        return
    assert json.loads(payload)["version"] == VERSION


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        SyncRequest.parse(b"[" * 100_000, version=VERSION)


def sessions_of(store: Store) -> str:
    return store.banner.split("  sessions")[1].split()[0]


def test_a_store_refuses_a_ring_without_room_and_continues() -> None:
    """A sender divides by the length of the ring: 0 ended the store."""
    with running("--session-listen-port", "0") as store, kv.Client(sessions_of(store)) as client:
        for ring_bytes in (0, 1, 1 << 40):
            request = {**GOOD, "stream": client._stream.number, "ring_bytes": ring_bytes}
            answer = json.loads(client.session.call(METHOD, json.dumps(request).encode()))
            assert "ring_bytes" in answer["error"]
        assert client.execute("PING") == "PONG"
