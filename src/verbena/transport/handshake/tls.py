"""TLS for the control connection: contexts from files, errors that name the file, and the peer's identity.
TLS 1.3 only, without resumption, since a connection lasts for one handshake. Unusable files are reported
when a context is created, not when the first peer connects."""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from verbena.errors import VerbenaError, setup_error

StrPath = str | os.PathLike[str]

# X509_V_ERR_*: not yet valid, expired.
_OUT_OF_TIME = (9, 10)
_REVOKED = 23

# Kinds of names in a certificate, the most specific first.
_IDENTITIES = ("URI", "DNS", "IP", "CN")


def client_context(
    *,
    ca: StrPath,
    certificate: StrPath | None = None,
    key: StrPath | None = None,
    revoked: StrPath | None = None,
) -> ssl.SSLContext:
    """Returns a context for clients: the server needs a certificate of `ca` for `server_hostname` that is not
    on the list `revoked`. `certificate` and `key` authenticate this end. Raises tls_file, tls_key_mismatch or
    tls_expired if a file is not usable; invalid_argument for a key without a certificate."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    _load_ca(context, ca)
    _load_revoked(context, revoked)
    if certificate is not None:
        _load_certificate(context, certificate, key)
    elif key is not None:
        raise setup_error("invalid_argument", operation="TLS", detail="a key was given without a certificate")
    return context


def server_context(
    *,
    certificate: StrPath,
    key: StrPath | None = None,
    ca: StrPath | None = None,
    require_client_certificate: bool = True,
    revoked: StrPath | None = None,
) -> ssl.SSLContext:
    """Returns a context for servers. Without `key`, the file `certificate` must also contain the private key.
    With `require_client_certificate` clients need a certificate of `ca`; raises invalid_argument if `ca` is
    missing. Other errors as for client_context()."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    _load_certificate(context, certificate, key)
    if require_client_certificate and ca is None:
        detail = "to require client certificates, give the ca that issues them"
        raise setup_error("invalid_argument", operation="TLS", detail=detail)
    if ca is not None:
        _load_ca(context, ca)
        _load_revoked(context, revoked)
        context.verify_mode = ssl.CERT_REQUIRED if require_client_certificate else ssl.CERT_OPTIONAL
    return context


def peer_identity(connection: Any) -> str:
    """Returns the name in the peer's verified certificate: "URI:…", "DNS:…", "IP:…" or, last, "CN:…"; "" if
    there is none. `connection`: `writer.get_extra_info("ssl_object")`, which is None without TLS."""
    certificate: Mapping[str, Any] = {}
    with contextlib.suppress(ValueError):  # the handshake failed: the next read raises the alert
        certificate = (connection.getpeercert() if connection is not None else None) or {}
    names = [(kind.removesuffix(" Address"), name) for kind, name in certificate.get("subjectAltName", ())]
    names += [
        ("CN", name) for part in certificate.get("subject", ()) for kind, name in part if kind == "commonName"
    ]
    found = (f"{kind}:{name}" for wanted in _IDENTITIES for kind, name in names if kind == wanted)
    return next(found, "")


def handshake_error(error: ssl.SSLError, *, peer: str = "") -> VerbenaError:
    """Returns the error for a failed TLS connection. The caller raises it from `error`."""
    code = "tls_handshake"
    if isinstance(error, ssl.SSLCertVerificationError):
        code = "tls_expired" if error.verify_code in _OUT_OF_TIME else code
        code = "tls_revoked" if error.verify_code == _REVOKED else code
        detail = f"the peer's certificate: {error.verify_message}"
    else:
        detail = (error.reason or str(error)).replace("_", " ").lower()
        code = "tls_expired" if detail.endswith("certificate expired") else code
    return setup_error(code, operation="TLS handshake", peer=peer, detail=detail)


def watch_handshakes(context: ssl.SSLContext, refused: Callable[[VerbenaError], object]) -> None:
    """Calls `refused` for each failed handshake on a server's context, and lets the client receive the alert.
    asyncio does neither: it closes the connection without sending OpenSSL's alert."""

    class Watched(ssl.SSLObject):
        _reported = False

        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                if self._reported:
                    raise
                self._reported = True
                refused(handshake_error(error))
                # asyncio then sends the pending alert, and closes when the client does.
                raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "reported to the client") from error

    context.sslobject_class = Watched


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context


