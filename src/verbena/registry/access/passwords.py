"""Users and bcrypt passwords from an htpasswd file (`htpasswd -B`), reloaded when the file changes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import time
from pathlib import Path

import bcrypt

from verbena.errors import ConfigurationError, ConfigurationProblem, configuration_error

logger = logging.getLogger("verbena.registry")
CACHE_S = 300.0
MAX_CACHED = 10_000
MAX_FILE_BYTES = 1 << 22
_PREFIXES = (b"$2y$", b"$2b$", b"$2a$")


class Passwords:
    """The users of an htpasswd file. A correct password is cached as a keyed hash for CACHE_S seconds,
    because bcrypt is slow by design and clients send the password with every request."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._key = secrets.token_bytes(32)
        self._cached_token: dict[bytes, float] = {}
        self._seen = (0, 0)
        self._users: dict[str, bytes] = {}
        # Checked for unknown users, so that response times do not reveal which users exist.
        self._decoy = bcrypt.hashpw(secrets.token_bytes(16), bcrypt.gensalt(rounds=10))
        self._read()

    async def verify(self, user: str, password: str) -> bool:
        self._read_if_changed()
        proof = hashlib.blake2b(
            f"{len(user)}:{user}{password}".encode("utf-8", "surrogatepass"), key=self._key
        ).digest()
        now = time.monotonic()
        if self._cached_token.get(proof, 0.0) > now:
            return True
        stored = self._users.get(user)
        correct = await asyncio.to_thread(_check, password, stored or self._decoy) and stored is not None
        if correct:
            if len(self._cached_token) >= MAX_CACHED:
                self._cached_token.clear()
            self._cached_token[proof] = now + CACHE_S
        return correct

    def _read_if_changed(self) -> None:
        try:
            status = os.stat(self._file)
        except OSError:
            return  # the file is being replaced; the loaded users stay valid
        now = (status.st_mtime_ns, status.st_ino)
        if now != self._seen:
            self._seen = now
            self._cached_token.clear()
            try:
                self._read()
            except ConfigurationError as error:
                logger.error("keeping the loaded passwords: %s", error.problems[0].message)

    def _read(self) -> None:
        users, problems = {}, []
        try:
            with self._file.open("rb") as file:
                status = os.fstat(file.fileno())
                lines = file.read(MAX_FILE_BYTES).splitlines()
        except OSError as error:
            raise _wrong(self._file, error.strerror or "cannot be read") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith(b"#"):
                continue
            user, _, stored = line.strip().partition(b":")
            if not user or not stored.startswith(_PREFIXES) or len(stored) != 60:
                problems.append(f"{number} is not USER:BCRYPT-HASH; make it with htpasswd -B")
            else:
                users[user.decode("utf-8", "replace")] = stored
        if problems:
            raise _wrong(self._file, f"line {problems[0]}")
        self._users, self._seen = users, (status.st_mtime_ns, status.st_ino)


def _check(password: str, stored: bytes) -> bool:
    secret = password.encode("utf-8", "surrogatepass")
    # bcrypt uses only the first 72 bytes, and so does htpasswd.
    return b"\0" not in secret and bcrypt.checkpw(secret[:72], stored)


def _wrong(file: Path, reason: str) -> Exception:
    return configuration_error([ConfigurationProblem(f"{file}: {reason}", "registry.htpasswd", str(file))])
