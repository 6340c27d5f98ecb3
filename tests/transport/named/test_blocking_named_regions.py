"""Named regions in the blocking form."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy
import pytest

from verbena import errors, sync
from verbena.transport import RemoteArray
from verbena.verbs import Access


@pytest.fixture
def listener() -> Iterator[sync.Listener]:
    with sync.listen("127.0.0.1:0") as listening:
        yield listening


@pytest.fixture(params=["shm", "iwarp"])
def session(request: pytest.FixtureRequest, listener: sync.Listener) -> Iterator[sync.Session]:
    with sync.connect(listener.address, wire=request.param) as connected:
        yield connected


def test_arrays_are_published_pulled_and_replaced(listener: sync.Listener, session: sync.Session) -> None:
    listener.publish("weights", numpy.arange(6.0).reshape(2, 3))
    remote = session.region("weights")
    assert isinstance(remote, RemoteArray)
    assert session.pull(remote[1]).tolist() == [3, 4, 5]
    into = numpy.empty((2, 3))
    assert session.pull("weights", into=into) is into
    listener.publish("weights", b"other")
    assert session.pull("weights") == b"other"
    assert session.regions() == ["weights"]
    listener.unpublish("weights")
    with pytest.raises(errors.UnsupportedError, match="may use: none"):
        session.region("weights")


def test_atomics_work_on_elements(listener: sync.Listener, session: sync.Session) -> None:
    listener.publish("counters", numpy.zeros(2, dtype="i8"), access=Access.ALL)
    remote = session.region("counters")
    assert isinstance(remote, RemoteArray)
    assert [session.fetch_add(remote[1], 3) for _ in range(2)] == [0, 3]
    assert session.pull("counters").tolist() == [0, 6]


def test_watch_waits_for_changes(listener: sync.Listener, session: sync.Session) -> None:
    """In a loop of a thread; a time without a change is an error."""
    publication = listener.publish("weights", numpy.arange(3))
    versions = session.watch("weights", timeout_s=10)
    first = next(versions)
    timer = threading.Timer(0.05, publication.changed)
    timer.start()
    assert next(versions) > first
    with pytest.raises(TimeoutError):
        list(session.watch("weights", timeout_s=0.05))


def test_many_threads_pull_at_once(listener: sync.Listener, session: sync.Session) -> None:
    array = numpy.arange(10_000)
    listener.publish("weights", array)
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(bool((session.pull("weights") == array).all())))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 16


def test_pull_obeys_its_time(listener: sync.Listener, session: sync.Session) -> None:
    listener.publish("weights", numpy.zeros(4_000_000))
    session.pull("weights", timeout_s=30)
    with pytest.raises(TimeoutError):
        session.pull("weights", timeout_s=0)
