"""The development authority: what it issues is believed, for its names and time, until it is taken back."""

from __future__ import annotations

import ssl
import stat
from datetime import datetime, timedelta, timezone

import pytest
from support.rdma.iwarp_tls import MISSING

from verbena import errors
from verbena.transport.handshake.authority import LONGEST_DAYS, NODE_DAYS, Authority
from verbena.transport.handshake.tls import client_context, server_context

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "authority")


def meet(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """A handshake in memory; raises what either end says."""
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


def test_its_certificates_are_believed_both_ways(authority):
    """A node's certificate serves as server's and as client's, for each of its names and addresses."""
    issued = authority.issue("node1", ["node1.example", "192.0.2.7", "::1"])
    server = server_context(certificate=issued.certificate, key=issued.key, ca=authority.certificate)
    client = client_context(ca=authority.certificate, certificate=issued.certificate, key=issued.key)
    for host in ("node1.example", "192.0.2.7", "::1"):
        meet(server, client, host)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        meet(server, client, "node2.example")


def test_keys_are_for_their_owner_alone(authority):
    """Private keys have mode 600; what is handed out can be read by all."""
    issued = authority.issue("node1")
    assert {stat.S_IMODE(key.stat().st_mode) for key in (authority.key, issued.key)} == {0o600}
    assert authority.revoked.stat().st_mode & stat.S_IROTH
    assert sorted(path.name for path in authority.folder.iterdir()) == [
        "ca.key", "ca.pem", "node1.key", "node1.pem", "revoked.pem",
    ]  # fmt: skip


def test_lifetimes_are_sane(authority):
    """A node's is a month unless said otherwise, and never beyond the authority's own."""
    soon = datetime.now(timezone.utc) + timedelta(days=NODE_DAYS)
    assert abs(authority.issue("node1").expires - soon) < timedelta(days=1)
    assert authority.issue("node2", days=LONGEST_DAYS).expires <= authority._expires(authority.certificate)
    for days in (0, -3, LONGEST_DAYS + 1):
        with pytest.raises(errors.StateError, match="lifetime"):
            authority.issue("node3", days=days)


def test_a_revoked_certificate_is_on_the_list(authority):
    """Who checks the list refuses it, and believes its successor."""
    issued = authority.issue("node1", ["localhost"])
    authority.revoke(issued.certificate)
    assert authority.revoke(issued.certificate) == authority.revoked  # twice is once
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
def test_names_that_make_no_sense_are_refused(authority, name, names):
    """StateError: neither files elsewhere nor names slipped in."""
    with pytest.raises(errors.StateError):
        authority.issue(name, names)


def test_an_authority_is_not_overwritten(authority, tmp_path):
    """A second init is refused, and so is issuing without one."""
    with pytest.raises(errors.StateError, match="already"):
        Authority.create(authority.folder)
    with pytest.raises(errors.StateError, match="verbena cert init"):
        Authority(tmp_path / "nowhere").issue("node1")
