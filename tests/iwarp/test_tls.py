"""TLS on the iwarp wire: who gets in, who does not and why, and that what is on the line is encrypted."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support.certificates import Authority
from support.rdma import iwarp_tls, link
from support.rdma.iwarp_tls import issue

from verbena import errors, verbs
from verbena.verbs import IwarpOptions, Tls

pytestmark = pytest.mark.skipif(bool(iwarp_tls.MISSING), reason=iwarp_tls.MISSING)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> Tls:
    return issue(authority)


@contextlib.contextmanager
def opened(tls: Tls | None, **options: object) -> Iterator[link.End]:
    with verbs.open_device("iwarp:lo", options=IwarpOptions(tls=tls, **options)) as context:
        yield link.make_end(context)


def refusal(caller: Tls | None, listener: Tls | None, host: str = "127.0.0.1") -> errors.VerbenaError:
    """What the caller is told. The listener's program hears nothing of it."""
    with opened(caller) as a, opened(listener) as b, b.context.listen("") as waiting:
        port = waiting.address.rpartition(":")[2]
        with pytest.raises(errors.VerbenaError) as caught:
            a.context.connect_blocking(a.qp, f"{host}:{port}")
        with pytest.raises(errors.TimedOutError):
            waiting.accept_blocking(timeout_s=0.05)
        return caught.value


def test_both_ends_of_one_authority_talk(tls):
    """Bytes go both ways, the queue pair names its cipher, and there is no checksum on top of it."""
    with opened(tls) as a, opened(tls) as b:
        link.connect_managed(a, b)
        assert a.qp.capabilities["encryption"].startswith("TLS_AES_128_GCM")
        assert a.qp.capabilities["checksum"] == "none"
        content = link.pattern(300_000)
        source, target = a.region(content), b.region(len(content))
        a.qp.sync.write(source, target.remote)
        assert bytes(memoryview(target)) == content
        back = a.region(len(content))
        a.qp.sync.read(back, target.remote)
        assert bytes(memoryview(back)) == content


def test_checksums_may_be_asked_for_as_well(tls):
    """crc=True under TLS is heeded."""
    with opened(tls, crc=True) as a, opened(tls) as b:
        link.connect_managed(a, b)
        assert a.qp.capabilities["checksum"] == b.qp.capabilities["checksum"] == "crc32c"
        a.qp.sync.write(a.region(b"x" * 10_000), b.region(10_000).remote)


def test_queue_pairs_find_each_other_by_endpoints(tls):
    """Without the connection manager the peer's address is what its certificate must have."""
    with opened(tls) as a, opened(tls) as b:
        link.connect_endpoints(a, b)
        a.qp.sync.write(a.region(b"hello"), b.region(5).remote)
        assert a.qp.capabilities["encryption"].startswith("TLS_")


def test_a_name_is_verified_too(tls):
    """Called by a name, the certificate must have that name."""
    with (
        opened(tls) as a,
        opened(tls) as b,
        b.context.listen("127.0.0.1:0") as waiting,
        ThreadPoolExecutor(1) as pool,
    ):
        port = waiting.address.rpartition(":")[2]
        calling = pool.submit(a.context.connect_blocking, a.qp, f"localhost:{port}")
        waiting.accept_blocking(timeout_s=link.DEADLINE_S).accept_blocking(b.qp)
        assert calling.result(link.DEADLINE_S).state is verbs.ConnectionState.ESTABLISHED


def test_nothing_readable_is_on_the_wire(tls):
    """Who listens on the line sees TLS 1.3 records, and neither the request nor the payload."""
    with opened(tls) as a, opened(tls) as b, b.context.listen("") as waiting, ThreadPoolExecutor(2) as pool:
        tap = socket.create_server(("127.0.0.1", 0))
        port = int(waiting.address.rpartition(":")[2])
        heard = pool.submit(_relay, tap, port)
        address = f"127.0.0.1:{tap.getsockname()[1]}"
        calling = pool.submit(a.context.connect_blocking, a.qp, address, private_data=b"secret words")
        request = waiting.accept_blocking(timeout_s=link.DEADLINE_S)
        assert request.private_data == b"secret words"
        request.accept_blocking(b.qp)
        calling.result(link.DEADLINE_S)
        a.qp.sync.write(a.region(b"secret bytes" * 100), b.region(1200).remote)
        a.qp.close()
        b.qp.close()
        wire = heard.result(link.DEADLINE_S)
        assert wire[0] == 22
        assert len(wire) > 1200
        assert b"secret" not in wire
        assert b"MPA ID" not in wire


