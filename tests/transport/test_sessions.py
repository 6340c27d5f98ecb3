"""Sessions between two nodes: calls, one-sided operations and bulk transfers, on every available wire."""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from array import array
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.certificates import Authority, Pair

import verbena
from verbena import errors
from verbena.config import loads
from verbena.transport import Listener, RemoteRegion, Request, Session, SessionState, Settings
from verbena.transport.failover.links import accept_link
from verbena.transport.handshake.tls import client_context, server_context
from verbena.verbs import Access

SECRET = "correct horse battery staple"
WIRES = ["shm", "iwarp"]


def echo(request: Request) -> bytes:
    return request.payload


async def slow(request: Request) -> bytes:
    await asyncio.sleep(float(request.payload or b"60"))
    return b"at last"


def fail(request: Request) -> bytes:
    raise ValueError("no such thing")


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds. Fails the test after ten seconds."""
    deadline = asyncio.get_running_loop().time() + 10
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    handlers: dict[str, Any] = {"echo": echo, "slow": slow, "fail": fail}
    async with verbena.listen("127.0.0.1:0", handlers=handlers, secret=SECRET) as listening:
        yield listening


@pytest.fixture(params=WIRES)
async def session(request: pytest.FixtureRequest, listener: Listener) -> AsyncIterator[Session]:
    async with verbena.connect(listener.address, secret=SECRET, wire=request.param) as connected:
        assert connected.wire == request.param
        yield connected


async def test_a_call_is_answered(session: Session) -> None:
    """For any payload size: empty, small, or too long for a message buffer."""
    for size in (0, 1, 64, 4000, 4096, 5_000_000):
        payload = os.urandom(size)
        assert await session.call("echo", payload) == payload


async def test_calls_run_side_by_side(session: Session) -> None:
    """A slow handler does not delay other calls."""
    waiting = asyncio.ensure_future(session.call("slow", b"0.5"))
    answers = await asyncio.gather(*(session.call("echo", str(i).encode()) for i in range(500)))
    assert answers == [str(i).encode() for i in range(500)]
    assert not waiting.done()
    assert await waiting == b"at last"


async def test_an_error_of_a_handler_is_raised_by_call(session: Session) -> None:
    """The error contains the handler's message, and the session continues."""
    with pytest.raises(errors.RemoteError, match="ValueError: no such thing"):
        await session.call("fail")
    with pytest.raises(errors.UnsupportedError, match="echo, slow, fail"):
        await session.call("misspelt")
    assert await session.call("echo", b"on") == b"on"


async def test_a_call_that_takes_too_long_is_given_up(session: Session, listener: Listener) -> None:
    """The caller gets a TimedOutError, and the handler at the other end is cancelled."""
    with pytest.raises(errors.TimedOutError, match=r"no answer within 0\.05 s"):
        await session.call("slow", timeout_s=0.05)
    (served,) = listener.sessions
    await until(lambda: served._native.serving == 0)
    assert await session.call("echo", b"on") == b"on"


async def test_a_cancelled_call_cancels_the_handler(session: Session, listener: Listener) -> None:
    """The handler at the other end is cancelled, as after a time-out."""
    call = asyncio.ensure_future(session.call("slow"))
    (served,) = listener.sessions
    await until(lambda: served._native.serving == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: served._native.serving == 0)


async def test_the_listener_can_call_too(listener: Listener) -> None:
    """Both ends of a session can call."""
    answers: list[bytes] = []

    async with verbena.connect(listener.address, secret=SECRET, handlers={"name": lambda request: b"client"}):
        (served,) = listener.sessions
        answers.append(await served.call("name"))
    assert answers == [b"client"]


def test_a_thread_without_a_loop_can_call() -> None:
    """verbena.sync needs no asyncio on the caller's side."""
    ready: list[Listener] = []
    started, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}, secret=SECRET) as listening:
            ready.append(listening)
            started.set()
            await asyncio.to_thread(stop.wait)

    server = threading.Thread(target=lambda: asyncio.run(serve()))
    server.start()
    try:
        assert started.wait(10)
        with verbena.sync.connect(ready[0].address, secret=SECRET) as session:
            for size in (0, 64, 100_000):
                payload = os.urandom(size)
                assert session.call("echo", payload, timeout_s=10) == payload
            with pytest.raises(errors.UnsupportedError):
                session.call("misspelt")
    finally:
        stop.set()
        server.join()


