"""The development authority: its certificates are trusted for their names and lifetime, until they are
revoked."""

from __future__ import annotations

import ssl
import stat
from datetime import datetime, timedelta, timezone

import pytest
from support.rdma.iwarp_tls import MISSING

from verbena import errors
from verbena.transport.handshake.authority import MAX_DAYS, NODE_DAYS, Authority
from verbena.transport.handshake.tls import client_context, server_context

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "authority")


def meet(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """A TLS handshake in memory. Raises the error of either end."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    )
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


def test_its_certificates_are_valid_for_servers_and_clients(authority):
    """A node's certificate works for servers and clients, for each of its names and addresses."""
    issued = authority.issue("node1", ["node1.example", "192.0.2.7", "::1"])
    server = server_context(certificate=issued.certificate, key=issued.key, ca=authority.certificate)
    client = client_context(ca=authority.certificate, certificate=issued.certificate, key=issued.key)
    for host in ("node1.example", "192.0.2.7", "::1"):
        meet(server, client, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        meet(server, client, "node2.example")


def test_keys_are_for_their_owner_alone(authority):
    """Private keys have mode 600; files for distribution are readable by all."""
    issued = authority.issue("node1")
    assert {stat.S_IMODE(key.stat().st_mode) for key in (authority.key, issued.key)} == {0o600}
    assert authority.revoked.stat().st_mode & stat.S_IROTH
    assert sorted(path.name for path in authority.folder.iterdir()) == [
        "ca.key", "ca.pem", "node1.key", "node1.pem", "revoked.pem",
    ]  # fmt: skip


def test_lifetimes_are_bounded_by_the_authoritys(authority):
    """A node's certificate lasts a month by default, and never longer than the authority's own."""
    soon = datetime.now(timezone.utc) + timedelta(days=NODE_DAYS)
    assert abs(authority.issue("node1").expires - soon) < timedelta(days=1)
    assert authority.issue("node2", days=MAX_DAYS).expires <= authority._expires(authority.certificate)
    for days in (0, -3, MAX_DAYS + 1):
        with pytest.raises(errors.StateError, match="lifetime"):
            authority.issue("node3", days=days)


def test_a_revoked_certificate_is_on_the_list(authority):
    """An end that checks the revocation list refuses the certificate and accepts its successor."""
    issued = authority.issue("node1", ["localhost"])
    authority.revoke(issued.certificate)
    assert authority.revoke(issued.certificate) == authority.revoked  # revoking twice has no further effect
    client = client_context(ca=authority.certificate)
    client.load_verify_locations(authority.revoked)
    client.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF

    def server() -> ssl.SSLContext:
        return server_context(
            certificate=issued.certificate, key=issued.key, require_client_certificate=False
        )

    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        meet(server(), client, "localhost")
    authority.issue("node1", ["localhost"])
    meet(server(), client, "localhost")


@pytest.mark.parametrize(
    ("name", "names"),
    [("", ["x"]), ("../up", ["x"]), ("ca", ["x"]), ("node", ["a b"]), ("node", ["a,IP:1.2.3.4"])],
)
def test_invalid_names_are_refused(authority, name, names):
    """StateError: names may not contain paths or inject further names."""
    with pytest.raises(errors.StateError):
        authority.issue(name, names)


def test_an_authority_is_not_overwritten(authority, tmp_path):
    """A second init is refused, and so is issuing without an authority."""
    with pytest.raises(errors.StateError, match="already"):
        Authority.create(authority.folder)
    with pytest.raises(errors.StateError, match="verbena cert init"):
        Authority(tmp_path / "nowhere").issue("node1")
