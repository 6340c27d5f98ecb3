"""Blobs in a bucket: a real S3 implementation (Swift's), and a gate before it that breaks what it is told
to."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.registry.http_client import Client, serve
from support.registry.process import registry_process
from support.registry.s3_gate import Gate
from support.registry.swift import BUCKET, KEY, PROGRAM, REASON, SECRET, Swift

from verbena.errors import UnavailableError
from verbena.registry import digests
from verbena.registry.bucket import Bucket, BucketSettings
from verbena.registry.gc import Policy, collect
from verbena.registry.scrub import check

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason=REASON),
    pytest.mark.skipif(importlib.util.find_spec("obstore") is None, reason="obstore is not installed"),
]
PART = 5 << 20
LONG = os.urandom(1 << 16) * 176  # 11 MiB: three parts
_prefixes = itertools.count()


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    with Swift(tmp_path_factory.mktemp("swift")) as running:
        running.make_bucket()
        yield running


@pytest_asyncio.fixture
async def gate(swift: Swift) -> AsyncIterator[Gate]:
    async with Gate(swift.url) as opened:
        yield opened


@dataclass
class Place:
    """A place in the bucket that no other test has: keys of the configuration, by way of the gate, and the
    bucket itself, by way of it or not."""

    settings: BucketSettings
    direct: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> dict[str, Any]:
        names = ("bucket", "prefix", "access_key", "secret_key", "endpoint")
        keys = {name: getattr(self.settings, name) for name in names}
        keys |= {"timeout_s": 30, "part_size": PART, **self.changes}
        return {f"registry__s3__{key}": value for key, value in keys.items()}

    def bucket(self, *, by_gate: bool = False) -> Bucket:
        return Bucket(self.settings if by_gate else replace(self.settings, endpoint=self.direct))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.bucket().objects()]


@pytest.fixture
def place(gate: Gate, swift: Swift) -> Place:
    prefix = f"test/{next(_prefixes)}"
    settings = BucketSettings(BUCKET, endpoint=gate.url, prefix=prefix, access_key=KEY, secret_key=SECRET)
    return Place(settings, swift.url)


def forget_files(client: Client) -> None:
    """Deletes the cached files."""
    for digest, _ in client.registry.blobs.files():
        client.registry.blobs.remove(digest)


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
@pytest.mark.parametrize("content", [b"", b"short", LONG], ids=["empty", "short", "long"])
async def test_a_pushed_blob_is_served_from_the_bucket(
    tmp_path: Path, gate: Gate, place: Place, content: bytes, algorithm: str
) -> None:
    async with serve(tmp_path / "data", **place.keys) as client:
        digest = await client.blob("a", content, algorithm)
        [name] = place.names
        assert digest.encoded in name
        parts = [path for method, path in gate.seen if method == "PUT" and "partNumber" in path]
        assert len(parts) == (3 if content is LONG else 0)
        forget_files(client)
        head = await client("HEAD", f"/v2/a/blobs/{digest}")
        assert (head.status, head.headers["Content-Length"]) == (200, str(len(content)))
        assert client.registry.recall is not None
        assert not client.registry.recall.active
        for _ in range(2):  # the second time from the file
            answer = await client("GET", f"/v2/a/blobs/{digest}")
            assert (answer.status, answer.body) == (200, content)
        assert client.registry.recall.recalled == 1


async def test_ranges_are_read_without_the_whole_object(tmp_path: Path, gate: Gate, place: Place) -> None:
    async with serve(tmp_path / "data", **place.keys) as client:
        digest = await client.blob("a", LONG)
        forget_files(client)
        for spelled, start, end in (
            ("bytes=0-0", 0, 1),
            ("bytes=4194300-4194310", 4194300, 4194311),
            ("bytes=-7", len(LONG) - 7, len(LONG)),
            ("bytes=1000-", 1000, len(LONG)),
        ):
            answer = await client("GET", f"/v2/a/blobs/{digest}", Range=spelled)
            assert (answer.status, answer.body) == (206, LONG[start:end])
            assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(LONG)}"
        assert (await client("GET", f"/v2/a/blobs/{digest}", Range=f"bytes={len(LONG)}-")).status == 416
        assert list(client.registry.blobs.files()) == []


async def test_concurrent_requests_share_one_recall(tmp_path: Path, place: Place) -> None:
    async with serve(tmp_path / "data", **place.keys) as client:
        digest = await client.blob("a", LONG)
        forget_files(client)
        answers = await asyncio.gather(*(client("GET", f"/v2/a/blobs/{digest}") for _ in range(8)))
        assert all(answer.body == LONG for answer in answers)
        assert client.registry.recall is not None
        assert client.registry.recall.bucket.received_bytes == len(LONG)


async def test_the_cache_respects_its_size(tmp_path: Path, place: Place) -> None:
    place.changes["cache_size"] = 250_000
    contents = [os.urandom(100_000) for _ in range(4)] + [os.urandom(300_000)]
    async with serve(tmp_path / "data", **place.keys) as client:
        found = [await client.blob("a", content) for content in contents]
        for digest, content in zip(found, contents, strict=True):
            assert (await client("GET", f"/v2/a/blobs/{digest}")).body == content
        kept = sum(status.st_size for _, status in client.registry.blobs.files())
        assert 100_000 <= kept <= 250_000
        assert list(client.registry.blobs.incoming_files()) == []
        assert client.registry.recall is not None
        assert client.registry.recall.cached_bytes == kept
    async with serve(tmp_path / "data", **place.keys) as client:  # counted again
        assert client.registry.recall is not None
        assert client.registry.recall.cached_bytes == kept


async def test_the_same_blob_is_uploaded_once(tmp_path: Path, gate: Gate, place: Place) -> None:
    async with serve(tmp_path / "data", **place.keys) as client:
        await client.blob("a", b"twice")
        await client.blob("b", b"twice")
        assert len(place.names) == 1
        await asyncio.gather(*(client.blob(f"c{number}", b"at once") for number in range(4)))
        assert len(place.names) == 2


@pytest.mark.parametrize("what", ["refuse", "cut", "stall"])
async def test_a_push_that_the_object_store_rejects_can_be_finished_later(
    tmp_path: Path, gate: Gate, place: Place, what: str
) -> None:
    """503 with the specification's body; nothing is visible; a PUT without a body finishes it later."""
    digest = digests.of(LONG)
    place.changes["timeout_s"] = 4 if what == "stall" else 30
    async with serve(tmp_path / "data", **place.keys) as client:
        location = await client.begin("a")
        gate.choose = lambda method, path: what if "partNumber=2" in path else "pass"
        refused = await client("PUT", f"{location}?digest={digest}", LONG)
        assert (refused.status, refused.code) == (503, "UNAVAILABLE")
        assert "Retry-After" in refused.headers
        assert SECRET not in refused.body.decode()
        assert (await client("HEAD", f"/v2/a/blobs/{digest}")).status == 404
        assert place.names == []
        gate.choose = lambda method, path: "pass"
        assert (await client("PUT", f"{location}?digest={digest}")).status == 201
        assert (await client("GET", f"/v2/a/blobs/{digest}")).body == LONG
        gate.choose = lambda method, path: "refuse"
        whole = await client("POST", f"/v2/a/blobs/uploads/?digest={digests.of(b'x')}", b"x")
        assert whole.status == 503
        assert list(client.registry.blobs.incoming_files()) == []