async def test_one_sided_work_needs_no_handler(session: Session, listener: Listener) -> None:
    """Reads, writes and atomics work on memory that the peer has exposed."""
    region = listener.node.allocate(1 << 16)
    remote = region.remote
    memory = memoryview(region)
    await session.write(remote[100:], b"written")
    assert bytes(memory[100:107]) == b"written"
    memory[200:203] = b"abc"
    assert await session.read(remote[200:203]) == b"abc"
    assert await session.fetch_add(remote[8:16], 5) == 0
    assert await session.fetch_add(remote[8:16], -1) == 5
    assert await session.compare_swap(remote[8:16], 4, 77) == 4
    assert await session.compare_swap(remote[8:16], 4, 99) == 77
    assert int.from_bytes(memory[8:16], "little") == 77
    assert remote.from_bytes(remote[8:16].to_bytes()) == remote[8:16]


async def test_a_thread_writes_and_reads_any_contiguous_memory(session: Session, listener: Listener) -> None:
    """Any item type and length, also longer than a message buffer. Memory with gaps and too many bytes are
    refused."""
    region = listener.node.allocate(1 << 16)
    remote = region.remote

    def work() -> None:
        sync = session.sync
        for data in (array("d", [1.5, -2.0]), memoryview(b"abcd")[1:3], bytearray(50_000), b""):
            sync.write(remote[64:], data)
            assert sync.read(remote[64 : 64 + memoryview(data).nbytes]) == bytes(memoryview(data).cast("B"))
        with pytest.raises(ValueError, match=r"write: buffer is not C-contiguous.*ascontiguousarray"):
            sync.write(remote, memoryview(b"abcd")[::2])
        with pytest.raises(TypeError, match="write: buffer is int, not a bytes-like object"):
            sync.write(remote, 5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="read: remote is int, not a RemoteRegion"):
            sync.read(5)  # type: ignore[arg-type]
        with pytest.raises(BufferError, match="read_into: buffer is read-only"):
            sync.read_into(remote[:4], b"abcd")
        with pytest.raises(errors.StateError, match="9 bytes in a region of 8"):
            sync.write(remote[:8], bytes(9))
        stale = RemoteRegion(remote.addr, remote.length, remote.key, remote.epoch ^ 1)
        for operation in (lambda: sync.write(stale, b"x"), lambda: sync.read(stale)):
            with pytest.raises(errors.DeniedError, match="an earlier run"):
                operation()

    await asyncio.to_thread(work)


async def test_a_region_is_limited_to_its_access_and_session(session: Session, listener: Listener) -> None:
    """Read-only, another session's, revoked, out of bounds: each is refused, and the session continues."""
    memory = bytearray(4096)
    read_only = listener.node.expose(memory)
    assert await session.read(read_only.remote[:4]) == bytes(4)
    with pytest.raises(errors.DeniedError):
        await session.write(read_only.remote, b"x")
    with pytest.raises(errors.DeniedError, match="session \\[region_denied") as refused:
        await asyncio.to_thread(session.sync.write, read_only.remote, b"\xff\xfe")
    assert refused.value.detail == ""
    with pytest.raises(errors.StateError):
        read_only.remote[:5000]
    async with verbena.connect(listener.address, secret=SECRET) as other:
        owner = next(s for s in listener.sessions if s.id == other.id)
        private = listener.node.expose(bytearray(64), access=Access.ALL, session=owner)
        assert await other.read(private.remote[:8]) == bytes(8)
        with pytest.raises(errors.DeniedError):
            await session.read(private.remote[:8])
    read_only.close()
    with pytest.raises(errors.ClosedError):
        _ = read_only.remote
    assert await session.call("echo", b"on") == b"on"


