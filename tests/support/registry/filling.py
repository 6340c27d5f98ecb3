"""Puts blobs and images into a registry with little code."""

from __future__ import annotations

import json

from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.manifests import OCI_MANIFEST
from verbena.registry.service import Registry


class Filler:
    """Puts blobs and images into a registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def blob(self, repository: str, content: bytes, *, algorithm: str = "sha256") -> Digest:
        upload = await self.registry.begin_upload(repository, algorithm)
        await upload.incoming.append([content])
        digest = digests.of(content, algorithm)
        await self.registry.finish_upload(upload, digest)
        return digest

    async def image(self, repository: str, tag: str, *layers: bytes, **fields: object) -> Digest:
        """Pushes the layers, then an image of them."""
        parts = [(await self.blob(repository, layer), len(layer)) for layer in (b"{}", *layers)]
        content = image_manifest(parts[0], parts[1:], **fields)
        pushed = await self.registry.put_manifest(repository, tag, content, OCI_MANIFEST)
        return pushed.digest


def image_manifest(config: tuple[Digest, int], layers: list[tuple[Digest, int]], **fields: object) -> bytes:
    described = [
        {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": str(digest), "size": size}
        for digest, size in layers
    ]
    kind = "application/vnd.oci.image.config.v1+json"
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": {"mediaType": kind, "digest": str(config[0]), "size": config[1]},
        "layers": described,
        **fields,
    }
    return json.dumps(document).encode()
