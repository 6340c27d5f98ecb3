"""Garbage collection, retention and the check, beside a registry that is in use."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from pathlib import Path

import pytest
from support.registry.filling import Filler, image_manifest

from verbena.registry import digests
from verbena.registry.errors import BlobsUnknown
from verbena.registry.gc import Collected, Policy, collect
from verbena.registry.manifests import OCI_INDEX, OCI_MANIFEST
from verbena.registry.scrub import check
from verbena.registry.service import Blob, Registry

HOUR = 3600.0


async def gc(registry: Registry, *, hours: float = 2, **policy: float) -> Collected:
    """Runs a collection with the clock some hours ahead."""
    later = time.time() + hours * HOUR
    return await asyncio.to_thread(collect, registry.folder, Policy(**policy), now=later)  # type: ignore[arg-type]


def blob_files(registry: Registry) -> set[str]:
    return {str(digest) for digest, _ in registry.blobs.files()}


async def test_unreferenced_content_is_removed_after_the_grace_period(
    registry: Registry, filler: Filler
) -> None:
    kept = await filler.image("one", "latest", b"layer")
    lonely = await filler.blob("one", b"lonely")
    assert str(await gc(registry, hours=0.5)) == "nothing"
    collected = await gc(registry)
    assert (collected.links, collected.blobs, collected.bytes) == (1, 1, 6)
    assert await registry.local_blob("one", lonely) is None
    assert blob_files(registry) == {str(digests.of(b"layer")), str(digests.of(b"{}"))}
    assert (await registry.manifest("one", "latest")).digest == kept


async def test_a_blob_stays_while_a_repository_references_it(registry: Registry, filler: Filler) -> None:
    await filler.image("one", "latest", b"layer")
    two = await filler.image("two", "latest", b"layer")
    await registry.delete_manifest("two", str(two))
    assert (await gc(registry)).blobs == 0
    assert registry.metadata.holders(digests.of(b"layer")) == ["one"]
    assert registry.metadata.repositories() == ["one"]


async def test_a_head_request_restarts_the_grace_period(registry: Registry, filler: Filler) -> None:
    """A client that need not upload a blob has the grace period to reference it."""
    digest = await filler.blob("one", b"lonely")
    with sqlite3.connect(registry.folder / "registry.db") as beside:
        beside.execute("UPDATE links SET touched = touched - 7200")
    beside.close()
    assert await registry.local_blob("one", digest) is not None
    assert (await gc(registry, hours=0)).blobs == 0


async def test_abandoned_uploads_are_removed(registry: Registry) -> None:
    upload = await registry.begin_upload("one")
    await upload.incoming.append([b"half"])
    await upload.incoming.settle()
    assert (await gc(registry, hours=23)).uploads == 0
    assert (await gc(registry, hours=25)).uploads == 1
    assert list(registry.blobs.incoming_files()) == []
    assert registry.metadata.upload(upload.id) is None


async def test_files_without_a_row_are_removed(registry: Registry) -> None:
    """A crash between publish and commit leaves such files."""
    digest = digests.of(b"stray")
    path = registry.blobs.path_of(digest)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"stray")
    assert (await gc(registry, hours=0.5)).blobs == 0
    assert (await gc(registry)).blobs == 1
    assert blob_files(registry) == set()


async def test_retention_keeps_the_newest_tags(registry: Registry, filler: Filler) -> None:
    for number in range(5):
        await filler.image("one", f"v{number}", b"%d" % number)
    await filler.image("two", "v0", b"0")
    collected = await gc(registry, keep_tags=2, keep_untagged_s=HOUR)
    assert (collected.tags, collected.manifests) == (3, 3)
    assert registry.tags("one") == ["v3", "v4"]
    assert registry.tags("two") == ["v0"]
    assert blob_files(registry) == {str(digests.of(c)) for c in (b"{}", b"0", b"3", b"4")}


async def test_untagged_manifests_stay_while_referenced(registry: Registry, filler: Filler) -> None:
    """Children of an index and referrers of a stored manifest stay; a chain is removed in one
    collection."""
    child = await filler.image("one", "child", b"layer")
    entries = [{"mediaType": OCI_MANIFEST, "digest": str(child), "size": 1}]
    index = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}).encode()
    top = await registry.put_manifest("one", "top", index, OCI_INDEX)
    about = {"subject": {"mediaType": OCI_INDEX, "digest": str(top.digest), "size": len(index)}}
    signature = await filler.image("one", "sig", b"signature", **about)
    for tag in ("child", "sig"):
        await registry.delete_manifest("one", tag)
    assert (await gc(registry, keep_untagged_s=HOUR)).manifests == 0
    await registry.delete_manifest("one", "top")
    collected = await gc(registry, keep_untagged_s=HOUR)
    assert (collected.manifests, collected.blobs) == (3, 3)
    assert registry.metadata.manifest("one", str(signature)) is None


async def test_collection_while_clients_push(registry: Registry, filler: Filler) -> None:
    """Without grace period a push either keeps its blobs or is rejected; no reference dangles."""
    stop = asyncio.Event()

    async def collect_on() -> None:
        while not stop.is_set():
            await asyncio.to_thread(collect, registry.folder, Policy(grace_s=0), pause_s=0)

    async def push(client: int) -> None:
        for number in range(8):
            layer = b"%d" % (number % 3)  # shared among the clients
            parts = [await filler.blob("one", content) for content in (b"{}", layer)]
            content = image_manifest((parts[0], 2), [(parts[1], 1)], annotations={"n": f"{client}-{number}"})
            try:
                pushed = await registry.put_manifest("one", f"t{client}", content, OCI_MANIFEST)
            except BlobsUnknown:
                continue
            for part in parts:
                blob = await registry.blob("one", part)
                assert isinstance(blob, Blob)
                assert blob.path.read_bytes() in (b"{}", layer)
            await registry.delete_manifest("one", str(pushed.digest))

    collector = asyncio.create_task(collect_on())
    await asyncio.gather(*(push(client) for client in range(4)))
    stop.set()
    await collector
    dangling = registry.database.rows(
        "SELECT digest FROM links WHERE digest NOT IN (SELECT digest FROM blobs)"
    )
    assert dangling == []
    for (digest,) in registry.database.rows("SELECT digest FROM blobs"):
        assert registry.blobs.path_of(digests.parse(digest)).exists()


async def test_an_intact_registry_has_no_findings(registry: Registry, filler: Filler) -> None:
    await filler.image("one", "latest", b"layer")
    checked = await asyncio.to_thread(check, registry.folder)
    assert (checked.blobs, checked.manifests, checked.findings) == (2, 1, [])
    assert checked.bytes == len(b"{}") + len(b"layer")


def spoil(path: Path) -> None:
    path.write_bytes(b"lAyer")


def shorten(path: Path) -> None:
    os.truncate(path, 2)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(spoil, "has the digest"), (shorten, "2 bytes instead of 5"), (Path.unlink, "missing")],
)
async def test_a_damaged_blob_is_quarantined_and_restored_by_a_push(
    registry: Registry, filler: Filler, damage, words: str
) -> None:
    await filler.image("one", "latest", b"layer")
    digest = digests.of(b"layer")
    damage(registry.blobs.path_of(digest))
    assert len((await asyncio.to_thread(check, registry.folder, repair=False)).findings) == 1
    [finding] = (await asyncio.to_thread(check, registry.folder)).findings
    assert words in str(finding)
    assert await registry.local_blob("one", digest) is None
    aside = list((registry.folder / "quarantine").iterdir())
    assert len(aside) == (damage is not Path.unlink)
    await filler.blob("one", b"layer")
    assert (await asyncio.to_thread(check, registry.folder)).findings == []


async def test_a_damaged_manifest_is_found(registry: Registry, filler: Filler) -> None:
    await filler.image("one", "latest")
    await registry.database.write(lambda c: c.execute("UPDATE manifests SET content = x'00'"))
    [finding] = (await asyncio.to_thread(check, registry.folder)).findings
    assert "does not match the digest" in str(finding)
    assert registry.tags("one") == []
