"""A memory node, and sessions with it on every wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.far_node import SECRET, Serving

import verbena
from verbena.transport import Session


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    node = Serving()
    yield node
    node.stop()


@pytest.fixture(params=["shm", "iwarp"])
def session(request: pytest.FixtureRequest, serving: Serving) -> Iterator[Session]:
    with verbena.sync.connect(serving.address, secret=SECRET, wire=request.param) as connected:
        yield connected
