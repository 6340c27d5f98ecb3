"""TLS contexts from files: what works, and the error for each wrong file or peer."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Authority

from verbena.errors import DeniedError, VerbenaError
from verbena.transport.handshake.tls import client_context, handshake_error, peer_identity, server_context


def failure(act: Callable[..., object], **options: Any) -> VerbenaError:
    with pytest.raises(VerbenaError) as caught:
        act(**options)
    return caught.value


def meet(
    server: ssl.SSLContext, client: ssl.SSLContext, *, name: str = "localhost"
) -> tuple[str | VerbenaError, str | VerbenaError]:
    """A handshake in memory. Returns for client and server the other's identity or an error."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    outcome: list[str | VerbenaError] = ["", ""]
    for index in (0, 1) * 3:  # both do the handshake, then each reads the other's verdict
        if isinstance(outcome[index], VerbenaError):
            continue
        end = ends[index]
        try:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                outcome[index] = peer_identity(end)
                end.read(1)
        except ssl.SSLError as error:
            outcome[index] = handshake_error(error, peer="b:1")
    return outcome[0], outcome[1]


def refusals(server: ssl.SSLContext, client: ssl.SSLContext) -> list[VerbenaError]:
    """The errors of a failed handshake: the client's, then the server's."""
    outcome = [end for end in meet(server, client) if isinstance(end, VerbenaError)]
    assert len(outcome) == 2
    return outcome


def test_both_ends_see_the_identity_of_the_peers_certificate(authority: Authority) -> None:
    one = authority.issue("client", names="URI:spiffe://verbena/anna,DNS:anna", usage="clientAuth")
    two = authority.issue("server", usage="serverAuth")
    server = server_context(certificate=two.certificate, key=two.key, ca=authority.ca)
    client = client_context(ca=authority.ca, certificate=one.certificate, key=one.key)
    assert server.minimum_version is client.minimum_version is ssl.TLSVersion.TLSv1_3
    assert meet(server, client) == ("DNS:localhost", "URI:spiffe://verbena/anna")
    assert meet(server, client, name="127.0.0.1") == ("DNS:localhost", "URI:spiffe://verbena/anna")