async def test_a_revoked_region_is_refused_and_the_session_recovers(
    session: Session, listener: Listener
) -> None:
    """The stale key breaks the link, as in verbs, and the session reconnects by itself."""
    region = listener.node.allocate(4096)
    remote = region.remote
    assert await session.read(remote[:4]) == bytes(4)
    region.close()
    with pytest.raises(errors.DeniedError):
        await session.read(remote[:4])
    assert await session.call("echo", b"on", timeout_s=10) == b"on"
    with pytest.raises(errors.DeniedError):
        await session.read(remote[:4])


async def test_bulk_in_both_directions(session: Session, listener: Listener) -> None:
    """write() and read_into() transfer a buffer of any size and report progress up to the last byte."""
    region = listener.node.allocate(20_000_000)
    source, back = os.urandom(19_999_999), bytearray(19_999_999)
    told: list[int] = []
    await session.write(region.remote, source, progress=told.append)
    assert told[-1] == len(source)
    assert bytes(memoryview(region)[: len(source)]) == source
    await session.read_into(region.remote[: len(back)], back)
    assert bytes(back) == source
    with pytest.raises(errors.StateError):
        await session.write(region.remote[:100], source)


async def test_a_broken_wire_is_replaced_and_nothing_is_lost(session: Session, listener: Listener) -> None:
    """Calls in flight when the link breaks are answered on the next link, once."""
    executed: list[bytes] = []
    listener_session = listener.sessions[0]
    listener_session._handlers.update(
        {
            number: (name, lambda r: executed.append(r.payload) or r.payload)  # type: ignore[func-returns-value]
            for number, (name, _) in listener_session._handlers.items()
            if name == "echo"
        }
    )
    breaking = True

    async def breaker() -> None:
        while breaking:
            await asyncio.sleep(0.02)
            session.break_link()

    task = asyncio.ensure_future(breaker())
    payloads = [str(i).encode() for i in range(2000)]
    answers = []
    for start in range(0, len(payloads), 50):
        batch = payloads[start : start + 50]
        answers += await asyncio.gather(*(session.call("echo", p, timeout_s=30) for p in batch))
    breaking = False
    await task
    assert answers == payloads
    assert sorted(executed) == sorted(payloads)
    assert session._native.links > 1


async def test_a_session_steps_down_and_up_again(listener: Listener) -> None:
    """While a wire is down the session uses the next one; then it returns to the better wire."""
    hasty = Settings(retry_delay_ms=20, upgrade_delay_ms=500)
    async with verbena.connect(listener.address, secret=SECRET, config=hasty) as session:
        assert session.wire == "shm"
        states = [SessionState.CONNECTED]

        async def watch() -> None:
            async for state in session.states():
                states.append(state)

        watching = asyncio.ensure_future(watch())
        session.break_link(rest_s=2.0)
        await until(lambda: session.wire == "iwarp")
        assert await session.call("echo", b"by another wire", timeout_s=20) == b"by another wire"
        assert session.wire == "iwarp"
        assert "shm" in repr(session)
        while session.wire != "shm":
            assert await session.call("echo", b"on", timeout_s=20) == b"on"
            await asyncio.sleep(0.05)
        watching.cancel()
        assert SessionState.DISCONNECTED in states


