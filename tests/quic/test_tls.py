"""Certificates on the quic wire: who gets in, who does not and why, and files that change meanwhile."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support.certificates import Authority
from support.rdma import link
from support.rdma.iwarp_tls import issue

from verbena import errors
from verbena.transport.handshake.authority import Authority as DevelopmentAuthority
from verbena.verbs import Tls


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture
def refusal(opened):
    """What the caller is told. The listener's program hears nothing of it."""

    def refuse(caller: Tls, listener: Tls, host: str = "127.0.0.1", **options: object) -> errors.VerbenaError:
        with (
            opened(caller, **options) as a,
            opened(listener) as b,
            b.context.listen("127.0.0.1:0") as waiting,
        ):
            port = waiting.address.rpartition(":")[2]
            with pytest.raises(errors.VerbenaError) as caught:
                a.context.connect_blocking(a.qp, f"{host}:{port}")
            with pytest.raises(errors.TimedOutError):
                waiting.accept_blocking(timeout_s=0.05)
            return caught.value

    return refuse


def test_both_ends_of_one_authority_talk(opened, connect):
    """Bytes go both ways; the queue pair names its cipher, and has no checksum on top of it."""
    with opened() as a, opened() as b, b.context.listen("127.0.0.1:0") as waiting:
        connect(a, b, waiting)
        assert a.qp.capabilities["encryption"] == "QUIC, TLS 1.3, AES-128-GCM"
        assert a.qp.capabilities["checksum"] == "none"
        content = link.pattern(300_000)
        source, target, back = a.region(content), b.region(len(content)), a.region(len(content))
        a.qp.sync.write(source, target.remote)
        a.qp.sync.read(back, target.remote)
        assert bytes(memoryview(target)) == bytes(memoryview(back)) == content


def test_queue_pairs_share_a_connection(opened, connect):
    """A second queue pair to the same peer is a second stream: one handshake for both."""
    with opened() as a, opened() as b, b.context.listen("127.0.0.1:0") as waiting:
        connect(a, b, waiting)
        c, d = link.make_end(a.context), link.make_end(b.context)
        connect(c, d, waiting)
        for near, far in ((a, b), (c, d)):
            near.qp.sync.write(near.region(b"hello"), far.region(5).remote)
        assert a.context.counts["handshakes"] == b.context.counts["handshakes"] == 1
        assert a.context.counts["connections"] == 1


def test_a_peer_of_another_authority_is_refused(refusal, tls, stranger):
    """DeniedError, tls_untrusted: whoever is called must have a certificate of ours."""
    error = refusal(tls, issue(stranger))
    assert (type(error), error.code) == (errors.DeniedError, "tls_untrusted")


def test_an_expired_certificate_is_refused(refusal, tls, authority):
    """DeniedError, tls_expired, with the remedy."""
    error = refusal(tls, issue(authority, "old", days=-1))
    assert (type(error), error.code) == (errors.DeniedError, "tls_expired")
    assert "expired" in str(error)


@pytest.mark.parametrize(
    ("names", "host"),
    [("DNS:elsewhere", "localhost"), ("IP:192.0.2.1", "127.0.0.1"), ("DNS:localhost", "127.0.0.1")],
)
def test_a_certificate_of_another_host_is_refused(refusal, tls, authority, names, host):
    """DeniedError, tls_wrong_host, by name and by address."""
    error = refusal(tls, issue(authority, "other-" + names.replace(":", "-"), names=names), host)
    assert (type(error), error.code) == (errors.DeniedError, "tls_wrong_host")


def test_a_caller_of_another_authority_is_refused(refusal, tls, stranger):
    """DeniedError, tls_refused, at the caller, with the listener's reason."""
    error = refusal(replace(issue(stranger, "caller"), authority=tls.authority), tls)
    assert (type(error), error.code) == (errors.DeniedError, "tls_refused")
    assert "CA" in error.detail


def test_a_caller_whose_certificate_has_expired_is_refused(refusal, tls, authority):
    """DeniedError, tls_refused, at the caller: the listener says that it has expired."""
    error = refusal(issue(authority, "late", days=-1), tls)
    assert (type(error), error.code) == (errors.DeniedError, "tls_refused")
    assert "expired" in error.detail


def test_callers_need_no_certificate_where_none_is_required(opened, connect, tls, stranger):
    """require_peer_certificate=False lets those in that show none; one that is shown must be good."""
    lenient = replace(tls, require_peer_certificate=False)
    anonymous = replace(tls, certificate="", key="")
    with opened(anonymous) as a, opened(lenient) as b, b.context.listen("127.0.0.1:0") as waiting:
        connect(a, b, waiting)
        a.qp.sync.write(a.region(b"hello"), b.region(5).remote)
    foreign = replace(issue(stranger, "another"), authority=tls.authority)
    for caller, listener in ((anonymous, tls), (foreign, lenient)):
        with opened(caller) as a, opened(listener) as b, b.context.listen("127.0.0.1:0") as waiting:
            with pytest.raises(errors.DeniedError) as caught:
                a.context.connect_blocking(a.qp, waiting.address)
            assert caught.value.code == "tls_refused"
            assert b.context.counts["refused_certificates"] == 1


def test_new_files_are_used_without_a_restart(opened, connect, tls, authority, tmp_path):
    """A certificate that is replaced serves the next connection, half a file does not; what stands stays."""
    files = {name: tmp_path / name for name in ("certificate", "key")}

    def put(source: Tls) -> None:
        for name, path in files.items():
            fresh = path.with_suffix(".new")
            shutil.copy(Path(getattr(source, name)), fresh)
            fresh.rename(path)

    put(issue(authority, "wrong", names="DNS:elsewhere"))
    with opened() as a, opened(replace(tls, **files)) as b, b.context.listen("127.0.0.1:0") as waiting:
        with pytest.raises(errors.DeniedError) as caught:
            a.context.connect_blocking(a.qp, waiting.address)
        assert caught.value.code == "tls_wrong_host"
        put(tls)
        connect(a, b, waiting)
        assert b.context.counts["reloads"] >= 1
        files["certificate"].write_text("half a certificate")
        with opened() as c:
            d = link.make_end(b.context)
            connect(c, d, waiting)
            assert b.context.counts["failed_reloads"] >= 1
            for near, far in ((a, b), (c, d)):
                near.qp.sync.write(near.region(b"hello"), far.region(5).remote)


def test_a_revoked_certificate_is_refused(opened, connect, tmp_path):
    """DeniedError, tls_revoked, from the moment that the list says so; a new certificate is believed."""
    own = DevelopmentAuthority.create(tmp_path)
    files = {name: own.issue(name, ["127.0.0.1"]) for name in ("caller", "listener")}
    caller, listener = (
        Tls(certificate=made.certificate, key=made.key, authority=own.certificate) for made in files.values()
    )
    with (
        opened(caller, revoked=own.revoked) as a,
        opened(listener, revoked=own.revoked) as b,
        b.context.listen("127.0.0.1:0") as waiting,
    ):
        connect(a, b, waiting)
        own.revoke(files["listener"].certificate)
        other = link.make_end(a.context)
        with pytest.raises(errors.DeniedError) as caught:
            a.context.connect_blocking(other.qp, waiting.address)
        assert caught.value.code == "tls_revoked"
        own.issue("listener", ["127.0.0.1"])
        own.revoke(files["caller"].certificate)
        another = link.make_end(a.context)
        with pytest.raises(errors.DeniedError, match="revoked") as caught:
            a.context.connect_blocking(another.qp, waiting.address)
        assert caught.value.code == "tls_refused"
        a.qp.sync.write(a.region(b"hello"), b.region(5).remote)
