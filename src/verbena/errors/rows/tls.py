"""Certificates, keys and TLS handshakes."""

from __future__ import annotations

from verbena.errors.classes import DeniedError, StateError, UnavailableError
from verbena.errors.explanation import Explanation

ROWS = (
    Explanation(
        "tls_missing",
        UnavailableError,
        what="OpenSSL cannot be used here",
        causes=(
            "OpenSSL 3 is not installed",
            "Verbena was built without the headers of OpenSSL",
        ),
        remedy="install OpenSSL 3 (Debian: libssl3, and openssl for `verbena cert`); to build with TLS"
        " install libssl-dev, then run `pip install .` in the source folder again",
    ),
    Explanation(
        "tls_untrusted",
        DeniedError,
        what="the peer's certificate was issued by an authority that this end does not trust",
        causes=(
            "the certificates of the two ends come from different authorities",
            "the peer does not send the intermediate certificates of its chain",
            "the certificate is self-signed, or its key usage does not allow this use",
        ),
        remedy="give both ends certificates of one authority (`verbena cert issue`), and its certificate as"
        " `tls.ca` (`authority` in IwarpOptions and QuicOptions); `openssl verify -CAfile authority.pem"
        " peer.pem` prints what is missing",
    ),
    Explanation(
        "tls_revoked",
        DeniedError,
        what="the authority has revoked the peer's certificate",
        causes=("the certificate's serial number is in this end's revocation list (`tls.revoked`)",),
        remedy="issue a new certificate for the peer (`verbena cert issue`)",
    ),
    Explanation(
        "tls_wrong_host",
        DeniedError,
        what="the peer's certificate is for another host than the one dialled",
        causes=(
            "the certificate does not list the dialled name or address as a subjectAltName",
            "the program dialled an IP address, and the certificate lists names only",
            "another machine answers at that address",
        ),
        remedy="dial a name that the certificate lists (`openssl x509 -noout -ext subjectAltName -in"
        " peer.pem`), or issue a certificate that lists every name and address of the peer; queue pairs that"
        " connect by endpoint need the IP address in it",
    ),
    Explanation(
        "tls_plain_peer",
        DeniedError,
        what="this end uses TLS, and the peer does not",
        causes=(
            "the peer's device was opened without TLS",
            "another program listens on that port",
        ),
        remedy="open the peer's device with `tls` (IwarpOptions), or open both without it; check the port",
    ),
    Explanation(
        "tls_required",
        DeniedError,
        what="the peer accepts connections with TLS only",
        causes=("the peer's device was opened with TLS, and this end's without",),
        remedy="open this device with `tls` (certificate, key and authority), or set"
        " VERBENA_IWARP_TLS_CERTIFICATE, VERBENA_IWARP_TLS_KEY and VERBENA_IWARP_TLS_AUTHORITY",
    ),
    Explanation(
        "tls_refused",
        DeniedError,
        what="the peer refused this end's certificate",
        causes=(
            "the peer does not trust the authority of this end's certificate",
            "this end's certificate has expired, or its key usage does not allow clients",
            "this end has no certificate, and the peer requires one",
        ),
        remedy="give this end a valid certificate of an authority that the peer trusts (`verbena cert"
        " issue`), or set require_peer_certificate=False at the peer",
    ),
    Explanation(
        "tls_file",
        StateError,
        what="a TLS file cannot be used",
        causes=(
            "the path is wrong, or this process may not read the file",
            "the file is not PEM, or holds another kind of object than this setting needs",
            "the private key is encrypted, and Verbena does not prompt for a passphrase",
        ),
        remedy="check the path and its permissions; `openssl x509 -in FILE -noout -text` prints a"
        " certificate, `openssl pkey -in FILE -noout` checks a key, `openssl pkey -in FILE -out NEW` decrypts"
        " one",
    ),
    Explanation(
        "tls_key_mismatch",
        StateError,
        what="the private key does not belong to the certificate",
        causes=(
            "one of the two files was renewed without the other",
            "the first certificate in the file is an authority's, not this node's own",
        ),
        remedy="put this node's certificate first in the file, and check that `openssl x509 -in CERTIFICATE"
        " -noout -pubkey` and `openssl pkey -in KEY -pubout` print the same key",
    ),
    Explanation(
        "tls_expired",
        DeniedError,
        what="a certificate is not valid at this time",
        causes=(
            "the certificate has expired and was not renewed",
            "the certificate is not valid yet, or this machine's clock is wrong",
        ),
        remedy="compare `openssl x509 -in FILE -noout -dates` with `date`, and renew the certificate"
        " (`verbena cert issue`)",
    ),
    Explanation(
        "tls_handshake",
        DeniedError,
        what="the TLS handshake failed",
        causes=(
            "the certificate was issued by an authority that the other end does not trust",
            "the certificate is for another host name than the one dialled",
            "the server requires a client certificate, and this end has none",
            "one end does not use TLS, or only a version before 1.3",
        ),
        remedy="give both ends certificates of one authority (`verbena cert issue`), set `tls.ca` to the"
        " authority's certificate at both, and dial a name that the server's certificate lists",
    ),
)
