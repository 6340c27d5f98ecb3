"""The wall clock jumps by years and by hours while sessions are open, which do not notice. Only the validity
of certificates depends on it, in new handshakes. The guest's clock is set, so these tests run there only."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.certificates import Authority

import verbena
from verbena import errors
from verbena.transport import Listener, Request, Session, SessionState, Settings
from verbena.transport.handshake.tls import client_context, server_context
from verbena.transport.opening import Opening
from verbena.verbs import IwarpOptions, QuicOptions, Tls

SECRET = b"correct horse battery staple"
ADDRESS = "10.0.2.15"
# Far more than any limit of a session in either direction, and past 2038 in one.
YEARS, HOURS = 30 * 365 * 86400, -12 * 3600
SETTINGS = Settings(
    secret=SECRET,
    recv_buffer_pool_size=256,
    devices={"ibv": "rxe0"},
    heartbeat_interval_ms=100,
    retry_delay_ms=100,
)


class Clock:
    """The wall clock, to be set and restored."""

    def __init__(self) -> None:
        self._true = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()

    def jump(self, seconds: float) -> None:
        time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + seconds)

    def restore(self) -> None:
        time.clock_settime(time.CLOCK_REALTIME, self._true + time.monotonic())


@pytest.fixture
def clock(in_the_testbed: None) -> Iterator[Clock]:
    clock = Clock()
    try:
        yield clock
    finally:
        clock.restore()


@pytest.fixture(params=[YEARS, HOURS], ids=["years ahead", "hours back"])
def jump(clock: Clock, request: pytest.FixtureRequest) -> Callable[[], None]:
    return lambda: clock.jump(request.param)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), days=20_000)


class Server:
    """Handlers that answer at once, or when they are let go; each counts its runs."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.runs: list[str] = []

    def echo(self, request: Request) -> bytes:
        self.runs.append("echo")
        return request.payload

    async def wait(self, request: Request) -> bytes:
        self.runs.append("wait")
        await self.let_go.wait()
        return request.payload

    async def listen(self, settings: Settings = SETTINGS, **options: object) -> Listener:
        handlers = {"echo": self.echo, "wait": self.wait}
        return await verbena.listen(f"{ADDRESS}:0", handlers=handlers, config=settings, **options)


async def until(condition: Callable[[], bool]) -> None:
    """Returns when it holds; a test fails if that takes a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def is_well(session: Session) -> None:
    """It carries calls, and its deadlines are as long as they say: not for hours, and not at once."""
    assert await session.call("echo", b"on", timeout_s=60) == b"on"
    started = time.monotonic()
    with pytest.raises(errors.TimedOutError):
        await session.call("wait", timeout_s=0.5)
    with pytest.raises(errors.TimedOutError):
        await asyncio.to_thread(session.sync.call, "wait", timeout_s=0.5)
    assert time.monotonic() - started >= 1.0


@pytest.mark.parametrize("wire", ["shm", "ibv", "iwarp", "quic"])
async def test_a_session_and_its_calls_go_on(wire, jump, authority):
    """With calls in flight under a deadline, awaited and blocking: heartbeats go on, no link is lost, and
    what was waiting is answered once."""
    chosen = replace(SETTINGS, wires=(wire,))
    if wire == "quic":
        pair = authority.issue("node", names=f"IP:{ADDRESS}")
        files = Tls(certificate=pair.certificate, key=pair.key, authority=authority.ca)
        chosen = replace(chosen, quic=QuicOptions(tls=files))
    server = Server()
    async with (
        await server.listen(chosen) as listener,
        await verbena.connect(listener.address, wire=wire, config=chosen) as session,
    ):
        (served,) = listener.sessions
        await until(lambda: served.state is SessionState.CONNECTED)
        changes: list[SessionState] = []
        for end in (session, served):
            end._watchers.add(changes.append)
        waiting = asyncio.ensure_future(session.call("wait", b"far", timeout_s=120))
        blocking = asyncio.ensure_future(
            asyncio.to_thread(session.sync.call, "wait", b"blocking", timeout_s=120)
        )
        await until(lambda: server.runs == ["wait", "wait"])
        jump()
        await is_well(session)
        assert not waiting.done()
        assert not blocking.done()
        server.let_go.set()
        assert await waiting == b"far"
        assert await blocking == b"blocking"
        assert server.runs == ["wait", "wait", "echo", "wait", "wait"]
        assert changes == []
        assert session._native.links == served._native.links == 1


@pytest.mark.parametrize("wire", ["ibv", "iwarp"])
async def test_a_lost_link_is_resumed(wire, jump):
    """The clock jumps while the client waits to dial again and the listener for it: neither gives up, neither
    waits for hours, and the call in flight is answered by one run of its handler."""
    chosen = replace(SETTINGS, wires=(wire,))
    server = Server()
    async with (
        await server.listen(chosen) as listener,
        await verbena.connect(listener.address, wire=wire, config=chosen) as session,
    ):
        (served,) = listener.sessions
        waiting = asyncio.ensure_future(session.call("wait", b"once", timeout_s=120))
        await until(lambda: server.runs == ["wait"])
        session.break_link(rest_s=0.5)
        assert await asyncio.to_thread(session.sync.wait_for, SessionState.DISCONNECTED, 60)
        assert await asyncio.to_thread(served.sync.wait_for, SessionState.DISCONNECTED, 60)
        jump()
        assert await asyncio.to_thread(session.sync.wait_for, SessionState.CONNECTED, 60)
        server.let_go.set()
        assert await waiting == b"once"
        assert server.runs == ["wait"]
        assert session._native.links == 2


async def test_a_new_session_opens(jump):
    """A hello knows no time: it opens beside one that is there, whose peer restarted in no one's eyes."""
    server = Server()
    async with (
        await server.listen() as listener,
        await verbena.connect(listener.address, wire="iwarp", config=SETTINGS) as old,
    ):
        jump()
        async with verbena.connect(listener.address, wire="iwarp", config=SETTINGS) as new:
            assert new.peer_epoch == old.peer_epoch
            for session in (old, new):
                await is_well(session)
        assert listener.refused == {}


