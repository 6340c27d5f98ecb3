"""The hello over real sockets: both ends, TLS, and peers that stall, disconnect or send garbage."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.certificates import Authority

from verbena.errors import DeniedError, RejectedError, TimedOutError, VerbenaError, setup_error
from verbena.transport.handshake.exchange import dial, probe, serve
from verbena.transport.handshake.hello import (
    Agreement,
    Authentication,
    ClientHello,
    HelloClient,
    NodeInfo,
    Offer,
    ProbeReply,
    ServerHello,
    WireOffer,
)
from verbena.transport.handshake.tls import client_context, peer_identity, server_context

ANNA, BERT = NodeInfo("anna", 1, "host"), NodeInfo("bert", 2, "host")
SECRET = Authentication("secret", b"sixteen bytes ok")
OFFER = Offer(
    session_id=5, wires=(WireOffer("shm", "x"),), window=8, max_message_bytes=1024, resume_timeout_s=3
)

Outcome = Agreement | HelloClient | VerbenaError


class Server:
    """Serves hellos on a loopback port and records the result of each."""

    def __init__(self, **options: Any) -> None:
        self.outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        self.auth: Authentication = options.pop("auth", SECRET)
        self.timeout_s: float = options.pop("timeout_s", 10)
        self.decide: Callable[[HelloClient], Any] = options.pop("decide", lambda client: OFFER)
        self.port = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = writer.get_extra_info("ssl_object")
        hello = ServerHello(
            BERT, auth=self.auth, secure=tls is not None, peer_identity=peer_identity(tls), peer="anna:1"
        )
        try:
            self.outcomes.put_nowait(
                await serve(reader, writer, hello, self.decide, timeout_s=self.timeout_s)
            )
        except VerbenaError as error:
            self.outcomes.put_nowait(error)

    async def failure(self) -> VerbenaError:
        outcome = await self.outcomes.get()
        assert isinstance(outcome, VerbenaError)
        return outcome


@contextlib.asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[Server]:
    server = Server(**options)
    listener = await asyncio.start_server(server.take, "127.0.0.1", 0, ssl=tls)
    async with listener:
        server.port = listener.sockets[0].getsockname()[1]
        yield server


@contextlib.asynccontextmanager
async def impostor(act: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> AsyncIterator[int]:
    """A listener with the behaviour that the test defines."""
    listener = await asyncio.start_server(act, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1]


async def call(
    port: int, *, tls: ssl.SSLContext | None = None, auth: Authentication = SECRET, timeout_s: float = 10
) -> Agreement:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None
    )
    identity = peer_identity(writer.get_extra_info("ssl_object"))
    hello = ClientHello(
        ANNA, auth=auth, wires=["shm"], secure=tls is not None, peer_identity=identity, peer="bert:2"
    )
    try:
        return await dial(reader, writer, hello, timeout_s=timeout_s)
    finally:
        assert writer.is_closing()


async def refused(port: int, **options: Any) -> VerbenaError:
    with pytest.raises(VerbenaError) as caught:
        await call(port, **options)
    assert caught.value.peer == "bert:2"
    return caught.value


async def test_the_server_has_the_session_before_the_client() -> None:
    """Otherwise the client's first link could reach a server that does not know the session."""
    sent: list[bytes] = []
    when_agreed: list[int] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        write = writer.write
        writer.write = lambda data: (sent.append(data), write(data))  # type: ignore[method-assign]
        hello = ServerHello(BERT, auth=SECRET, secure=False, peer="anna:1")
        await serve(
            reader,
            writer,
            hello,
            lambda client: OFFER,
            timeout_s=10,
            agreed=lambda agreement: when_agreed.append(len(sent)),
        )

    async with impostor(take) as port:
        await call(port)
    assert when_agreed == [len(sent) - 1]


async def test_two_ends_agree_over_a_socket() -> None:
    async with listening() as server:
        mine, theirs = await call(server.port), await server.outcomes.get()
    assert isinstance(theirs, Agreement)
    assert (mine.key, mine.session_id) == (theirs.key, 5)
    assert (mine.peer_name, theirs.peer_name, mine.same_host) == ("bert", "anna", True)


async def test_a_probe_needs_no_decision_and_opens_no_session() -> None:
    async with listening(decide=lambda client: pytest.fail("a probe is not a caller")) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        hello = ClientHello(ANNA, auth=SECRET, purpose="probe")
        assert await probe(reader, writer, hello, timeout_s=10) == ProbeReply("bert", 2, "")
        outcome = await server.outcomes.get()
    assert isinstance(outcome, HelloClient)
    assert outcome.purpose == "probe"


async def test_the_server_may_reject_after_an_asynchronous_decision() -> None:
    async def decide(client: HelloClient) -> Offer:
        await asyncio.sleep(0)
        if client.name == "anna":
            raise setup_error("limit_exceeded", operation="accept", detail="128 sessions are enough")
        return OFFER

    async with listening(decide=decide) as server:
        error = await refused(server.port)
        assert (error.code, error.detail) == ("rejected", "the peer says: 128 sessions are enough")
        assert (await server.failure()).code == "limit_exceeded"


async def test_a_wrong_secret_is_refused_at_both_ends() -> None:
    async with listening() as server:
        error = await refused(server.port, auth=Authentication("secret", b"x" * 16))
        assert (error.code, type(error)) == ("credentials", DeniedError)
        assert (await server.failure()).code == "credentials"


async def test_a_client_without_secret_is_refused_at_both_ends() -> None:
    async with listening() as server:
        assert (await refused(server.port, auth=Authentication())).code == "credentials"
        assert (await server.failure()).code == "credentials"


async def test_a_downgrade_is_refused_at_both_ends() -> None:
    async with listening(auth=Authentication()) as server:
        assert (await refused(server.port)).code == "downgrade"
        assert (await server.failure()).code == "downgrade"


