"""Fixtures: a store in its own process, one per test module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.kv.store import Store, serving_store


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with serving_store() as serving:
        yield serving
