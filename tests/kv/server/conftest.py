"""Fixtures: stores as `verbena serve` starts them, and clients of redis-py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import redis
from support.kv.kv_store import StartStore, Store, running


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """One store for all tests of a file; each test flushes it first."""
    with running() as started:
        yield started


@pytest.fixture
def client(store: Store) -> Iterator[redis.Redis]:
    with store.client(decode_responses=True) as connected:
        connected.flushall()
        yield connected


@pytest.fixture
def start() -> Iterator[StartStore]:
    """Starts stores with additional flags."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(running(*arguments, **options))