def _load_ca(context: ssl.SSLContext, ca: StrPath) -> None:
    _readable(ca, "ca")
    try:
        context.load_verify_locations(cafile=ca)
    except ssl.SSLError as error:
        raise _file_error("tls_file", ca, "ca", "it holds no certificate in PEM") from error
    authorities = context.get_ca_certs()
    if not authorities:
        raise _file_error("tls_file", ca, "ca", "its certificates are not those of an authority")
    now = time.time()
    if all(ssl.cert_time_to_seconds(str(authority["notAfter"])) < now for authority in authorities):
        raise _file_error("tls_expired", ca, "ca", f"expired {authorities[0]['notAfter']}")


def _load_revoked(context: ssl.SSLContext, revoked: StrPath | None) -> None:
    if revoked is None:
        return
    _readable(revoked, "revoked")
    try:
        context.load_verify_locations(cafile=revoked)
    except ssl.SSLError as error:
        raise _file_error(
            "tls_file", revoked, "revoked", "it is no list of revoked certificates in PEM"
        ) from error
    if not context.cert_store_stats()["crl"]:
        raise _file_error("tls_file", revoked, "revoked", "it is no list of revoked certificates")
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF


def _load_certificate(context: ssl.SSLContext, certificate: StrPath, key: StrPath | None) -> None:
    _readable(certificate, "certificate")
    if key is not None:
        _readable(key, "key")
    holder = certificate if key is None else key

    def no_passphrase() -> str:
        # OpenSSL would prompt on the terminal, and block a service that has none.
        raise _file_error("tls_file", holder, "key", "it is encrypted")

    try:
        context.load_cert_chain(certificate, key, no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _file_error(
                "tls_key_mismatch", holder, "key", f"certificate {os.fspath(certificate)}"
            ) from error
        role, path = ("key", holder) if _holds_certificate(certificate) else ("certificate", certificate)
        detail = f"it is no usable {role} in PEM" + (f", {error.reason}" if error.reason else "")
        raise _file_error("tls_file", path, role, detail) from error
    _check_itself(certificate, key, protocol=context.protocol)


def _holds_certificate(path: StrPath) -> bool:
    try:
        _context(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError:
        return False
    return True


def _check_itself(certificate: StrPath, key: StrPath | None, *, protocol: int) -> None:
    """Runs a handshake in memory against a verifier that trusts only this certificate, so that every failure
    is a fault of the certificate. Python offers no other way to check its expiry. Raises tls_expired or
    tls_file."""
    listening, dialling = _context(ssl.PROTOCOL_TLS_SERVER), _context(ssl.PROTOCOL_TLS_CLIENT)
    dialling.check_hostname = False
    dialling.verify_mode = ssl.CERT_NONE
    verifier = dialling if protocol == ssl.PROTOCOL_TLS_SERVER else listening
    for context in (listening, dialling):
        context.load_cert_chain(certificate, key)
    verifier.load_verify_locations(cafile=certificate)
    verifier.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    verifier.verify_mode = ssl.CERT_REQUIRED

    upwards, downwards = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        dialling.wrap_bio(downwards, upwards),
        listening.wrap_bio(upwards, downwards, server_side=True),
    )
    try:
        for end in ends * 2:  # sends ClientHello; ServerHello to Finished; client's Finished; nothing
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        code = "tls_expired" if error.verify_code in _OUT_OF_TIME else "tls_file"
        raise _file_error(code, certificate, "certificate", error.verify_message) from error


def _readable(path: StrPath, role: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise _file_error("tls_file", path, role, errno=error.errno) from error


def _file_error(
    code: str, path: StrPath, role: str, detail: str = "", *, errno: int | None = None
) -> VerbenaError:
    where = f"{role} {os.fspath(path)}"
    return setup_error(code, operation="TLS", detail=": ".join(filter(None, (where, detail))), errno=errno)
