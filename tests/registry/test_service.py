"""The operations without HTTP: stored content is verified, shared, and durable."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support import at_once
from support.registry.filling import Filler, image_manifest

from verbena.errors import BusyError, UnavailableError
from verbena.registry import digests
from verbena.registry.errors import BlobsUnknown, Refused
from verbena.registry.events import Event
from verbena.registry.manifests import DOCKER_LIST, OCI_INDEX, OCI_MANIFEST
from verbena.registry.service import Blob, Limits, Registry


async def test_a_blob_is_stored_once_for_all_repositories(registry: Registry, filler: Filler) -> None:
    digest = await filler.blob("one", b"hello")
    await filler.blob("two", b"hello")
    assert [str(found) for found, _ in registry.blobs.files()] == [str(digest)]
    blob = await registry.local_blob("two", digest)
    assert blob is not None
    assert blob.path.read_bytes() == b"hello"
    assert registry.metadata.holders(digest) == ["one", "two"]


async def test_a_blob_of_another_repository_is_unknown(registry: Registry, filler: Filler) -> None:
    digest = await filler.blob("one", b"hello")
    await filler.blob("two", b"other")
    for name, code in (("two", "BLOB_UNKNOWN"), ("three", "NAME_UNKNOWN")):
        with pytest.raises(Refused) as caught:
            await registry.blob(name, digest)
        assert caught.value.code == code


async def test_a_wrong_digest_is_rejected_and_keeps_the_upload(registry: Registry) -> None:
    upload = await registry.begin_upload("one")
    await upload.incoming.append([b"hello"])
    with pytest.raises(Refused) as caught:
        await registry.finish_upload(upload, digests.of(b"other"))
    assert caught.value.code == "DIGEST_INVALID"
    assert list(registry.blobs.files()) == []
    blob = await registry.finish_upload(registry.uploads.get("one", upload.id), digests.of(b"hello"))
    assert blob.size == 5
    with pytest.raises(Refused):
        registry.uploads.get("one", upload.id)


async def test_an_upload_continues_after_a_restart(tmp_path: Path) -> None:
    first = Registry(tmp_path)
    upload = await first.begin_upload("one", "sha512")
    await upload.incoming.append([b"hello "])
    await upload.incoming.settle()
    first.close()
    second = Registry(tmp_path)
    again = second.uploads.get("one", upload.id)
    assert again.received == 6
    await again.incoming.append([b"world"])
    blob = await second.finish_upload(again, digests.of(b"hello world", "sha512"))
    assert blob.path.read_bytes() == b"hello world"
    second.close()


@pytest.mark.parametrize("name", ["../../etc/passwd", "x", "", "..", "a/b", "\x00"])
async def test_invalid_upload_ids_are_unknown(registry: Registry, name: str) -> None:
    with pytest.raises(Refused) as caught:
        registry.uploads.get("one", name)
    assert caught.value.code == "BLOB_UPLOAD_UNKNOWN"


async def test_an_upload_belongs_to_its_repository(registry: Registry) -> None:
    upload = await registry.begin_upload("one")
    with pytest.raises(Refused):
        registry.uploads.get("two", upload.id)
    await registry.uploads.cancel(registry.uploads.get("one", upload.id))
    assert list(registry.blobs.incoming_files()) == []


async def test_a_mount_is_one_row(registry: Registry, filler: Filler) -> None:
    digest = await filler.blob("one", b"hello")
    assert await registry.mount("two", digest, origin="three") is None
    blob = await registry.mount("two", digest, origin="one")
    assert isinstance(blob, Blob)
    assert await registry.local_blob("two", digest) == blob
    assert await registry.mount("four", digest, origin=None, may_read=lambda name: False) is None
    assert await registry.mount("four", digest, origin=None) == blob


async def test_a_manifest_is_stored_byte_for_byte(registry: Registry, filler: Filler) -> None:
    config = await filler.blob("one", b"{}")
    content = image_manifest((config, 2), []) + b"\n \n"
    pushed = await registry.put_manifest("one", "latest", content, OCI_MANIFEST)
    by_tag = await registry.manifest("one", "latest")
    assert by_tag == await registry.manifest("one", str(pushed.digest))
    assert (by_tag.content, by_tag.media_type) == (content, OCI_MANIFEST)


async def test_a_manifest_with_missing_parts_is_rejected_with_a_list(
    registry: Registry, filler: Filler
) -> None:
    config = await filler.blob("one", b"{}")
    lacking = [digests.of(b"1"), digests.of(b"2", "sha512")]
    content = image_manifest((config, 2), [(digest, 1) for digest in lacking])
    with pytest.raises(BlobsUnknown) as caught:
        await registry.put_manifest("one", "latest", content, OCI_MANIFEST)
    assert caught.value.missing == tuple(map(str, lacking))
    assert [e["detail"] for e in json.loads(caught.value.body())["errors"]] == [
        {"digest": str(digest)} for digest in lacking
    ]
    assert registry.tags("one") == []


@pytest.mark.parametrize("kind", [OCI_INDEX, DOCKER_LIST])
async def test_an_index_references_manifests(registry: Registry, filler: Filler, kind: str) -> None:
    child = await filler.image("one", "child", b"layer")

    def index(*children: digests.Digest) -> bytes:
        entries = [{"mediaType": OCI_MANIFEST, "digest": str(one), "size": 1} for one in children]
        return json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()

    await registry.put_manifest("one", "index", index(child), kind)
    sparse = index(child, digests.of(b"absent"))
    with pytest.raises(BlobsUnknown):
        await registry.put_manifest("one", "sparse", sparse, kind)
    registry.limits = Limits(sparse_manifests=True)
    await registry.put_manifest("one", "sparse", sparse, kind)
    assert registry.tags("one") == ["child", "index", "sparse"]


async def test_a_push_by_digest_may_set_tags(registry: Registry, filler: Filler) -> None:
    config = await filler.blob("one", b"{}")
    content = image_manifest((config, 2), [])
    digest = digests.of(content, "sha512")
    pushed = await registry.put_manifest("one", str(digest), content, OCI_MANIFEST, tags=["b", "a", "b"])
    assert (pushed.digest, pushed.tags) == (digest, ("b", "a"))
    assert registry.tags("one") == ["a", "b"]
    with pytest.raises(Refused):
        await registry.put_manifest("one", str(digests.of(b"")), content, OCI_MANIFEST)


async def test_tags_are_sorted_and_paginated(registry: Registry, filler: Filler) -> None:
    for tag in ("b", "B", "a", "_", "1"):
        await filler.image("one", tag)
    assert registry.tags("one") == sorted(["b", "B", "a", "_", "1"])
    assert registry.tags("one", after="B", limit=2) == ["_", "a"]
    assert registry.tags("one", limit=0) == []
    with pytest.raises(Refused) as caught:
        registry.tags("two")
    assert caught.value.code == "NAME_UNKNOWN"


async def test_referrers_of_a_subject_that_may_come_later(registry: Registry, filler: Filler) -> None:
    subject = digests.of(b"not here yet")
    about = {"subject": {"mediaType": OCI_MANIFEST, "digest": str(subject), "size": 1}}
    signature = await filler.image(
        "one", "s", artifactType="application/sig", annotations={"k": "v"}, **about
    )
    other = await filler.image("one", "o", b"layer", **about)
    found = registry.referrers("one", subject, artifact_type=None)
    assert {entry["digest"] for entry in found} == {str(signature), str(other)}
    [one] = registry.referrers("one", subject, artifact_type="application/sig")
    assert one["annotations"] == {"k": "v"}
    assert one["size"] == len((await registry.manifest("one", "s")).content)
    assert registry.referrers("two", subject, artifact_type=None) == []
    await registry.delete_manifest("one", str(signature))
    [rest] = registry.referrers("one", subject, artifact_type=None)
    assert rest["artifactType"] == "application/vnd.oci.image.config.v1+json"


async def test_deleting_a_manifest_removes_its_tags_and_a_tag_only_itself(
    registry: Registry, filler: Filler
) -> None:
    digest = await filler.image("one", "a")
    await filler.image("one", "b")
    await registry.delete_manifest("one", "a")
    assert (await registry.manifest("one", "b")).digest == digest
    await registry.delete_manifest("one", str(digest))
    assert registry.tags("one") == []
    for reference in ("a", "b", str(digest)):
        with pytest.raises(Refused) as caught:
            await registry.delete_manifest("one", reference)
        assert caught.value.code == "MANIFEST_UNKNOWN"


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    first = Registry(tmp_path)
    digest = await Filler(first).image("one", "latest", b"layer")
    first.close()
    second = Registry(tmp_path)
    assert (await second.manifest("one", "latest")).digest == digest
    assert await second.local_blob("one", digests.of(b"layer")) is not None
    second.close()


async def test_listeners_get_every_event(registry: Registry, filler: Filler) -> None:
    heard: list[Event] = []

    async def listen(event: Event) -> None:
        heard.append(event)

    registry.listeners.append(listen)
    digest = await filler.image("one", "latest")
    await registry.delete_manifest("one", str(digest))
    assert [(e.action, e.kind, e.tag) for e in heard] == [
        ("push", "blob", ""),
        ("push", "manifest", "latest"),
        ("delete", "manifest", ""),
    ]


async def test_missing_content_is_fetched_from_the_source(registry: Registry) -> None:
    """A blob being fetched is readable at once, and belongs to the repository once it is verified."""
    digest = digests.of(b"from afar")

    class Afar:
        async def blob(self, repository, wanted):
            assert (repository, wanted) == ("one", digest)
            return registry.blobs.incoming(size=9)

        async def manifest(self, repository, reference):
            return None

    registry.source = Afar()
    arriving = await registry.blob("one", digest)
    assert not isinstance(arriving, Blob)
    await arriving.append([b"from "])
    assert await arriving.arrived(0) == 5
    assert arriving.read(0, 5) == b"from "
    await arriving.append([b"afar"])
    await registry.adopt(arriving, "one", digest)
    assert isinstance(await registry.blob("one", digest), Blob)
    assert arriving.read(0, 9) == b"from afar"
    arriving.close()


async def test_wrong_bytes_of_a_source_are_not_stored(registry: Registry) -> None:
    arriving = registry.blobs.incoming(size=3)
    await arriving.append([b"lie"])
    with pytest.raises(Refused):
        await registry.adopt(arriving, "one", digests.of(b"true"))
    assert list(registry.blobs.incoming_files()) == []
    assert list(registry.blobs.files()) == []
    arriving.close()


async def test_many_pushes_of_one_blob_at_once(registry: Registry, filler: Filler) -> None:
    content = b"x" * 100_000
    await asyncio.gather(*(filler.blob(f"r{n}", content) for n in range(20)))
    assert len(list(registry.blobs.files())) == 1
    assert len(registry.metadata.holders(digests.of(content))) == 20
    assert list(registry.blobs.incoming_files()) == []


def test_two_servers_of_one_folder(tmp_path: Path) -> None:
    first = Registry(tmp_path)
    with pytest.raises(BusyError, match="another process"):
        Registry(tmp_path)
    first.close()
    Registry(tmp_path).close()


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="folder"):
        Registry(tmp_path / "file" / "data")
    (tmp_path / "registry.db").write_bytes(b"no database, but long enough to be looked at" * 100)
    with pytest.raises(UnavailableError, match="folder"):
        Registry(tmp_path)


_OPEN = """
from pathlib import Path
from verbena.registry.database import Database
ready()
Database(Path(sys.argv[1])).close()
"""


def test_many_processes_can_open_a_new_database_at_once(tmp_path: Path) -> None:
    """A server, a collection and a check may start at the same moment without a locking error."""
    for number in range(3):
        assert at_once.run(_OPEN, [(f"{tmp_path}/{number}.db",)] * 6) == [""] * 6