async def test_a_pull_while_the_object_store_is_down_gets_503(
    tmp_path: Path, gate: Gate, place: Place
) -> None:
    async with serve(tmp_path / "data", **place.keys) as client:
        digest = await client.blob("a", LONG)
        assert (await client("GET", f"/v2/a/blobs/{digest}")).status == 200
        gate.choose = lambda method, path: "refuse"
        assert (await client("GET", f"/v2/a/blobs/{digest}")).status == 200  # the file is here
        forget_files(client)
        for headers in ({}, {"Range": "bytes=5-9"}):
            answer = await client("GET", f"/v2/a/blobs/{digest}", **headers)
            assert (answer.status, answer.code) == (503, "UNAVAILABLE")
        assert (await client("HEAD", f"/v2/a/blobs/{digest}")).status == 200
        gate.choose = lambda method, path: "pass"
        assert (await client("GET", f"/v2/a/blobs/{digest}")).body == LONG


async def test_an_object_store_that_fails_during_a_response_truncates_it(
    tmp_path: Path, gate: Gate, place: Place
) -> None:
    """The client must be able to see that the body is incomplete."""
    async with serve(tmp_path / "data", **place.keys) as client:
        digest = await client.blob("a", LONG)
        forget_files(client)
        passed = itertools.count()
        gate.choose = lambda method, path: "pass" if next(passed) < 2 else "refuse"
        with pytest.raises(Exception, match=r"payload|disconnected|reset"):
            await client("GET", f"/v2/a/blobs/{digest}")
        gate.choose = lambda method, path: "pass"
        assert (await client("GET", f"/v2/a/blobs/{digest}")).body == LONG


