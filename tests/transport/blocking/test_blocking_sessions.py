"""verbena.sync: sessions and listeners of programs without an event loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

import verbena
from verbena import errors, sync
from verbena.transport import Request
from verbena.verbs import Access

SECRET = "correct horse battery staple"


def echo(request: Request) -> bytes:
    return request.payload


def fail(request: Request) -> bytes:
    raise ValueError("no such thing")


def answer_nothing(request: Request) -> None:
    return None


def answer_wrongly(request: Request) -> int:
    return 5


@pytest.fixture
def listener() -> Iterator[sync.Listener]:
    handlers = {"echo": echo, "fail": fail, "nothing": answer_nothing, "wrong": answer_wrongly}
    with sync.listen("127.0.0.1:0", handlers=handlers, secret=SECRET) as listening:  # type: ignore[arg-type]
        yield listening


@pytest.fixture(params=["shm", "iwarp"])
def session(request: pytest.FixtureRequest, listener: sync.Listener) -> Iterator[sync.Session]:
    with sync.connect(listener.address, secret=SECRET, wire=request.param) as connected:
        yield connected


def test_a_program_without_a_loop_calls_and_serves(session: sync.Session) -> None:
    """Handlers are plain functions; any payload size; errors of handlers are raised by call()."""
    for size in (0, 1, 4096, 5_000_000):
        payload = os.urandom(size)
        assert session.call("echo", payload, timeout_s=30) == payload
    assert session.call("nothing") == b""
    with pytest.raises(errors.RemoteError, match="ValueError: no such thing"):
        session.call("fail")
    with pytest.raises(errors.RemoteError, match="TypeError"):
        session.call("wrong")
    with pytest.raises(errors.UnsupportedError, match="echo, fail, nothing, wrong"):
        session.call("misspelt")


def test_handlers_run_side_by_side() -> None:
    """A handler that waits for another call does not delay it; each gets the blocking form of its session."""
    meeting = threading.Barrier(8, timeout=20)
    forms: set[type] = set()

    def meet(request: Request) -> bytes:
        forms.add(type(request.session))
        meeting.wait()
        return b"met"

    answers: list[bytes] = []
    with (
        sync.listen("127.0.0.1:0", handlers={"meet": meet}) as listener,
        sync.connect(listener.address) as session,
    ):
        callers = [
            threading.Thread(target=lambda: answers.append(session.call("meet", timeout_s=20)))
            for _ in range(8)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(30)
    assert answers == [b"met"] * 8
    assert forms == {sync.Session}


def test_a_handler_may_call_the_peer_back() -> None:
    """A client has handlers too, and a handler may use its session."""

    def ask_back(request: Request) -> bytes:
        return request.session.call("name", timeout_s=10) + b", again"

    with (
        sync.listen("127.0.0.1:0", handlers={"ask": ask_back}) as asking,
        sync.connect(asking.address, handlers={"name": lambda request: b"client"}) as session,
    ):
        assert session.call("ask", timeout_s=20) == b"client, again"


def test_an_async_handler_is_refused() -> None:
    """It would never be awaited; the error names the function to use."""

    async def handler(request: Request) -> bytes:
        return b""

    with pytest.raises(errors.StateError, match=r"'later' is an async function: use verbena\.connect"):
        sync.listen("127.0.0.1:0", handlers={"later": handler})  # type: ignore[dict-item]


def test_one_sided_operations_of_any_size(session: sync.Session, listener: sync.Listener) -> None:
    """read, read_into and write move any number of bytes, and report progress up to the last one."""
    region = listener.node.allocate(20_000_000)
    for size in (0, 1, 4096, 4097, 19_999_999):
        data, back, told = os.urandom(size), bytearray(size), list[int]()
        session.write(region.remote, data, timeout_s=60, progress=told.append)
        session.read_into(region.remote, back, timeout_s=60, progress=told.append)
        assert back == data
        assert session.read(region.remote[:size], timeout_s=60) == data
        assert told[-1] == size
        assert told.count(size) >= 2
    assert session.fetch_add(region.remote[8:16], 3, timeout_s=10) == int.from_bytes(data[8:16], "little")


def test_both_forms_of_one_session_work(listener: sync.Listener) -> None:
    """`session.sync` of a blocking session is itself, so that code may take either form."""
    with sync.connect(listener.address, secret=SECRET) as session:
        assert session.sync is session
        assert isinstance(session, verbena.sync.Session)
        (served,) = listener.sessions
        assert isinstance(served, verbena.sync.Session)
        assert served.id == session.id
        assert session.wire in repr(session)


def test_close_ends_both_ends_and_serve_forever(listener: sync.Listener) -> None:
    """serve_forever() returns when the listener is closed; close() may be repeated."""
    session = sync.connect(listener.address, secret=SECRET)
    serving = threading.Thread(target=listener.serve_forever)
    serving.start()
    session.close()
    session.close()
    assert session.closed
    with pytest.raises(errors.ClosedError):
        session.call("echo")
    listener.close()
    serving.join(10)
    assert not serving.is_alive()


def test_a_region_of_the_listener_is_limited(session: sync.Session, listener: sync.Listener) -> None:
    """Rights are checked for long transfers as for short ones."""
    memory = bytearray(1 << 20)
    with listener.node.expose(memory, access=Access.REMOTE_READ) as region:
        remote = region.remote
        assert session.read(remote) == bytes(1 << 20)
        for size in (8, 1 << 20):
            with pytest.raises(errors.DeniedError):
                session.write(remote, bytes(size))
    assert region.closed
    for size in (8, 1 << 20):
        with pytest.raises(errors.DeniedError):
            session.read(remote[:size])