async def test_the_farewell_waits_for_a_link_that_is_being_made(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may have its link before the listener, which is closed at that moment: the client receives
    the farewell, and does not reconnect to a listener that no longer knows it."""
    made, closing = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def accept_slowly(*args: Any) -> Any:
        link = await accept_link(*args)
        loop.call_soon_threadsafe(made.set)
        await asyncio.to_thread(closing.wait)
        return link

    monkeypatch.setattr("verbena.transport.listening.listener.accept_link", accept_slowly)
    session = await verbena.connect(listener.address, secret=SECRET)
    await made.wait()
    (served,) = listener.sessions
    assert served._link is None
    closed = asyncio.ensure_future(served.close())
    await until(lambda: served.closed)
    closing.set()
    await closed
    await until(lambda: session.closed)
    assert session.state is SessionState.DISCONNECTED


async def test_a_demanded_wire_is_never_replaced(listener: Listener) -> None:
    """The requested wire is used, or connect() fails."""
    with pytest.raises(errors.UnavailableError, match="ibv was requested"):
        await verbena.connect(listener.address, secret=SECRET, wire="ibv")


async def test_a_wrong_secret_gets_nothing(listener: Listener) -> None:
    """The hello is refused and counted, and other sessions are not affected."""
    async with verbena.connect(listener.address, secret=SECRET) as session:
        for wrong in ("another secret of some length", ""):
            with pytest.raises(errors.DeniedError):
                await verbena.connect(listener.address, secret=wrong)
        assert sum(listener.refused.values()) == 2
        assert await session.call("echo", b"on") == b"on"


async def test_a_wrong_certificate_gets_nothing(authority: Authority, stranger: Authority) -> None:
    """Also an expired one: the handshake is refused with the reason and counted; other sessions are not
    affected."""
    pair = authority.issue("one of us")
    server = server_context(certificate=pair.certificate, key=pair.key, ca=authority.ca)

    def calling(pair: Pair) -> ssl.SSLContext:
        context = client_context(ca=authority.ca)
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    async with (
        await verbena.listen("127.0.0.1:0", handlers={"echo": echo}, tls=server) as listener,
        await verbena.connect(listener.address, tls=calling(pair)) as session,
    ):
        for caller, told, counted in (
            (authority.issue("over", days=-1), "certificate expired", "tls_expired"),
            (stranger.issue("nobody's"), "unknown ca", "tls_handshake"),
        ):
            with pytest.raises(errors.DeniedError, match=told):
                await verbena.connect(listener.address, tls=calling(caller))
            assert listener.refused.pop(counted) == 1
        assert listener.refused == {}
        assert await session.call("echo", b"on") == b"on"


async def test_a_listener_without_authentication_accepts_loopback_only() -> None:
    """Without a secret or certificates a listener accepts only loopback addresses."""
    for address in ("0.0.0.0:0", ":0", "[::]:0"):
        with pytest.raises(errors.DeniedError, match="other machines"):
            await verbena.listen(address)
    async with verbena.listen("0.0.0.0:0", secret=SECRET) as listening:
        port = listening.address.rpartition(":")[2]
        async with verbena.connect(f"127.0.0.1:{port}", secret=SECRET, wire="tcp") as session:
            assert session.wire == "iwarp"


async def test_the_configuration_is_obeyed(listener: Listener) -> None:
    """Wires, limits and the secret come from verbena.toml unless an argument overrides them."""
    config = loads(f'[session]\nsecret = "{SECRET}"\n[network]\nrdma_fallback = "none"\n')
    async with verbena.connect(listener.address, config=config) as session:
        assert session.node.settings.wires == ("shm",)
        assert await session.call("echo", b"on") == b"on"


async def test_too_long_a_message_is_refused(listener: Listener) -> None:
    """The caller gets an error, and the session continues."""
    small = Settings(max_message_size=1 << 20)
    async with verbena.connect(listener.address, secret=SECRET, config=small) as session:
        with pytest.raises(errors.StateError, match="longer"):
            await session.call("echo", bytes(2 << 20))
        assert await session.call("echo", b"on") == b"on"


async def test_closing_ends_the_session_at_both_ends(listener: Listener) -> None:
    """Both ends of the session end; waiting calls get an error."""
    session = await verbena.connect(listener.address, secret=SECRET)
    (served,) = listener.sessions
    waiting = asyncio.ensure_future(session.call("slow"))
    await session.call("echo")
    await session.close()
    with pytest.raises(errors.ClosedError):
        await waiting
    with pytest.raises(errors.ClosedError):
        await session.call("echo")
    await until(lambda: served.closed and listener.sessions == [])


async def test_metrics_count_what_happened(session: Session, listener: Listener) -> None:
    """Operations and bytes are counted by wire, and the latency of each call is recorded."""
    region = listener.node.allocate(4096)
    for _ in range(10):
        await session.call("echo", b"x" * 100)
    await session.read(region.remote[:64])
    await session.write(region.remote, bytes(32))
    (values,) = session.metrics().values()
    assert values["send_ops"] >= 10
    assert values["recv_ops"] >= 10
    assert (values["read_ops"], values["read_bytes"]) == (1, 64)
    assert (values["write_ops"], values["write_bytes"]) == (1, 32)
    assert sum(values["call_ns"][1]) >= 10
    assert values["completion_errors"] == 0
