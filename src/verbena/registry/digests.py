"""Digests (`sha256:…`, `sha512:…`), parsed strictly: names of files in the store are built from nothing
else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Hash(Protocol):
    """The part of hashlib's hash objects that is used here."""

    def update(self, data: Any, /) -> None: ...
    def hexdigest(self) -> str: ...


# The one list of algorithms: number of hexadecimal digits, constructor.
ALGORITHMS: dict[str, tuple[int, Callable[[], Hash]]] = {
    "sha256": (64, hashlib.sha256),
    "sha512": (128, hashlib.sha512),
}
DEFAULT = "sha256"

_GRAMMAR = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[A-Za-z0-9=_-]+")
_KNOWN = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class BadDigest(ValueError):
    """The text is not a digest, or its algorithm is not supported; the message states which."""


@dataclass(frozen=True, order=True)
class Digest:
    """A digest with validated syntax; `str()` returns the original text."""

    algorithm: str
    encoded: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.encoded}"


def parse(text: str) -> Digest:
    """Parses a digest. Raises BadDigest."""
    if _KNOWN.fullmatch(text):
        algorithm, _, encoded = text.partition(":")
        return Digest(algorithm, encoded)
    if not _GRAMMAR.fullmatch(text) or len(text) > 300:
        raise BadDigest("not of the form algorithm:encoded")
    algorithm = text.partition(":")[0]
    if algorithm not in ALGORITHMS:
        raise BadDigest(f"unsupported algorithm {algorithm}; supported: {' and '.join(ALGORITHMS)}")
    raise BadDigest(f"{algorithm} has {ALGORITHMS[algorithm][0]} lower-case hexadecimal digits")


def is_digest(reference: str) -> bool:
    """Whether a reference is a digest and not a tag: tags have no colon."""
    return ":" in reference


def new_hash(algorithm: str) -> Hash:
    return ALGORITHMS[algorithm][1]()


def of(content: bytes, algorithm: str = DEFAULT) -> Digest:
    state = new_hash(algorithm)
    state.update(content)
    return Digest(algorithm, state.hexdigest())
