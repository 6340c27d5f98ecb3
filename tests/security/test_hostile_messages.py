"""Hostile messages of the services: each parser raises its documented error, and nothing else."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verbena.errors import VerbenaError
from verbena.far import messages as far_messages
from verbena.integrations import dask_frames, file_messages
from verbena.registry.nodes import messages as registry_messages
from verbena.shards import envelope
from verbena.shards.cluster_map import ClusterMap
from verbena.shards.election import Standing

# Each parser of bytes from a peer, with the errors that its docstring names.
PARSERS: dict[str, tuple[Callable[[bytes], Any], type[Exception]]] = {
    "files": (file_messages.unpack, ValueError),
    "far memory": (far_messages.decode, ValueError),
    "registry nodes": (registry_messages.decode, registry_messages.BadMessage),
    "dask": (dask_frames.decode, ValueError),
    "envelope": (envelope.parse, VerbenaError),
    "cluster map": (ClusterMap.decode, VerbenaError),
    "standing": (lambda data: Standing.decode(data.decode("latin-1")), AssertionError),
}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
members = st.fixed_dictionaries(
    {},
    optional={
        name: values | st.lists(values, max_size=3)
        for name in ("members", "owners", "moves", "replicas", "epoch", "id", "slots")
    },
)
texts = (values | members).map(lambda value: json.dumps(value).encode())
hostile = st.one_of(
    st.binary(max_size=200),
    texts,
    texts.map(lambda text: len(text).to_bytes(4, "little") + text),
    st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=60)).map(
        lambda pair: pair[0].to_bytes(4, "little") + pair[1]
    ),
)
NESTED = b"[" * 100_000
ALWAYS = [
    NESTED,
    b'{"a":' * 100_000,
    len(NESTED).to_bytes(4, "little") + NESTED,
    b"9" * 100_000,
    b"\xff" * 1000,
    b"",
    b'{"members":[{"id":"a"}],"owners":[[5,"a"]],"moves":[],"replicas":{},"epoch":1}',
    b'{"members":[],"owners":[],"moves":[],"replicas":{"a":[]},"epoch":1}',
    b'{"members":[],"owners":[],"moves":[{"id":"a","slots":7}],"replicas":{},"epoch":1}',
    b'{"members":[],"owners":[],"moves":[],"replicas":{},"epoch":1e999}',
]


@pytest.mark.parametrize("name", PARSERS)
def test_a_hostile_message_gives_the_documented_error(name: str) -> None:
    parse, error = PARSERS[name]

    @given(hostile)
    @settings(max_examples=100)
    def attempt(data: bytes) -> None:
        _parse(parse, error, data)

    attempt()


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("data", ALWAYS, ids=range(len(ALWAYS)))
def test_a_deep_or_long_message_gives_the_documented_error(name: str, data: bytes) -> None:
    """Nesting that no recursive parser follows, numbers too long to convert, values of other types."""
    parse, error = PARSERS[name]
    _parse(parse, error, data)


def _parse(parse: Callable[[bytes], Any], error: type[Exception], data: bytes) -> None:
    with contextlib.suppress(error):
        parse(data)