async def test_wrong_bytes_in_the_bucket_are_never_served(tmp_path: Path, place: Place) -> None:
    import obstore

    async with serve(tmp_path / "data", **place.keys) as client:
        digest = await client.blob("a", LONG)
        forget_files(client)
        [name] = place.names
        obstore.put(place.bucket()._store, name, b"!" + LONG[1:])
        with pytest.raises(Exception, match=r"payload|disconnected|reset"):
            await client("GET", f"/v2/a/blobs/{digest}")
        assert list(client.registry.blobs.files()) == []
        found = await asyncio.to_thread(check, tmp_path / "data", bucket=place.bucket())
        assert [finding.where for finding in found.findings] == [str(digest)]
        assert "/quarantine/" in found.findings[0].done
        assert place.names == []
        assert (await client("GET", f"/v2/a/blobs/{digest}")).status == 404
        await client.blob("a", LONG)
        assert (await client("GET", f"/v2/a/blobs/{digest}")).body == LONG


async def test_check_distinguishes_lost_objects_from_an_unreachable_store(
    tmp_path: Path, gate: Gate, place: Place
) -> None:
    async with serve(tmp_path / "data", **place.keys) as client:
        lost, spoilt_copy = await client.blob("a", b"lost"), await client.blob("a", b"copy")
        lost_name = next(name for name in place.names if lost.encoded in name)
        place.bucket().delete([lost_name])
        gate.choose = lambda method, path: "refuse"
        with pytest.raises(Exception, match="object store"):
            await asyncio.to_thread(check, tmp_path / "data", bucket=place.bucket(by_gate=True))
        assert (await client("HEAD", f"/v2/a/blobs/{lost}")).status == 200
        gate.choose = lambda method, path: "pass"
        client.registry.blobs.path_of(spoilt_copy).write_bytes(b"ypoc")
        found = await asyncio.to_thread(check, tmp_path / "data", bucket=place.bucket())
        assert {finding.where for finding in found.findings} == {str(lost), str(spoilt_copy)}
        assert (await client("HEAD", f"/v2/a/blobs/{lost}")).status == 404
        assert (await client("GET", f"/v2/a/blobs/{spoilt_copy}")).body == b"copy"