# Stalling and disconnecting


async def test_a_client_that_sends_a_byte_now_and_then_is_cut_off() -> None:
    """The time limit is for the whole hello: a byte now and then does not extend it."""
    async with listening(timeout_s=0.2) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        start = ClientHello(ANNA, auth=SECRET, wires=["shm"]).start()

        async def drip() -> None:
            for byte in start:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        error = await server.failure()
        assert (error.code, type(error), error.peer) == ("connect_timeout", TimedOutError, "anna:1")
        assert "stopped before HELLO" in error.detail
        with contextlib.suppress(OSError):
            assert await reader.read() == b""
        assert not dripping.done()
        dripping.cancel()
        writer.close()


async def test_a_client_that_stops_after_its_hello_is_cut_off() -> None:
    async with listening(timeout_s=0.1) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(ClientHello(ANNA, auth=SECRET).start())
        assert "stopped before PROOF" in (await server.failure()).detail
        writer.close()


async def test_a_server_that_never_answers_is_given_up() -> None:
    stop = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await stop.wait()
        writer.close()

    async with impostor(stall) as port:
        error = await refused(port, timeout_s=0.1)
        stop.set()
    assert (error.code, type(error)) == ("connect_timeout", TimedOutError)
    assert "stopped before CHALLENGE" in error.detail


async def test_an_endless_stream_is_refused_at_its_first_frame() -> None:
    """Nothing is buffered: the header of the first frame is refused."""

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while not writer.is_closing():
                writer.write(b"VRBN\x02\xff\xff\xff\xff" + bytes(65536))
                await writer.drain()

    async with impostor(flood) as port:
        error = await refused(port)
    assert error.code == "bad_message"
    assert "4294967295 bytes" in error.detail


@pytest.mark.parametrize("greeting", [b"", b"VRBN", b"SSH-2.0-OpenSSH_9.2\r\n", b"VRBN\x02\0\0\0\x02{}"])
async def test_a_server_of_another_protocol_is_refused(greeting: bytes) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(9)
        writer.write(greeting)
        writer.close()

    async with impostor(greet) as port:
        error = await refused(port)
    assert error.code in ("rejected", "bad_message")


async def test_a_connection_that_is_reset_is_a_rejection() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()  # unread bytes make the kernel send a reset

    async with impostor(reset) as port:
        error = await refused(port)
    assert isinstance(error, RejectedError)
    assert "before CHALLENGE" in error.detail


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.0\r\n\r\n", b"VRBN\x03\0\0\0\x02{}", b"VRBN\x01\0\0"])
async def test_a_client_of_another_protocol_is_refused(data: bytes) -> None:
    async with listening() as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        writer.write_eof()
        assert (await server.failure()).code in ("rejected", "bad_message")
        writer.close()


async def test_a_cancelled_dial_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def wait_for_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        gone.set()
        writer.close()

    async with impostor(wait_for_end) as port:
        dialling = asyncio.create_task(call(port))
        await asyncio.sleep(0.05)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await gone.wait()


# Inside TLS


async def test_certificates_authenticate_both_ends(authority: Authority) -> None:
    one = authority.issue("io client", names="DNS:anna.example")
    two = authority.issue("io server")
    tls = server_context(certificate=two.certificate, key=two.key, ca=authority.ca)
    async with listening(tls, auth=Authentication("tls")) as server:
        context = client_context(ca=authority.ca, certificate=one.certificate, key=one.key)
        mine = await call(server.port, tls=context, auth=Authentication("tls"))
        theirs = await server.outcomes.get()
    assert isinstance(theirs, Agreement)
    assert (mine.peer_identity, theirs.peer_identity) == ("DNS:localhost", "DNS:anna.example")
    assert mine.key == theirs.key


async def test_a_secret_works_inside_tls(authority: Authority) -> None:
    pair = authority.issue("io server 2")
    tls = server_context(certificate=pair.certificate, key=pair.key, require_client_certificate=False)
    async with listening(tls) as server:
        mine = await call(server.port, tls=client_context(ca=authority.ca))
        theirs = await server.outcomes.get()
        assert isinstance(theirs, Agreement)
        assert mine.key == theirs.key
        wrong = Authentication("secret", b"x" * 16)
        error = await refused(server.port, tls=client_context(ca=authority.ca), auth=wrong)
        assert error.code == "credentials"


async def test_a_client_with_a_rejected_certificate_gets_a_tls_error(authority: Authority) -> None:
    """asyncio's server closes without sending the alert; the client still reports that TLS is the likely
    cause."""
    pair = authority.issue("io server 3")
    tls = server_context(certificate=pair.certificate, key=pair.key, ca=authority.ca)
    async with listening(tls, auth=Authentication("tls")) as server:
        error = await refused(server.port, tls=client_context(ca=authority.ca), auth=Authentication("tls"))
    assert error.code == "tls_handshake"
    assert "the server requires a client certificate, and this end has none" in error.causes


async def test_a_client_without_tls_gets_a_tls_error(authority: Authority) -> None:
    pair = authority.issue("io server 4")
    tls = server_context(certificate=pair.certificate, key=pair.key, require_client_certificate=False)
    async with listening(tls) as server:
        error = await refused(server.port)
    assert error.code in ("bad_message", "rejected")


async def test_a_server_without_tls_is_refused_by_a_client_with_it(authority: Authority) -> None:
    """The TLS handshake fails before the hello begins, and both ends report it."""
    async with listening() as server:
        with pytest.raises((ssl.SSLError, OSError)):
            await call(server.port, tls=client_context(ca=authority.ca))
        error = await server.failure()
    assert error.code == "bad_message"
    assert "speaks TLS" in error.detail
