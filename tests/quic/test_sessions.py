"""Sessions with QUIC as the fallback between machines, as verbena.toml says it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl

import pytest
from support.rdma.link import wait_until

import verbena
from verbena import config, errors
from verbena.transport import Request
from verbena.transport.configured import quic_options, settings_from
from verbena.transport.direct import DirectListener
from verbena.transport.handshake.authority import Authority
from verbena.transport.handshake.tls import client_context
from verbena.transport.observe.metrics import prometheus
from verbena.transport.observe.metrics.table import METRICS

SECRET = "correct horse battery staple"


def echo(request: Request) -> bytes:
    return request.payload


def configuration(tls, more: str = "") -> config.Config:
    return config.loads(
        f"""
[network]
rdma_fallback = "quic"
[network.rdma]
recv_buffer_pool_size = 256
[tls]
certificate = "{tls.certificate}"
key = "{tls.key}"
ca = "{tls.authority}"
{more}
"""
    )


async def test_a_session_goes_by_quic(tls):
    """Calls of any size, one-sided work and bulk, on the wire that was asked for."""
    chosen = configuration(tls)
    assert settings_from(chosen).wires == ("shm", "quic")
    async with (
        await verbena.listen(
            "127.0.0.1:0", handlers={"echo": echo}, secret=SECRET, config=chosen
        ) as listener,
        await verbena.connect(listener.address, secret=SECRET, config=chosen, wire="quic") as session,
    ):
        assert session.wire == "quic"
        for size in (0, 64, 5000, 3_000_000):
            payload = os.urandom(size)
            assert await session.call("echo", payload) == payload


async def test_the_metrics_page_shows_what_the_wire_counts(tls):
    """Its connections as a gauge, all else as events; a datagram of nonsense is one of them."""
    chosen = configuration(tls)
    async with (
        await verbena.listen("127.0.0.1:0", secret=SECRET, config=chosen) as listener,
        await verbena.connect(listener.address, secret=SECRET, config=chosen, wire="quic"),
    ):
        (offer,) = (offer for offer in listener._wire_listeners.offers if offer.name == "quic")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"nonsense", ("127.0.0.1", int(offer.address.rpartition(":")[2])))
        wire = next(wire for wire in listener.node.wires if wire.name == "quic")
        await asyncio.to_thread(wait_until, lambda: wire.context.counts["garbage"] == 1, "it to be counted")
        page = prometheus.render(METRICS, listener.node.snapshot()).splitlines()
        assert 'verbena_wire_connections{state="established",wire="quic"} 1' in page
        assert 'verbena_wire_connections{state="half_open",wire="quic"} 0' in page
        assert 'verbena_wire_events_total{event="handshakes",wire="quic"} 1' in page
        assert 'verbena_wire_events_total{event="garbage",wire="quic"} 1' in page


async def test_it_is_what_is_left_when_a_better_wire_breaks(tls):
    """A drill takes shared memory away: the session goes on by QUIC, and no call is lost."""
    chosen = configuration(tls, "[session]\nallow_drill = true\n")
    async with (
        await verbena.listen(
            "127.0.0.1:0", handlers={"echo": echo}, secret=SECRET, config=chosen
        ) as listener,
        await verbena.connect(listener.address, secret=SECRET, config=chosen) as session,
    ):
        assert session.wire == "shm"
        drilling = asyncio.ensure_future(session.node.drill("shm", rest_s=30, wait_s=0))
        for number in range(50):
            assert await session.call("echo", str(number).encode()) == str(number).encode()
        assert session.wire == "quic"
        await drilling


async def test_a_wire_is_dialled_by_its_scheme(tls, monkeypatch):
    """quic://host:port, without a session."""
    for name in ("certificate", "key", "authority"):
        monkeypatch.setenv(f"VERBENA_QUIC_TLS_{name.upper()}", str(getattr(tls, name)))
    async with DirectListener("quic://127.0.0.1:0", private_data=b"welcome") as listener:
        accepting = asyncio.ensure_future(listener.accept())
        async with await verbena.dial(listener.url, private_data=b"hello") as client:
            assert client.private_data == b"welcome"
            server = await accepting
            window = server.pd.allocate(64)
            await client.qp.write(b"one-sided", window.remote[:9])
            assert bytes(memoryview(window)[:9]) == b"one-sided"
    with pytest.raises(errors.AddressError):
        await verbena.dial("quic://127.0.0.1:9", timeout_s=2)


def test_the_files_of_sessions_are_those_of_quic(tls):
    """One [tls] section for both; without an authority there is no QUIC."""
    options = quic_options(configuration(tls, "require_client_certificate = true\nrevoked = '/list'\n"))
    assert options is not None
    assert options.tls is not None
    assert (options.tls.certificate, options.tls.require_peer_certificate) == (str(tls.certificate), True)
    assert options.revoked == "/list"
    assert quic_options(config.Config()) is None


def test_revoked_certificates_are_refused_by_the_hello_too(tmp_path):
    """A TLS context with a list of revoked certificates refuses them; a file that is no list is named."""
    authority = Authority.create(tmp_path)
    context = client_context(ca=authority.certificate, revoked=authority.revoked)
    assert context.verify_flags & ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    for wrong in (authority.key, authority.certificate):
        with pytest.raises(errors.StateError, match="revoked") as caught:
            client_context(ca=authority.certificate, revoked=wrong)
        assert caught.value.code == "tls_file"