class Recorder:
    """Stands between a client and a listener, and keeps what the client sent."""

    def __init__(self, listener: Listener) -> None:
        host, _, port = listener.address.rpartition(":")
        self._target = (host, int(port))
        self.hello = b""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, ahead = await asyncio.open_connection(*self._target)

        async def pass_on() -> None:
            while data := await reader.read(4096):
                self.hello += data
                ahead.write(data)
            ahead.close()

        passing = asyncio.ensure_future(pass_on())
        while data := await behind.read(4096):
            writer.write(data)
        writer.close()
        await passing


async def test_a_recorded_hello_opens_nothing_at_the_hour_it_was_recorded(clock):
    """Both ends' nonces keep a hello fresh: with the clock set to the time at which it was sent, and a day
    later, a replay is refused with a reason and counted; the session that it opened continues."""
    server = Server()
    async with await server.listen(replace(SETTINGS, wires=("ibv",))) as listener:
        recorder = Recorder(listener)
        async with await asyncio.start_server(recorder.take, ADDRESS, 0) as relay:
            port = relay.sockets[0].getsockname()[1]
            chosen = replace(SETTINGS, wires=("ibv",))
            async with verbena.connect(f"{ADDRESS}:{port}", wire="ibv", config=chosen) as session:
                hello = recorder.hello
                assert hello.startswith(b"VRBN")
                for number, seconds in enumerate((HOURS, -2 * HOURS, 86400), 1):
                    clock.jump(seconds)
                    reader, writer = await asyncio.open_connection(*recorder._target)
                    writer.write(hello)
                    answer = await reader.read()
                    writer.close()
                    assert b"credentials" in answer
                    await until(lambda wanted=number: listener.refused == {"credentials": wanted})
                    assert len(listener.sessions) == 1
                await is_well(session)


@pytest.mark.parametrize("outlived", ["listener", "client"])
async def test_certificates_are_checked_in_new_handshakes_only(outlived, clock, authority):
    """A session with TLS outlives its certificates. A new handshake is refused by the end that sees that the
    other's certificate has expired or is not valid yet; the client knows why, and the listener counts it if
    it refused. When the clock is right again, connections succeed."""
    long, short = (authority.issue(str(d), names=f"IP:{ADDRESS}", days=d) for d in (20_000, 2))
    theirs, ours = (short, long) if outlived == "listener" else (long, short)
    wire = IwarpOptions(tls=Tls(certificate=long.certificate, key=long.key, authority=authority.ca))
    chosen = replace(SETTINGS, wires=("iwarp",), iwarp=wire)
    welcoming = server_context(certificate=theirs.certificate, key=theirs.key, ca=authority.ca)
    calling = client_context(certificate=ours.certificate, key=ours.key, ca=authority.ca)

    def connect() -> Opening[Session]:
        return verbena.connect(listener.address, wire="iwarp", config=chosen, tls=calling)

    server = Server()
    async with await server.listen(chosen, tls=welcoming) as listener, connect() as session:
        # In the end neither certificate is valid yet, and the client sees it first.
        for seconds in (YEARS, HOURS - YEARS):
            clock.jump(seconds)
            with pytest.raises(errors.DeniedError) as refusal:
                await connect()
            assert refusal.value.code == "tls_expired"
            assert listener.refused == ({"tls_expired": 1} if outlived == "client" else {})
            await is_well(session)
        clock.restore()
        async with connect() as new:
            await is_well(new)
        await is_well(session)
        assert session._native.links == 1