def test_the_key_may_be_in_the_certificates_file(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("both")
    both = tmp_path / "both.pem"
    both.write_text(pair.certificate.read_text() + pair.key.read_text())
    server = server_context(certificate=str(both), require_client_certificate=False)
    assert meet(server, client_context(ca=authority.ca)) == ("DNS:localhost", "")


def test_a_name_without_alternatives_is_a_common_name(authority: Authority) -> None:
    one, two = authority.issue("plain anna", names=""), authority.issue("server2")
    server = server_context(certificate=two.certificate, key=two.key, ca=authority.ca)
    client = client_context(ca=authority.ca, certificate=one.certificate, key=one.key)
    assert meet(server, client)[1] == "CN:plain anna"


def test_without_tls_there_is_no_identity() -> None:
    assert peer_identity(None) == ""


def test_a_server_of_another_authority_is_refused(authority: Authority, stranger: Authority) -> None:
    pair = stranger.issue("server")
    server = server_context(certificate=pair.certificate, key=pair.key, require_client_certificate=False)
    error, told = refusals(server, client_context(ca=authority.ca))
    assert (error.code, error.peer, type(error)) == ("tls_handshake", "b:1", DeniedError)
    assert "issuer certificate" in error.detail
    assert (told.code, told.detail) == ("tls_handshake", "tlsv1 alert unknown ca")


def test_a_server_of_another_name_is_refused(authority: Authority) -> None:
    pair = authority.issue("elsewhere", names="DNS:elsewhere.example")
    server = server_context(certificate=pair.certificate, key=pair.key, require_client_certificate=False)
    error, told = refusals(server, client_context(ca=authority.ca))
    assert error.code == told.code == "tls_handshake"
    assert "localhost" in error.detail


def test_a_client_of_another_authority_is_refused(authority: Authority, stranger: Authority) -> None:
    one, two = stranger.issue("client"), authority.issue("server3")
    server = server_context(certificate=two.certificate, key=two.key, ca=authority.ca)
    client = client_context(ca=authority.ca, certificate=one.certificate, key=one.key)
    assert [error.code for error in refusals(server, client)] == ["tls_handshake"] * 2


def test_a_client_without_certificate_is_refused(authority: Authority) -> None:
    pair = authority.issue("server4")
    server = server_context(certificate=pair.certificate, key=pair.key, ca=authority.ca)
    told, error = refusals(server, client_context(ca=authority.ca))
    assert told.code == error.code == "tls_handshake"
    assert "certificate required" in told.detail
    assert "did not return a certificate" in error.detail


def test_a_client_without_certificate_is_taken_where_none_is_required(authority: Authority) -> None:
    pair = authority.issue("server5")
    server = server_context(
        certificate=pair.certificate, key=pair.key, ca=authority.ca, require_client_certificate=False
    )
    assert meet(server, client_context(ca=authority.ca)) == ("DNS:localhost", "")


def test_an_expired_server_is_refused(authority: Authority) -> None:
    """The client refuses it. The test makes the context itself, because server_context() would refuse the
    file."""
    pair = authority.issue("old server", days=-1)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    error, told = refusals(server, client_context(ca=authority.ca))
    assert (error.code, type(error), told.code) == ("tls_expired", DeniedError, "tls_expired")


def test_an_expired_client_is_refused(authority: Authority) -> None:
    one, two = authority.issue("old client", days=-1), authority.issue("server6")
    client = client_context(ca=authority.ca)
    client.load_cert_chain(one.certificate, one.key)
    server = server_context(certificate=two.certificate, key=two.key, ca=authority.ca)
    assert [error.code for error in refusals(server, client)] == ["tls_expired"] * 2


def test_an_older_tls_is_refused(authority: Authority) -> None:
    pair = authority.issue("server7")
    server = server_context(certificate=pair.certificate, key=pair.key, require_client_certificate=False)
    old = client_context(ca=authority.ca)
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert [error.code for error in refusals(server, old)] == ["tls_handshake"] * 2


# Files


@pytest.mark.parametrize("role", ["certificate", "key", "ca"])
def test_a_missing_file_is_named(authority: Authority, role: str, tmp_path: Path) -> None:
    pair = authority.issue("server8")
    files: dict[str, Path] = {"certificate": pair.certificate, "key": pair.key, "ca": authority.ca}
    for make in (server_context, client_context):
        error = failure(make, **{**files, role: tmp_path / "nowhere.pem"})
        assert error.code == "tls_file"
        assert error.detail == f"{role} {tmp_path}/nowhere.pem"
        assert "ENOENT" in str(error)
        assert "openssl x509" in error.remedy


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Runs as another user, because root can read every file."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.touch(mode=0)
    with without_privileges():
        error = failure(client_context, ca=ca)
    assert (error.code, error.detail) == ("tls_file", f"ca {ca}")
    assert "EACCES" in str(error)


def test_a_folder_in_place_of_a_file_is_named(authority: Authority, tmp_path: Path) -> None:
    error = failure(client_context, ca=tmp_path)
    assert (error.code, error.detail) == ("tls_file", f"ca {tmp_path}")
    assert "EISDIR" in str(error)


@pytest.mark.parametrize(
    "content", ["", "not PEM\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
@pytest.mark.parametrize("role", ["certificate", "key", "ca"])
def test_a_malformed_file_is_named(authority: Authority, tmp_path: Path, role: str, content: str) -> None:
    pair = authority.issue("server10")
    (tmp_path / "bad.pem").write_text(content)
    files: dict[str, Path] = {"certificate": pair.certificate, "key": pair.key, "ca": authority.ca}
    for make in (server_context, client_context):
        error = failure(make, **{**files, role: tmp_path / "bad.pem"})
        assert error.code == "tls_file"
        assert f"{role} {tmp_path}/bad.pem: " in error.detail


def test_a_key_of_another_certificate_is_named(authority: Authority) -> None:
    one, two = authority.issue("server11"), authority.issue("server12")
    error = failure(server_context, certificate=one.certificate, key=two.key, ca=authority.ca)
    assert error.code == "tls_key_mismatch"
    assert str(one.certificate) in error.detail
    assert str(two.key) in error.detail


def test_an_encrypted_key_is_named_without_a_prompt(authority: Authority) -> None:
    """OpenSSL would prompt for the passphrase on the terminal and wait."""
    pair = authority.encrypt(authority.issue("server13"))
    error = failure(server_context, certificate=pair.certificate, key=pair.key, ca=authority.ca)
    assert (error.code, error.detail) == ("tls_file", f"key {pair.key}: it is encrypted")


@pytest.mark.parametrize("usage", ["", "serverAuth", "clientAuth"])
def test_an_expired_certificate_is_named(authority: Authority, usage: str) -> None:
    pair = authority.issue(f"old {usage}", days=-1, usage=usage)
    for make, wrong in ((server_context, "clientAuth"), (client_context, "serverAuth")):
        error = failure(make, certificate=pair.certificate, key=pair.key, ca=authority.ca)
        assert error.code == ("tls_file" if usage == wrong else "tls_expired")
        assert str(pair.certificate) in error.detail


def test_a_certificate_for_the_other_end_only_is_named(authority: Authority) -> None:
    one, two = authority.issue("dials", usage="clientAuth"), authority.issue("listens", usage="serverAuth")
    client_context(ca=authority.ca, certificate=one.certificate, key=one.key)
    server_context(ca=authority.ca, certificate=two.certificate, key=two.key)
    for make, pair in ((server_context, one), (client_context, two)):
        error = failure(make, ca=authority.ca, certificate=pair.certificate, key=pair.key)
        assert (error.code, "purpose" in error.detail) == ("tls_file", True)


def test_an_expired_authority_is_named(tmp_path: Path) -> None:
    old = Authority(tmp_path, "old", days=-1)
    error = failure(client_context, ca=old.ca)
    assert error.code == "tls_expired"
    assert str(old.ca) in error.detail


def test_a_certificate_that_is_no_authoritys_is_no_ca(authority: Authority) -> None:
    pair = authority.issue("server14")
    assert failure(client_context, ca=pair.certificate).code == "tls_file"


def test_incomplete_arguments_are_refused(authority: Authority) -> None:
    pair = authority.issue("server15")
    assert failure(client_context, ca=authority.ca, key=pair.key).code == "invalid_argument"
    assert failure(server_context, certificate=pair.certificate, key=pair.key).code == "invalid_argument"
