"""Pushing: uploads in every way the specification knows, mounts, and manifests."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest
from support.registry.filling import image_manifest
from support.registry.http_client import OCTETS, Client, serve

from verbena.registry import digests
from verbena.registry.manifests import DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST

CONTENT = random.Random(4).randbytes(300_000)
DIGEST = digests.of(CONTENT)


async def pulled(client: Client, name: str, digest: object) -> bytes:
    answer = await client("GET", f"/v2/{name}/blobs/{digest}")
    assert answer.status == 200
    return answer.body


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
async def test_post_then_put(client: Client, algorithm: str) -> None:
    digest = digests.of(CONTENT, algorithm)
    begun = await client("POST", "/v2/a/blobs/uploads/")
    assert begun.status == 202
    assert begun.headers["Docker-Upload-UUID"] in begun.headers["Location"]
    done = await client("PUT", f"{begun.headers['Location']}?digest={digest}", CONTENT, **OCTETS)
    assert done.status == 201
    assert done.headers["Location"] == f"/v2/a/blobs/{digest}"
    assert done.headers["Docker-Content-Digest"] == str(digest)
    assert await pulled(client, "a", digest) == CONTENT


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
async def test_a_single_post(client: Client, algorithm: str) -> None:
    digest = digests.of(CONTENT, algorithm)
    done = await client("POST", f"/v2/a/blobs/uploads/?digest={digest}", CONTENT, **OCTETS)
    assert (done.status, done.headers["Location"]) == (201, f"/v2/a/blobs/{digest}")
    assert await pulled(client, "a", digest) == CONTENT


async def test_a_single_post_with_a_wrong_digest_stores_nothing(client: Client) -> None:
    done = await client("POST", f"/v2/a/blobs/uploads/?digest={digests.of(b'x')}", CONTENT)
    assert (done.status, done.code) == (400, "DIGEST_INVALID")
    assert list(client.registry.blobs.incoming_files()) == []


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
@pytest.mark.parametrize("last_in_put", [True, False])
async def test_chunks_in_order(client: Client, algorithm: str, last_in_put: bool) -> None:
    where = await client.begin("a", f"?digest-algorithm={algorithm}")
    chunks = [CONTENT[start : start + 70_000] for start in range(0, len(CONTENT), 70_000)]
    at = 0
    for chunk in chunks[:-1] if last_in_put else chunks:
        answer = await client("PATCH", where, chunk, Content_Range=f"{at}-{at + len(chunk) - 1}")
        at += len(chunk)
        assert (answer.status, answer.headers["Range"]) == (202, f"0-{at - 1}")
        where = answer.headers["Location"]
        status = await client("GET", where)
        assert (status.status, status.headers["Range"], status.body) == (204, f"0-{at - 1}", b"")
        assert status.headers["Location"] == where
    digest = digests.of(CONTENT, algorithm)
    if last_in_put:
        said = {"Content_Range": f"{at}-{at + len(chunks[-1]) - 1}"}
        done = await client("PUT", f"{where}?digest={digest}", chunks[-1], **said)
    else:
        done = await client("PUT", f"{where}?digest={digest}")
    assert done.status == 201
    assert await pulled(client, "a", digest) == CONTENT


async def test_a_stream_without_ranges_or_length(client: Client) -> None:
    async def body():
        for start in range(0, len(CONTENT), 50_000):
            yield CONTENT[start : start + 50_000]

    where = await client.begin("a")
    answer = await client("PATCH", where, body())
    assert (answer.status, answer.headers["Range"]) == (202, f"0-{len(CONTENT) - 1}")
    assert (await client("PUT", f"{where}?digest={DIGEST}")).status == 201


@pytest.mark.parametrize("said", ["5-9", "1-5", "x", "0", "5-3", "0--4", "-5", "bytes 7-11/20"])
async def test_a_chunk_out_of_order_is_416_and_changes_nothing(client: Client, said: str) -> None:
    where = await client.begin("a")
    for method, place in (("PATCH", where), ("PUT", f"{where}?digest={digests.of(b'hello')}")):
        answer = await client(method, place, b"hello", Content_Range=said)
        assert (answer.status, answer.code) == (416, "BLOB_UPLOAD_INVALID")
        assert (answer.headers["Range"], answer.headers["Location"]) == ("0-0", where)
    assert (await client("PATCH", where, b"hello", Content_Range="0-4")).status == 202
    assert (await client("PATCH", where, b"hello", Content_Range="0-4")).status == 416
    assert (await client("PUT", f"{where}?digest={digests.of(b'hello')}")).status == 201


async def test_a_range_that_contradicts_the_length_is_rejected(client: Client) -> None:
    where = await client.begin("a")
    answer = await client("PATCH", where, b"hello", Content_Range="0-9")
    assert (answer.status, answer.code) == (400, "SIZE_INVALID")
    assert (await client("GET", where)).headers["Range"] == "0-0"


async def test_a_wrong_digest_at_the_end(client: Client) -> None:
    """With a body the upload is cancelled; without one it can be finished with the right digest."""
    where = await client.begin("a")
    await client("PATCH", where, b"hello")
    for wrong in (digests.of(b"x"), "sha256:short", "sha1:" + "0" * 40, "nonsense"):
        answer = await client("PUT", f"{where}?digest={wrong}")
        assert (answer.status, answer.code) == (400, "DIGEST_INVALID")
    assert (await client("PUT", where)).code == "DIGEST_INVALID"
    assert (await client("PUT", f"{where}?digest={digests.of(b'hello')}")).status == 201
    where = await client.begin("a")
    assert (await client("PUT", f"{where}?digest={digests.of(b'x')}", b"hello")).status == 400
    assert (await client("GET", where)).status == 404


async def test_an_upload_can_be_cancelled(client: Client) -> None:
    where = await client.begin("a")
    await client("PATCH", where, b"hello")
    assert (await client("DELETE", where)).status == 204
    for method in ("GET", "PATCH", "PUT", "DELETE"):
        answer = await client(method, f"{where}?digest={digests.of(b'hello')}")
        assert (answer.status, answer.code) == (404, "BLOB_UPLOAD_UNKNOWN")
    assert list(client.registry.blobs.incoming_files()) == []


async def test_an_upload_of_another_repository_is_unknown(client: Client) -> None:
    where = (await client.begin("a")).replace("/a/", "/b/")
    assert (await client("PATCH", where, b"x")).code == "BLOB_UPLOAD_UNKNOWN"


async def test_an_interrupted_upload_can_be_resumed(client: Client) -> None:
    where = await client.begin("a")
    host, port = client.base.removeprefix("http://").split(":")
    _reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"PATCH {where} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(CONTENT)}\r\n\r\n".encode())
    writer.write(CONTENT[:100_000])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    upload = client.registry.uploads.get("a", where.rpartition("/")[2])
    await upload.incoming.arrived(0)
    async with upload.busy:  # the broken request has ended
        at = upload.received
    answer = await client("PATCH", where, CONTENT[at:], Content_Range=f"{at}-{len(CONTENT) - 1}")
    assert answer.status == 202
    assert (await client("PUT", f"{where}?digest={DIGEST}")).status == 201
    assert await pulled(client, "a", DIGEST) == CONTENT


async def test_an_upload_continues_after_a_restart_of_the_server(tmp_path: Path) -> None:
    async with serve(tmp_path) as first:
        where = await first.begin("a")
        await first("PATCH", where, CONTENT[:1000])
    async with serve(tmp_path) as second:
        assert (await second("GET", where)).headers["Range"] == "0-999"
        await second("PATCH", where, CONTENT[1000:])
        assert (await second("PUT", f"{where}?digest={DIGEST}")).status == 201


async def test_a_mount_needs_no_bytes(client: Client) -> None:
    digest = await client.blob("a", b"hello")
    mounted = await client("POST", f"/v2/b/blobs/uploads/?mount={digest}&from=a")
    assert (mounted.status, mounted.headers["Location"]) == (201, f"/v2/b/blobs/{digest}")
    assert await pulled(client, "b", digest) == b"hello"
    assert (await client("POST", f"/v2/c/blobs/uploads/?mount={digest}")).status == 201
    for query in (f"mount={digest}&from=none", f"mount={DIGEST}&from=a", f"mount={DIGEST}"):
        begun = await client("POST", f"/v2/d/blobs/uploads/?{query}")
        assert begun.status == 202
        assert "/uploads/" in begun.headers["Location"]
    assert (await client("POST", "/v2/d/blobs/uploads/?mount=nonsense&from=a")).code == "DIGEST_INVALID"


async def test_an_unknown_algorithm_is_rejected_at_the_start(client: Client) -> None:
    answer = await client("POST", "/v2/a/blobs/uploads/?digest-algorithm=md5")
    assert (answer.status, answer.code) == (400, "DIGEST_INVALID")


async def test_a_blob_above_the_limit_is_rejected(tmp_path: Path) -> None:
    async with serve(tmp_path, max_blob_size=100_000, chunk_min_size=1 << 20) as client:
        begun = await client("POST", "/v2/a/blobs/uploads/")
        assert begun.headers["OCI-Chunk-Min-Length"] == str(1 << 20)
        where = begun.headers["Location"]
        answer = await client("PUT", f"{where}?digest={DIGEST}", CONTENT)
        assert (answer.status, answer.code) == (413, "SIZE_INVALID")

        async def endless():
            for _ in range(8):
                yield CONTENT

        assert (await client("PATCH", where, endless())).status == 413


@pytest.mark.parametrize("kind", [OCI_MANIFEST, DOCKER_MANIFEST])
async def test_a_manifest_by_tag_and_by_digest(client: Client, kind: str) -> None:
    config = await client.blob("a", b"{}")
    document = json.loads(image_manifest((config, 2), [])) | {"mediaType": kind}
    content = json.dumps(document, indent=3).encode()
    for reference in ("v1", str(digests.of(content)), str(digests.of(content, "sha512"))):
        answer = await client.manifest("a", reference, content, kind)
        digest = reference if ":" in reference else str(digests.of(content))
        assert answer.status == 201
        assert answer.headers["Docker-Content-Digest"] == digest
        assert answer.headers["Location"] == f"/v2/a/manifests/{digest}"
        got = await client("GET", answer.headers["Location"])
        assert (got.body, got.headers["Content-Type"]) == (content, kind)


async def test_tags_with_a_digest(client: Client) -> None:
    config = await client.blob("a", b"{}")
    content = image_manifest((config, 2), [])
    digest = digests.of(content)
    answer = await client.manifest("a", f"{digest}?tag=1.2&tag=1&tag=latest", content)
    assert answer.headers.getall("OCI-Tag") == ["1.2", "1", "latest"]
    assert (await client("GET", "/v2/a/tags/list")).json["tags"] == ["1", "1.2", "latest"]
    many = "&".join(f"tag={n}" for n in range(101))
    assert (await client.manifest("a", f"{digest}?{many}", content)).status == 414
    assert (await client.manifest("a", f"{digest}?tag=-bad", content)).status == 400


async def test_invalid_manifests_get_400(client: Client) -> None:
    config = await client.blob("a", b"{}")
    content = image_manifest((config, 2), [])
    lacking = image_manifest((config, 2), [(digests.of(b"1"), 1), (digests.of(b"2"), 1)])
    answer = await client.manifest("a", "latest", lacking)
    assert (answer.status, answer.code) == (404, "MANIFEST_BLOB_UNKNOWN")
    assert len(answer.json["errors"]) == 2
    wrong = await client.manifest("a", str(digests.of(b"x")), content)
    assert (wrong.status, wrong.code) == (400, "DIGEST_INVALID")
    for body, kind in ((b"{", OCI_MANIFEST), (content, OCI_INDEX), (content, "text/plain")):
        answer = await client.manifest("a", "latest", body, kind)
        assert (answer.status, answer.code) == (400, "MANIFEST_INVALID")
    assert (await client("GET", "/v2/a/tags/list")).json["tags"] == []


async def test_a_manifest_above_the_limit_is_rejected(client: Client) -> None:
    config = await client.blob("a", b"{}")
    long = image_manifest((config, 2), [], annotations={"x": "y" * (4_000_000)})
    assert (await client.manifest("a", "long", long)).status == 201
    longer = image_manifest((config, 2), [], annotations={"x": "y" * (4 << 20)})
    answer = await client.manifest("a", "longer", longer)
    assert (answer.status, answer.code) == (413, "SIZE_INVALID")


async def test_a_subject_is_confirmed(client: Client) -> None:
    config = await client.blob("a", b"{}")
    subject = {"mediaType": OCI_MANIFEST, "digest": str(DIGEST), "size": 5}
    answer = await client.manifest("a", "about", image_manifest((config, 2), [], subject=subject))
    assert (answer.status, answer.headers["OCI-Subject"]) == (201, str(DIGEST))


async def test_many_clients_push_one_image_at_once(client: Client) -> None:
    async def push(number: int) -> None:
        layer = await client.blob("a", CONTENT)
        config = await client.blob("a", b"{}")
        content = image_manifest((config, 2), [(layer, len(CONTENT))])
        assert (await client.manifest("a", f"t{number}", content)).status == 201

    await asyncio.gather(*(push(number) for number in range(16)))
    assert len((await client("GET", "/v2/a/tags/list")).json["tags"]) == 16
    assert len(list(client.registry.blobs.files())) == 2
