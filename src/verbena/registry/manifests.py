"""Parses manifests: the parts they refer to, subject and type. The stored bytes stay unchanged. All input
comes from clients, so every field is validated before use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from verbena.registry import digests
from verbena.registry.digests import BadDigest, Digest
from verbena.registry.errors import Refused

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
INDEXES = frozenset({OCI_INDEX, DOCKER_LIST})


@dataclass(frozen=True)
class Parsed:
    """The parsed fields of a manifest. `blobs` lists those that the repository must have; layers with `urls`
    are left out."""

    media_type: str
    blobs: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    subject: str | None = None
    artifact_type: str | None = None
    annotations: dict[str, str] = field(default_factory=dict)


def parse(content: bytes, content_type: str) -> Parsed:
    """Parses a manifest that was sent as `content_type`. Raises Refused (MANIFEST_INVALID)."""
    document = _document(content)
    sent_type = content_type.partition(";")[0].strip().lower()
    own = document.get("mediaType")
    if own is not None and not isinstance(own, str):
        raise _invalid("mediaType is not a string")
    if own and sent_type and own != sent_type:
        raise _invalid(f"mediaType is {own}, but Content-Type is {sent_type}")
    media_type = own or sent_type or (OCI_INDEX if "manifests" in document else OCI_MANIFEST)
    if not media_type.endswith("json"):
        raise _invalid(f"{media_type} is not a supported manifest type")
    if document.get("schemaVersion", 2) != 2:
        raise _invalid("schemaVersion is not 2")
    subject = _digest(document["subject"], "subject") if document.get("subject") is not None else None
    return Parsed(
        media_type,
        blobs=tuple(_blobs(document)),
        manifests=tuple(_digest(entry, "manifests") for entry in _entries(document, "manifests")),
        subject=subject,
        artifact_type=_artifact_type(document, media_type),
        annotations=_annotations(document),
    )


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _invalid(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _invalid("not a JSON object")
    return document


def _blobs(document: dict[str, Any]) -> Iterator[str]:
    config = document.get("config")
    if config is not None:
        yield _digest(config, "config")
    for name in ("layers", "blobs"):
        for entry in _entries(document, name):
            digest = _digest(entry, name)
            if not entry.get("urls"):  # clients fetch the others from those URLs
                yield digest


def _entries(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    entries = document.get(name)
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise _invalid(f"{name} is not a list")
    return entries


def _digest(descriptor: object, where: str) -> str:
    if not isinstance(descriptor, dict):
        raise _invalid(f"{where}: a descriptor is not an object")
    digest, size = descriptor.get("digest"), descriptor.get("size")
    if not isinstance(digest, str):
        raise _invalid(f"{where}: a descriptor has no digest")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise _invalid(f"{where}: the size of {digest[:80]} is not a number of bytes")
    try:
        return str(digests.parse(digest))
    except BadDigest as error:
        raise _invalid(f"{where}: {digest[:80]}: {error}") from error


def _artifact_type(document: dict[str, Any], media_type: str) -> str | None:
    declared = document.get("artifactType")
    if declared is not None and not isinstance(declared, str):
        raise _invalid("artifactType is not a string")
    if declared or media_type in INDEXES:
        return declared or None
    config = document.get("config")
    kind = config.get("mediaType") if isinstance(config, dict) else None
    return kind if isinstance(kind, str) and kind else None


def _annotations(document: dict[str, Any]) -> dict[str, str]:
    annotations = document.get("annotations")
    if annotations is None:
        return {}
    if not isinstance(annotations, dict) or not all(isinstance(value, str) for value in annotations.values()):
        raise _invalid("annotations must map strings to strings")
    return annotations


def _invalid(reason: str) -> Refused:
    return Refused("MANIFEST_INVALID", f"manifest invalid: {reason}")


@dataclass(frozen=True)
class Manifest:
    """A stored manifest."""

    digest: Digest
    media_type: str
    content: bytes
