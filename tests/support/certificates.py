"""Throw-away certificates, made with the openssl command: a certificate authority and what it issues."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and of its private key."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates into a folder. Skips the test if there is no openssl command."""

    def __init__(self, folder: Path, name: str = "ca", *, days: int = 2) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the openssl command is not here")
        self.folder = folder
        extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"]
        self._own = self._certify(name, extensions, days)

    @property
    def ca(self) -> Path:
        return self._own.certificate

    def issue(
        self, name: str, *, names: str = "DNS:localhost,IP:127.0.0.1", usage: str = "", days: int = 2
    ) -> Pair:
        """Issues a certificate for CN `name` and the alternative `names`; with days=-1 it has expired."""
        extensions = ["basicConstraints=CA:FALSE"]
        extensions += [f"subjectAltName={names}"] * bool(names) + [f"extendedKeyUsage={usage}"] * bool(usage)
        return self._certify(name, extensions, days, issuer=self._own)

    def _certify(self, name: str, extensions: list[str], days: int, issuer: Pair | None = None) -> Pair:
        certificate, key, request, lines = (
            self.folder / f"{name}.{suffix}" for suffix in ("pem", "key", "csr", "ext")
        )
        lines.write_text("\n".join([*extensions, ""]))
        self._run("req", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signer = ["-CA", issuer.certificate, "-CAkey", issuer.key] if issuer else ["-signkey", key]
        self._run(
            "x509", "-req", "-in", request, *signer, "-days", days, "-extfile", lines, "-out", certificate
        )
        return Pair(certificate, key)

    def encrypt(self, pair: Pair) -> Pair:
        """Encrypts the pair's key with a passphrase."""
        key = pair.key.with_suffix(".encrypted")
        self._run("pkey", "-in", pair.key, "-aes256", "-passout", "pass:secret", "-out", key)
        return Pair(pair.certificate, key)

    @staticmethod
    def _run(*arguments: object) -> None:
        command = ["openssl", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, done.stderr
