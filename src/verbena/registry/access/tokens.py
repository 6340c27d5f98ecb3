"""Bearer tokens: JSON web tokens (RFC 7519) signed with HMAC-SHA-256, issued and verified by this
registry."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verbena.registry import names
from verbena.registry.access.rules import ACTIONS, Policy

ALGORITHM = "HS256"
MAX_LENGTH = 16 << 10
MAX_SCOPES = 64

Granted = dict[str, frozenset[str]]


class BadToken(ValueError):
    """The token has a wrong signature, belongs to another service, or is outside its validity period."""


class Tokens:
    """Issues and verifies tokens for `service`. Several nodes may share the secret."""

    def __init__(self, secret: bytes, *, service: str, lifetime_s: int = 300) -> None:
        self._secret = secret
        self.service = service
        self.lifetime_s = lifetime_s

    def issue(self, user: str, granted: Mapping[str, frozenset[str]], *, now: float | None = None) -> str:
        now = time.time() if now is None else now
        access = [
            {"type": "repository", "name": name, "actions": sorted(actions)}
            for name, actions in granted.items()
        ]
        claims = {
            **{"iss": self.service, "aud": self.service, "sub": user, "jti": secrets.token_hex(8)},
            **{"iat": int(now), "nbf": int(now) - 10, "exp": int(now) + self.lifetime_s},
            "access": access,
        }
        signed = f"{_encode({'alg': ALGORITHM, 'typ': 'JWT'})}.{_encode(claims)}"
        return f"{signed}.{self._sign(signed)}"

    def check(self, token: str, *, now: float | None = None) -> tuple[str, Granted]:
        """Verifies a token; returns its user and its granted actions by repository. Raises BadToken."""
        now = time.time() if now is None else now
        signed, _, signature = token.rpartition(".")
        if len(token) > MAX_LENGTH or not token.isascii():
            raise BadToken("not a token")
        if not hmac.compare_digest(signature, self._sign(signed)):
            raise BadToken("wrong signature")
        # The signature is valid, so this registry's secret signed the claims; audience and time may still be
        # wrong.
        header, claims = (_decode(part) for part in signed.split("."))
        if header.get("alg") != ALGORITHM or claims.get("aud") != self.service:
            raise BadToken("issued for another service")
        if not claims["nbf"] <= now < claims["exp"]:
            raise BadToken("the token has expired")
        return claims["sub"], {entry["name"]: frozenset(entry["actions"]) for entry in claims["access"]}

    def _sign(self, text: str) -> str:
        return _base64(hmac.new(self._secret, text.encode(), hashlib.sha256).digest())


def grant(policy: Policy, user: str, scopes: list[str]) -> Granted:
    """Returns the actions that `policy` allows among the requested scopes (`repository:NAME:pull,push`).
    Omits the others without an error, as clients expect."""
    granted: Granted = {}
    asked = [word for scope in scopes for word in scope.split(" ")][:MAX_SCOPES]
    for scope in asked:
        kind, _, rest = scope.partition(":")
        name, _, actions = rest.rpartition(":")
        if kind.partition("(")[0] != "repository" or not names.is_repository(name):
            continue
        wanted = ACTIONS if "*" in actions.split(",") else ACTIONS & set(actions.split(","))
        allowed = frozenset(action for action in wanted if policy.allows(user, action, name))
        granted[name] = granted.get(name, frozenset()) | allowed
    return granted


def load_secret(file: Path) -> bytes:
    """Returns the secret in `file`. Creates it, readable by its owner only, if it does not exist."""
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return file.read_bytes()
    with os.fdopen(fd, "wb") as opened:
        secret = secrets.token_bytes(32)
        opened.write(secret)
        opened.flush()
        os.fsync(fd)
    return secret


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _encode(document: Mapping[str, Any]) -> str:
    return _base64(json.dumps(document, separators=(",", ":")).encode())


def _decode(text: str) -> dict[str, Any]:
    document = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    assert isinstance(document, dict)
    return document