async def test_collection_removes_unreferenced_objects(tmp_path: Path, place: Place) -> None:
    import obstore

    bucket, policy = place.bucket(), Policy(grace_s=0)
    async with serve(tmp_path / "data", **place.keys) as client:
        digest = await client.blob("a", b"gone")
        await client("DELETE", f"/v2/a/blobs/{digest}")
        stray = f"blobs/sha256/00/{'0' * 64}/of-an-upload-that-died"
        obstore.put(bucket._store, stray, b"x")
        done = await asyncio.to_thread(collect, tmp_path / "data", policy, bucket=bucket)
        assert (done.blobs, done.objects) == (1, 0)
        assert place.names == [stray]  # it may be of one that has not ended
        later = time.time() + 4000
        done = await asyncio.to_thread(collect, tmp_path / "data", policy, bucket=bucket, now=later)
        assert done.objects == 1
        assert place.names == []
        assert (await client("GET", f"/v2/a/blobs/{digest}")).status == 404


async def test_pushes_continue_during_collection(tmp_path: Path, place: Place) -> None:
    """Without grace period, acknowledged blobs that a manifest references stay."""
    from support.registry.filling import image_manifest

    async with serve(tmp_path / "data", **place.keys) as client:
        pushed, over = [], False

        async def push(number: int) -> None:
            layer = f"layer {number % 3}".encode()
            parts = [(await client.blob("a", content), len(content)) for content in (b"{}", layer)]
            answer = await client.manifest("a", f"t{number}", image_manifest(parts[0], parts[1:]))
            if answer.status == 201:
                pushed.append(parts)
                await client("DELETE", f"/v2/a/manifests/t{number - 4}")

        async def collect_on() -> None:
            while not over:
                await asyncio.to_thread(
                    collect,
                    tmp_path / "data",
                    Policy(grace_s=0, keep_untagged_s=1e-6),
                    bucket=place.bucket(),
                )

        collecting = asyncio.ensure_future(collect_on())
        for number in range(24):
            await push(number)
        over = True
        await collecting
        assert pushed
        found = await asyncio.to_thread(check, tmp_path / "data", bucket=place.bucket())
        assert found.findings == []


async def test_clients_can_be_redirected_to_the_bucket(tmp_path: Path, gate: Gate, place: Place) -> None:
    place.changes["redirect"] = True
    async with serve(tmp_path / "data", **place.keys) as client:
        digest = await client.blob("a", b"elsewhere")
        answer = await client("GET", f"/v2/a/blobs/{digest}")
        assert answer.status == 307
        assert answer.headers["Docker-Content-Digest"] == str(digest)
        assert answer.headers["Location"].startswith(gate.url)
        followed = await client("GET", answer.headers["Location"], Range="bytes=4-8")
        assert (followed.status, followed.body) == (206, b"where")
        assert (await client("HEAD", f"/v2/a/blobs/{digest}")).status == 200


async def test_other_nodes_get_blobs_from_the_bucket(tmp_path: Path, place: Place) -> None:
    """Pieces are sent as they arrive from the bucket; the fetching node stores the blob in its own
    bucket."""
    node = {"rdma_enabled": True, "rdma_listen_addr": "127.0.0.1", "rdma_listen_port": 0}
    other = replace(place, settings=replace(place.settings, prefix=place.settings.prefix + "-other"))
    async with serve(tmp_path / "one", **node, **place.keys) as one:
        digest, short = await one.blob("a", LONG), await one.blob("a", b"short")
        forget_files(one)
        address = one.program.nodes.address  # type: ignore[attr-defined]
        async with serve(tmp_path / "two", **node, peers=address, **other.keys) as two:
            assert (await two("GET", f"/v2/a/blobs/{digest}")).body == LONG
            assert (await two("GET", f"/v2/a/blobs/{short}")).body == b"short"
            assert len(other.names) == 2
            assert one.registry.recall is not None
            assert one.registry.recall.bucket.received_bytes == len(LONG) + len(b"short")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"secret_key": "wrong-wrong-wrong"}, "SignatureDoesNotMatch"),
        ({"bucket": "no-such-bucket"}, "NoSuchBucket"),
        ({"endpoint": "http://127.0.0.1:1"}, "127.0.0.1:1"),
    ],
    ids=["credentials", "bucket", "unreachable"],
)
async def test_an_unusable_bucket_fails_the_start(
    tmp_path: Path, place: Place, changes: dict[str, str], words: str
) -> None:
    place.changes |= changes
    with pytest.raises(UnavailableError, match=words) as told:
        async with serve(tmp_path / "data", **place.keys):
            raise AssertionError
    assert "wrong-wrong" not in str(told.value)


