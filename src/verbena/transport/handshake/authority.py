"""A small certificate authority for development: creates its own certificate, node certificates and
revocation lists with the openssl command, as files for the TLS options. Not meant for production."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from verbena.errors import VerbenaError, setup_error

AUTHORITY_DAYS = 365
NODE_DAYS = 30
LIST_DAYS = 30
MAX_DAYS = 825  # the maximum that browsers and other clients accept

_SIOCGIFADDR = 0x8915
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class NodeCertificate:
    """The files of a certificate and its private key, and when the certificate expires."""

    certificate: Path
    key: Path
    expires: datetime


class Authority:
    """An authority in a folder: ca.pem and revoked.pem to distribute, ca.key to keep secret, and the
    certificates that it has issued."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.certificate = self.folder / "ca.pem"
        self.key = self.folder / "ca.key"
        self.revoked = self.folder / "revoked.pem"
        self._records = self.folder / "revoked.txt"

    @classmethod
    def create(
        cls, folder: str | os.PathLike[str], *, name: str = "Verbena development", days: int = AUTHORITY_DAYS
    ) -> Authority:
        """Creates an authority with an empty revocation list. Raises invalid_argument if the folder already
        holds an authority: replacing it would invalidate the certificates that it has issued."""
        authority = cls(folder)
        if authority.key.exists() or authority.certificate.exists():
            raise _invalid_argument(
                f"there is an authority in {authority.folder} already; remove its files to begin anew"
            )
        _check_days(days)
        authority.folder.mkdir(parents=True, exist_ok=True)
        extensions = (
            "basicConstraints=critical,CA:TRUE,pathlen:0",
            "keyUsage=critical,keyCertSign,cRLSign",
            "subjectKeyIdentifier=hash",
        )
        authority._certify(
            authority.certificate, authority.key, f"/CN={name}", extensions, days, signed_by_itself=True
        )
        authority._list_revoked()
        return authority

    def issue(self, name: str, names: Sequence[str] = (), *, days: int = NODE_DAYS) -> NodeCertificate:
        """Creates `name`.pem and `name`.key for a node, or replaces them. `names` are the node's host names
        and addresses (default: `name`). The certificate expires no later than that of the authority. Raises
        invalid_argument if the name is not usable, or the authority is missing or expires within a day."""
        self._check_exists()
        _check_days(days)
        if not name or "/" in name or name in ("ca", "revoked") or name.startswith("."):
            raise _invalid_argument(f"{name!r} cannot be the name of a file here")
        extensions = (
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature",
            "extendedKeyUsage=serverAuth,clientAuth",
            "subjectKeyIdentifier=hash",
            "authorityKeyIdentifier=keyid",
            f"subjectAltName={','.join(_alternative(each) for each in names or [name])}",
        )
        left = (self._expires(self.certificate) - _now()).days
        if left < 1:
            raise _invalid_argument(
                f"the authority in {self.folder} has expired, or will within a day; make a new one"
            )
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        # The subject has no common name, because etcd's JSON gateway rejects client certificates that have
        # one. The names are in subjectAltName.
        self._certify(certificate, key, f"/O={name}", extensions, min(days, left))
        return NodeCertificate(certificate, key, self._expires(certificate))

    def revoke(self, certificate: str | os.PathLike[str]) -> Path:
        """Adds a certificate to the revocation list and returns the path of the list, for distribution.
        Raises invalid_argument if the file or the authority does not exist."""
        self._check_exists()
        path = Path(certificate)
        if not path.exists():
            raise _invalid_argument(f"there is no {path}")
        serial = _openssl("x509", "-in", path, "-noout", "-serial").strip().removeprefix("serial=")
        ends = self._expires(path).strftime("%y%m%d%H%M%SZ")
        line = "\t".join(("R", ends, _now().strftime("%y%m%d%H%M%SZ"), serial, "unknown", f"/O={path.stem}"))
        known = self._records.read_text().splitlines() if self._records.exists() else []
        if serial not in (each.split("\t")[3] for each in known):
            self._records.write_text("\n".join([*known, line, ""]))
        self._list_revoked()
        return self.revoked

    def _check_exists(self) -> None:
        if not (self.key.exists() and self.certificate.exists()):
            raise _invalid_argument(f"there is no authority in {self.folder}; `verbena cert init` makes one")

    def _expires(self, certificate: Path) -> datetime:
        text = _openssl("x509", "-in", certificate, "-noout", "-enddate").strip().removeprefix("notAfter=")
        return datetime.strptime(text, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=timezone.utc)

    def _certify(
        self,
        certificate: Path,
        key: Path,
        subject: str,
        extensions: Sequence[str],
        days: int,
        *,
        signed_by_itself: bool = False,
    ) -> None:
        with _scratch_folder(self.folder) as scratch:
            request, lines, made, made_key = (scratch / part for part in ("csr", "ext", "pem", "key"))
            lines.write_text("\n".join([*extensions, ""]))
            _openssl("req", *_KEY, "-keyout", made_key, "-out", request, "-subj", subject)
            signer = (
                ("-signkey", made_key) if signed_by_itself else ("-CA", self.certificate, "-CAkey", self.key)
            )
            number = f"0x{secrets.randbits(127):x}"
            _openssl(
                *("x509", "-req", "-in", request, *signer, "-set_serial", number),
                *("-sha256", "-days", days, "-extfile", lines, "-out", made),
            )
            made_key.chmod(0o600)
            # Each file is replaced atomically, but not both: a reader that sees a mismatch must retry.
            made_key.replace(key)
            made.replace(certificate)

    def _list_revoked(self) -> None:
        with _scratch_folder(self.folder) as scratch:
            records = self._records.read_text() if self._records.exists() else ""
            (scratch / "index").write_text(records)
            (scratch / "conf").write_text(
                f"[ca]\ndefault_ca=own\n[own]\ndatabase={scratch}/index\ndefault_md=sha256\ndefault_crl_days={LIST_DAYS}\n"
            )
            made = scratch / "crl"
            _openssl(
                *("ca", "-config", scratch / "conf", "-gencrl", "-keyfile", self.key),
                *("-cert", self.certificate, "-out", made),
            )
            made.chmod(0o644)
            made.replace(self.revoked)