def test_a_peer_of_another_authority_is_refused(tls, stranger):
    """DeniedError, tls_untrusted: whoever is called must have a certificate of ours."""
    error = refusal(tls, issue(stranger))
    assert (type(error), error.code) == (errors.DeniedError, "tls_untrusted")
    assert "authority" in error.remedy


def test_an_expired_certificate_is_refused(tls, authority):
    """DeniedError, tls_expired, with the remedy."""
    error = refusal(tls, issue(authority, "old", days=-1))
    assert (type(error), error.code) == (errors.DeniedError, "tls_expired")
    assert "expired" in str(error)
    assert "renew" in error.remedy


@pytest.mark.parametrize(
    ("names", "host"),
    [("DNS:elsewhere", "localhost"), ("IP:192.0.2.1", "127.0.0.1"), ("DNS:localhost", "127.0.0.1")],
)
def test_a_certificate_of_another_host_is_refused(tls, authority, names, host):
    """DeniedError, tls_wrong_host, by name and by address."""
    other = issue(authority, "other-" + names.replace(":", "-"), names=names)
    with opened(tls) as a, opened(other) as b, b.context.listen("127.0.0.1:0") as waiting:
        port = waiting.address.rpartition(":")[2]
        with pytest.raises(errors.DeniedError, match="another host") as caught:
            a.context.connect_blocking(a.qp, f"{host}:{port}")
    assert caught.value.code == "tls_wrong_host"


def test_a_plain_caller_is_told_that_tls_is_required(tls):
    """DeniedError, tls_required: it learns what to configure."""
    error = refusal(None, tls)
    assert (type(error), error.code) == (errors.DeniedError, "tls_required")
    assert "VERBENA_IWARP_TLS_CERTIFICATE" in error.remedy


def test_a_caller_with_tls_is_told_that_the_peer_has_none(tls):
    """DeniedError, tls_plain_peer: nothing was sent in the clear but the refusal."""
    error = refusal(tls, None)
    assert (type(error), error.code) == (errors.DeniedError, "tls_plain_peer")


def test_a_caller_of_another_authority_is_refused(tls, stranger):
    """DeniedError, tls_refused, at the caller: the listener believes another authority."""
    foreign = replace(issue(stranger, "caller"), authority=tls.authority)
    error = refusal(foreign, tls)
    assert (type(error), error.code) == (errors.DeniedError, "tls_refused")


def test_callers_need_no_certificate_where_none_is_required(tls, stranger):
    """require_peer_certificate=False lets a caller in that shows none; without it, none gets in."""
    with opened(replace(tls, require_peer_certificate=False)) as b, b.context.listen("") as waiting:
        port = int(waiting.address.rpartition(":")[2])
        assert _shake_hands(tls, port) == "TLSv1.3"
    with opened(tls) as b, b.context.listen("") as waiting:
        port = int(waiting.address.rpartition(":")[2])
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            _shake_hands(tls, port)


def test_older_versions_and_other_protocols_are_refused(tls):
    """TLS 1.2, and TLS without our ALPN name, end in an alert."""
    with opened(replace(tls, require_peer_certificate=False)) as b, b.context.listen("") as waiting:
        port = int(waiting.address.rpartition(":")[2])
        with pytest.raises(ssl.SSLError, match=r"(?i)version"):
            _shake_hands(tls, port, version=ssl.TLSVersion.TLSv1_2)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _shake_hands(tls, port, protocol="http/1.1")


def _relay(tap: socket.socket, port: int) -> bytes:
    """Passes bytes both ways until either end is done; gives all of them."""
    import selectors

    left = tap.accept()[0]
    right = socket.create_connection(("127.0.0.1", port))
    heard = b""
    with tap, left, right, selectors.DefaultSelector() as selector:
        selector.register(left, selectors.EVENT_READ, right)
        selector.register(right, selectors.EVENT_READ, left)
        while True:
            for key, _ in selector.select(link.DEADLINE_S):
                content = key.fileobj.recv(65536)
                if not content:
                    return heard
                heard += content
                key.data.sendall(content)


def _shake_hands(
    tls: Tls,
    port: int,
    *,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    protocol: str = "verbena-iwarp/1",
) -> str | None:
    """As a client of Python's own TLS, without a certificate. A byte is asked for: an alert comes late."""
    context = ssl.create_default_context(cafile=str(tls.authority))
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols([protocol])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=link.DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            secure.recv(1)
        return secure.version()