async def test_a_prefix_belongs_to_one_registry(tmp_path: Path, place: Place) -> None:
    async with serve(tmp_path / "one", **place.keys) as client:
        await client.blob("a", b"mine")
    with pytest.raises(UnavailableError, match="another registry uses this prefix"):
        async with serve(tmp_path / "two", **place.keys):
            raise AssertionError
    with pytest.raises(UnavailableError, match="bucket is empty"):
        async with serve(tmp_path / "one"):
            raise AssertionError
    with pytest.raises(UnavailableError, match="bucket is empty"):
        check(tmp_path / "one")
    with pytest.raises(UnavailableError, match="bucket is empty"):
        collect(tmp_path / "one", Policy())


async def test_blobs_from_before_the_bucket_remain_files(tmp_path: Path, place: Place) -> None:
    """Also in a database of the previous format."""
    async with serve(tmp_path / "data") as client:
        digest = await client.blob("a", b"older")
    database = sqlite3.connect(tmp_path / "data" / "registry.db")
    database.execute("ALTER TABLE blobs DROP COLUMN object")
    database.execute("PRAGMA user_version = 1")
    database.commit()
    database.close()
    place.changes["cache_size"] = 0
    async with serve(tmp_path / "data", **place.keys) as client:
        await client.blob("a", b"newer")
        assert (await client("GET", f"/v2/a/blobs/{digest}")).body == b"older"
        assert [found for found, _ in client.registry.blobs.files()] == [digest]
        assert (await asyncio.to_thread(check, tmp_path / "data", bucket=place.bucket())).findings == []


async def test_a_killed_upload_leaves_nothing_visible(tmp_path: Path, gate: Gate, place: Place) -> None:
    """After SIGKILL between the last part and the completion there is no blob, and the upload can be
    finished."""
    lines = [f"{key.rpartition('__')[2]} = {json.dumps(value)}" for key, value in place.keys.items()]
    config = tmp_path / "verbena.toml"
    config.write_text("\n".join(("[registry.s3]", *lines, "")))
    config.chmod(0o600)
    digest = digests.of(LONG)

    def start() -> Any:
        return registry_process(tmp_path / "data", "--config", str(config))

    gate.choose = lambda method, path: "stall" if method == "POST" and "uploadId" in path else "pass"
    manager = start()
    server = await asyncio.to_thread(manager.__enter__)
    location = (await asyncio.to_thread(server.request, "POST", "/v2/a/blobs/uploads/", b""))[1]["Location"]
    push = asyncio.ensure_future(
        asyncio.to_thread(server.request, "PUT", f"{location}?digest={digest}", LONG)
    )
    await asyncio.wait_for(gate.stalled.wait(), 30)
    server.process.send_signal(signal.SIGKILL)
    with pytest.raises(Exception, match=r"closed|reset|remote"):
        await push
    await asyncio.to_thread(manager.__exit__, None, None, None)
    assert place.names == []
    gate.choose = lambda method, path: "pass"
    manager = start()
    server = await asyncio.to_thread(manager.__enter__)
    try:
        head = await asyncio.to_thread(server.request, "HEAD", f"/v2/a/blobs/{digest}")
        assert head[0] == 404
        done = await asyncio.to_thread(server.request, "PUT", f"{location}?digest={digest}", b"")
        assert done[0] == 201
        got = await asyncio.to_thread(server.request, "GET", f"/v2/a/blobs/{digest}")
        assert got[2] == LONG
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"\.\[s3\]"):
        Bucket(BucketSettings("any"))