def local_addresses() -> list[str]:
    """Returns every IP address of this machine, for a certificate that is valid on all its interfaces."""
    found = {"127.0.0.1"}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, interface in socket.if_nameindex():
            with contextlib.suppress(OSError):  # the interface has no IPv4 address
                answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", interface.encode()))
                found.add(socket.inet_ntoa(answer[20:24]))
    with contextlib.suppress(OSError):  # the kernel has no IPv6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            found.add(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])))
    return sorted(found)


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _alternative(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        pass
    if not name or any(letter in name for letter in ",: /\n"):
        raise _invalid_argument(f"{name!r} is neither the name of a host nor an address")
    return f"DNS:{name}"


def _check_days(days: int) -> None:
    if not 1 <= days <= MAX_DAYS:
        raise _invalid_argument(f"a lifetime is from 1 to {MAX_DAYS} days, not {days}")


@contextlib.contextmanager
def _scratch_folder(folder: Path) -> Iterator[Path]:
    """Creates a private temporary folder inside `folder`, so that a rename from it is atomic."""
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
        yield Path(scratch)


def _openssl(*arguments: object) -> str:
    if shutil.which("openssl") is None:
        raise setup_error(
            "tls_missing",
            operation="make a certificate",
            detail="the openssl command is not installed (Debian: openssl)",
        )
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode != 0:
        raise _invalid_argument(f"openssl {arguments[0]}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def _invalid_argument(detail: str) -> VerbenaError:
    return setup_error("invalid_argument", operation="make a certificate", detail=detail)
