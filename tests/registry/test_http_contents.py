"""Every kind of content the specification speaks of, through its whole life: pushed, listed, looked at,
pulled, found by its subject, deleted."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.registry.http_client import Client

from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.manifests import OCI_INDEX, OCI_MANIFEST

CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
EMPTY = "application/vnd.oci.empty.v1+json"


@dataclass
class Content:
    """What is pushed, in order; the last manifest is the one that counts."""

    algorithm: str = "sha256"
    blobs: dict[Digest, bytes] = field(default_factory=dict)
    manifests: dict[Digest, tuple[bytes, str]] = field(default_factory=dict)
    absent: list[Digest] = field(default_factory=list)
    subject: Digest | None = None

    def blob(self, content: bytes, kind: str = LAYER, **more: Any) -> dict[str, Any]:
        digest = digests.of(content, self.algorithm)
        self.blobs[digest] = content
        return {"mediaType": kind, "digest": str(digest), "size": len(content), **more}

    def manifest(self, kind: str, **fields: Any) -> dict[str, Any]:
        content = json.dumps({"schemaVersion": 2, "mediaType": kind, **fields}, indent=2).encode()
        digest = digests.of(content, self.algorithm)
        self.manifests[digest] = (content, kind)
        return {"mediaType": kind, "digest": str(digest), "size": len(content)}

    def image(self, *layers: bytes, **fields: Any) -> dict[str, Any]:
        config = self.blob(json.dumps({"layers": len(layers)}).encode(), CONFIG)
        return self.manifest(OCI_MANIFEST, config=config, layers=[self.blob(one) for one in layers], **fields)

    def index(self, *entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return self.manifest(OCI_INDEX, manifests=list(entries), **fields)


def image(content: Content) -> None:
    content.image(b"one", b"two")


def no_layers(content: Content) -> None:
    content.image()


def large(content: Content) -> None:
    content.image(b"one", annotations={str(number): "x" * 100 for number in range(20_000)})


def index(content: Content) -> None:
    content.index(content.image(b"one"), content.image(b"one", b"two"))


def nested_index(content: Content) -> None:
    content.index(content.index(content.image(b"one")), content.image(b"two"))


def empty_index(content: Content) -> None:
    content.index()


def artifact(content: Content) -> None:
    config = content.blob(b"{}", EMPTY)
    content.manifest(
        OCI_MANIFEST, config=config, layers=[content.blob(b"x", "text/plain")], artifactType="a/b"
    )


def artifact_without_layers(content: Content) -> None:
    empty = content.blob(b"{}", EMPTY)
    content.manifest(OCI_MANIFEST, config=empty, layers=[empty], artifactType="a/b")


def artifact_index(content: Content) -> None:
    content.index(content.image(b"one"), artifactType="a/list")


def with_subject(content: Content) -> None:
    subject = content.image(b"one")
    content.subject = digests.parse(subject["digest"])
    content.image(b"signature", subject=subject, artifactType="a/signature", annotations={"k": "v"})


def index_with_subject(content: Content) -> None:
    subject = content.image(b"one")
    content.subject = digests.parse(subject["digest"])
    content.index(content.image(b"two"), subject=subject, artifactType="a/list")


def missing_subject(content: Content) -> None:
    content.subject = digests.of(b"never pushed", content.algorithm)
    content.image(b"one", subject={"mediaType": OCI_MANIFEST, "digest": str(content.subject), "size": 12})


def data_field(content: Content) -> None:
    data = base64.b64encode(b"inline").decode()
    config = content.blob(b"{}", EMPTY, data=base64.b64encode(b"{}").decode())
    content.manifest(OCI_MANIFEST, config=config, layers=[content.blob(b"inline", data=data)])


def custom_fields(content: Content) -> None:
    config = content.blob(b'{"own": 1}', CONFIG, **{"org.example.own": {"deep": [1, None]}})
    content.manifest(OCI_MANIFEST, config=config, layers=[], **{"org.example.own": "x"})


def non_distributable(content: Content) -> None:
    absent = digests.of(b"elsewhere", content.algorithm)
    content.absent.append(absent)
    kind = "application/vnd.oci.image.layer.nondistributable.v1.tar"
    layer = {"mediaType": kind, "digest": str(absent), "size": 9, "urls": ["https://example.org/layer"]}
    config = content.blob(b"{}", CONFIG)
    content.manifest(OCI_MANIFEST, config=config, layers=[layer, content.blob(b"here")])


KINDS = (
    *(image, no_layers, large, index, nested_index, empty_index, artifact, artifact_without_layers),
    *(artifact_index, with_subject, index_with_subject, missing_subject, data_field, custom_fields),
    non_distributable,
)


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_push_pull_and_delete_of_every_content(client: Client, kind: Any, algorithm: str) -> None:
    content = Content(algorithm)
    kind(content)
    await push(client, content)
    await pull(client, content)
    await find_by_subject(client, content)
    await delete(client, content)


async def push(client: Client, content: Content) -> None:
    for blob in content.blobs.values():
        await client.blob("a", blob, content.algorithm)
    for number, (digest, (body, kind)) in enumerate(content.manifests.items()):
        answer = await client.manifest("a", f"{digest}?tag=t{number}", body, kind)
        assert (answer.status, answer.headers["Docker-Content-Digest"]) == (201, str(digest))
        expected = json.loads(body).get("subject", {}).get("digest")
        assert answer.headers.get("OCI-Subject") == expected
    tags = (await client("GET", "/v2/a/tags/list")).json["tags"]
    assert tags == sorted(f"t{number}" for number in range(len(content.manifests)))


async def pull(client: Client, content: Content) -> None:
    for number, (digest, (body, kind)) in enumerate(content.manifests.items()):
        for reference in (str(digest), f"t{number}"):
            got = await client("GET", f"/v2/a/manifests/{reference}")
            assert (got.status, got.body, got.headers["Content-Type"]) == (200, body, kind)
            assert got.headers["Docker-Content-Digest"] == str(digest)
            head = await client("HEAD", f"/v2/a/manifests/{reference}")
            assert (head.status, head.headers["Content-Length"]) == (200, str(len(body)))
    for digest, body in content.blobs.items():
        assert (await client("GET", f"/v2/a/blobs/{digest}")).body == body
        head = await client("HEAD", f"/v2/a/blobs/{digest}")
        assert (head.status, head.headers["Content-Length"]) == (200, str(len(body)))
    for digest in content.absent:
        assert (await client("HEAD", f"/v2/a/blobs/{digest}")).status == 404


async def find_by_subject(client: Client, content: Content) -> None:
    if content.subject is None:
        return
    last = list(content.manifests)[-1]
    document = json.loads(content.manifests[last][0])
    [entry] = (await client("GET", f"/v2/a/referrers/{content.subject}")).json["manifests"]
    assert (entry["digest"], entry["mediaType"]) == (str(last), document["mediaType"])
    assert entry["size"] == len(content.manifests[last][0])
    assert entry.get("annotations") == document.get("annotations")
    fallback = document["config"]["mediaType"] if "config" in document else None
    assert entry.get("artifactType") == document.get("artifactType", fallback)


async def delete(client: Client, content: Content) -> None:
    for number, digest in reversed(list(enumerate(content.manifests))):
        assert (await client("DELETE", f"/v2/a/manifests/t{number}")).status == 202
        assert (await client("GET", f"/v2/a/manifests/t{number}")).status == 404
        assert (await client("GET", f"/v2/a/manifests/{digest}")).status == 200
        assert (await client("DELETE", f"/v2/a/manifests/{digest}")).status == 202
        assert (await client("GET", f"/v2/a/manifests/{digest}")).status == 404
    for digest in content.blobs:
        assert (await client("DELETE", f"/v2/a/blobs/{digest}")).status == 202
        assert (await client("HEAD", f"/v2/a/blobs/{digest}")).status == 404
    if content.subject is not None:
        assert (await client("GET", f"/v2/a/referrers/{content.subject}")).json["manifests"] == []
    if content.blobs:
        assert (await client("GET", "/v2/a/tags/list")).json["tags"] == []
