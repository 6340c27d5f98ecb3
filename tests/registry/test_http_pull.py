"""Pulling: GET and HEAD of manifests and blobs, with every kind of range and condition."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.registry.filling import image_manifest
from support.registry.http_client import Client

from verbena.registry import digests
from verbena.registry.http.ranges import Unsatisfiable, matches, parse_content_range, parse_range
from verbena.registry.http.routes import Route, route
from verbena.registry.manifests import OCI_MANIFEST

CONTENT = random.Random(3).randbytes(200_000)
ABSENT = digests.of(b"absent")


async def test_the_base_endpoint_returns_the_api_version(client: Client) -> None:
    for path in ("/v2/", "/v2"):
        assert (await client("GET", path)).status == 200


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
@pytest.mark.parametrize("size", [0, 1, 5000, 200_000])
async def test_get_and_head_of_a_blob(client: Client, algorithm: str, size: int) -> None:
    digest = await client.blob("lib/app", CONTENT[:size], algorithm)
    got = await client("GET", f"/v2/lib/app/blobs/{digest}")
    assert (got.status, got.body) == (200, CONTENT[:size])
    head = await client("HEAD", f"/v2/lib/app/blobs/{digest}")
    assert (head.status, head.body) == (200, b"")
    for answer in (got, head):
        assert answer.headers["Docker-Content-Digest"] == str(digest)
        assert answer.headers["Content-Length"] == str(size)
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-4999", 0, 5000),
        ("bytes=100-", 100, 200_000),
        ("bytes=199999-", 199_999, 200_000),
        ("bytes=-1", 199_999, 200_000),
        ("bytes=-300000", 0, 200_000),
        ("bytes=50000-149999", 50_000, 150_000),
        ("bytes=1-999999999", 1, 200_000),
        ("Bytes = 7 - 8 ", 7, 9),
    ],
)
async def test_a_range_is_exact(client: Client, asked: str, start: int, end: int) -> None:
    digest = await client.blob("a", CONTENT)
    got = await client("GET", f"/v2/a/blobs/{digest}", Range=asked)
    assert (got.status, got.body) == (206, CONTENT[start:end])
    assert got.headers["Content-Range"] == f"bytes {start}-{end - 1}/200000"
    assert got.headers["Content-Length"] == str(end - start)
    head = await client("HEAD", f"/v2/a/blobs/{digest}", Range=asked)
    assert (head.status, head.headers["Content-Length"]) == (206, str(end - start))


@pytest.mark.parametrize("asked", ["bytes=200000-", "bytes=200000-200001", "bytes=-0", "bytes=500-0"])
async def test_a_range_without_a_byte_is_416(client: Client, asked: str) -> None:
    digest = await client.blob("a", CONTENT)
    got = await client("GET", f"/v2/a/blobs/{digest}", Range=asked)
    assert got.status == 416
    assert got.headers["Content-Range"] == "bytes */200000"


@pytest.mark.parametrize("asked", ["bytes=", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", "bytes=-", "0-5", ""])
async def test_other_ranges_get_the_whole_blob(client: Client, asked: str) -> None:
    digest = await client.blob("a", b"hello")
    got = await client("GET", f"/v2/a/blobs/{digest}", Range=asked)
    assert (got.status, got.body) == (200, b"hello")


async def test_an_empty_blob_has_no_range(client: Client) -> None:
    digest = await client.blob("a", b"")
    assert (await client("GET", f"/v2/a/blobs/{digest}", Range="bytes=0-")).status == 416


async def test_if_range_with_another_tag_gets_the_whole_blob(client: Client) -> None:
    digest = await client.blob("a", CONTENT)
    path, part = f"/v2/a/blobs/{digest}", "bytes=0-9"
    assert (await client("GET", path, Range=part, If_Range=f'"{digest}"')).status == 206
    assert (await client("GET", path, Range=part, If_Range='"other"')).body == CONTENT
    assert (await client("GET", path, Range=part, If_Range="Sat, 29 Oct 1994 19:43:31 GMT")).status == 200


async def test_a_matching_etag_is_304(client: Client) -> None:
    config = await client.blob("a", b"{}")
    await client.manifest("a", "latest", image_manifest((config, 2), []))
    for path in (f"/v2/a/blobs/{config}", "/v2/a/manifests/latest"):
        tag = (await client("HEAD", path)).headers["ETag"]
        for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            got = await client("GET", path, If_None_Match=known)
            assert (got.status, got.body) == (304, b"")
            assert got.headers["ETag"] == tag
        assert (await client("GET", path, If_None_Match='"other"')).status == 200


async def test_a_manifest_by_tag_and_by_digest(client: Client) -> None:
    config = await client.blob("a", b"{}")
    content = image_manifest((config, 2), [])
    digest = digests.of(content)
    await client.manifest("a", "latest", content)
    for reference in ("latest", str(digest)):
        got = await client("GET", f"/v2/a/manifests/{reference}", Accept="application/json")
        assert (got.status, got.body) == (200, content)
        head = await client("HEAD", f"/v2/a/manifests/{reference}")
        assert (head.status, head.body) == (200, b"")
        for answer in (got, head):
            assert answer.headers["Content-Type"] == OCI_MANIFEST
            assert answer.headers["Docker-Content-Digest"] == str(digest)
            assert answer.headers["Content-Length"] == str(len(content))


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"/v2/a/blobs/{ABSENT}", 404, "BLOB_UNKNOWN"),
        (f"/v2/none/blobs/{ABSENT}", 404, "NAME_UNKNOWN"),
        ("/v2/a/blobs/sha256:short", 400, "DIGEST_INVALID"),
        ("/v2/a/blobs/md5:d41d8cd98f00b204e9800998ecf8427e", 400, "DIGEST_INVALID"),
        ("/v2/a/blobs/latest", 400, "DIGEST_INVALID"),
        ("/v2/a/manifests/absent", 404, "MANIFEST_UNKNOWN"),
        (f"/v2/a/manifests/{ABSENT}", 404, "MANIFEST_UNKNOWN"),
        ("/v2/none/manifests/latest", 404, "NAME_UNKNOWN"),
        ("/v2/a/manifests/sha256:short", 400, "DIGEST_INVALID"),
        ("/v2/a/manifests/-bad", 404, "MANIFEST_UNKNOWN"),
        ("/v2/UPPER/manifests/latest", 400, "NAME_INVALID"),
        ("/v2/a/../b/nothing", 404, "UNSUPPORTED"),
        ("/v2/a%2F..%2Fb/manifests/latest", 400, "NAME_INVALID"),
        ("/nothing", 404, "UNSUPPORTED"),
    ],
)
async def test_unknown_content_is_404(client: Client, path: str, status: int, code: str) -> None:
    await client.blob("a", b"something")
    got = await client("GET", path)
    assert (got.status, got.code) == (status, code)
    assert got.headers["Content-Type"] == "application/json"
    assert (await client("HEAD", path)).status == status


async def test_an_unsupported_method_is_405_with_allow(client: Client) -> None:
    got = await client("PATCH", "/v2/a/manifests/latest")
    assert (got.status, got.code) == (405, "UNSUPPORTED")
    assert got.headers["Allow"] == "GET, HEAD, PUT, DELETE"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v2/a/b/manifests/x", Route("manifest", "a/b", "x")),
        ("/v2/a/blobs/uploads/", Route("uploads", "a")),
        ("/v2/a/blobs/uploads", Route("uploads", "a")),
        ("/v2/a/blobs/uploads/x", Route("upload", "a", "x")),
        ("/v2/blobs/blobs/blobs/x", Route("blob", "blobs/blobs", "x")),
        ("/v2/tags/list/tags/list", Route("tags", "tags/list")),
        ("/v2/a/referrers/x", Route("referrers", "a", "x")),
        ("/v2/_catalog", Route("catalog")),
        ("/v2/manifests/x", None),
        ("/v2/a/manifests/", None),
        ("/v3/a/manifests/x", None),
        ("/v2/" + "a/" * 600 + "manifests/x", None),
    ],
)
def test_paths_are_parsed_from_their_end(path: str, expected: Route | None) -> None:
    assert route(path) == expected


@given(st.text(alphabet="bytes=- 0123456789,*/", max_size=24), st.integers(0, 30))
def test_any_range_lies_within_the_blob(header: str, size: int) -> None:
    try:
        found = parse_range(header, size)
    except Unsatisfiable:
        found = (0, size + 1)
    assert found is None or found == (0, size + 1) or 0 <= found[0] < found[1] <= size


@given(st.text(alphabet="bytes=- 0123456789,*/", max_size=24))
def test_any_content_range_goes_forward(header: str) -> None:
    found = parse_content_range(header)
    assert found is None or 0 <= found[0] < found[1]


@given(st.text(max_size=40))
def test_any_condition_header_parses(header: str) -> None:
    assert matches(header, "sha256:x") in (True, False)
    assert matches(f'{header.replace(chr(34), "")},"sha256:x"', "sha256:x")
