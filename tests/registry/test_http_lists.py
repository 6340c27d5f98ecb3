"""Discovery and management: tags, referrers, the catalogue, and deletes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.registry.filling import image_manifest
from support.registry.http_client import Client, serve

from verbena.registry import digests
from verbena.registry.manifests import OCI_INDEX, OCI_MANIFEST

SUBJECT = digests.of(b"subject")


async def image(client: Client, name: str, tag: str, **fields: object) -> str:
    config = await client.blob(name, b"{}")
    answer = await client.manifest(name, tag, image_manifest((config, 2), [], **fields))
    assert answer.status == 201
    return str(answer.headers["Docker-Content-Digest"])


async def test_tags_in_pages(client: Client) -> None:
    for tag in ("b", "a", "C", "1"):
        await image(client, "lib/app", tag)
    got = await client("GET", "/v2/lib/app/tags/list")
    assert got.json == {"name": "lib/app", "tags": ["1", "C", "a", "b"]}
    assert "Link" not in got.headers
    page = await client("GET", "/v2/lib/app/tags/list?n=3")
    assert page.json["tags"] == ["1", "C", "a"]
    assert page.headers["Link"] == '</v2/lib/app/tags/list?n=3&last=a>; rel="next"'
    rest = await client("GET", "/v2/lib/app/tags/list?n=3&last=a")
    assert rest.json["tags"] == ["b"]
    assert "Link" not in rest.headers
    assert (await client("GET", "/v2/lib/app/tags/list?last=a")).json["tags"] == ["b"]
    assert (await client("GET", "/v2/lib/app/tags/list?last=B")).json["tags"] == ["C", "a", "b"]
    none = await client("GET", "/v2/lib/app/tags/list?n=0")
    assert (none.json["tags"], "Link" in none.headers) == ([], False)


@pytest.mark.parametrize("n", ["-1", "x", "1.5", "9" * 30, "\u0663"])
async def test_a_page_of_length_0(client: Client, n: str) -> None:
    await image(client, "a", "t")
    got = await client("GET", f"/v2/a/tags/list?n={n}")
    assert (got.status, got.code) == (400, "UNSUPPORTED")


async def test_tags_of_an_unknown_repository(client: Client) -> None:
    got = await client("GET", "/v2/none/tags/list")
    assert (got.status, got.code) == (404, "NAME_UNKNOWN")


async def test_the_catalogue_in_pages(client: Client) -> None:
    for name in ("b", "a/x", "c"):
        await client.blob(name, b"{}")
    assert (await client("GET", "/v2/_catalog")).json == {"repositories": ["a/x", "b", "c"]}
    page = await client("GET", "/v2/_catalog?n=2")
    assert page.json["repositories"] == ["a/x", "b"]
    assert page.headers["Link"] == '</v2/_catalog?n=2&last=b>; rel="next"'
    assert (await client("GET", "/v2/_catalog?n=2&last=b")).json["repositories"] == ["c"]


async def test_referrers_and_their_filter(client: Client) -> None:
    about = {"subject": {"mediaType": OCI_MANIFEST, "digest": str(SUBJECT), "size": 7}}
    signature = await image(client, "a", "s", artifactType="application/sig", annotations={"k": "v"}, **about)
    plain = await image(client, "a", "p", **about)
    everything = await client("GET", f"/v2/a/referrers/{SUBJECT}")
    assert everything.headers["Content-Type"] == OCI_INDEX
    assert "OCI-Filters-Applied" not in everything.headers
    assert everything.json["mediaType"] == OCI_INDEX
    assert {entry["digest"] for entry in everything.json["manifests"]} == {signature, plain}
    only = await client("GET", f"/v2/a/referrers/{SUBJECT}?artifactType=application/sig")
    assert only.headers["OCI-Filters-Applied"] == "artifactType"
    [entry] = only.json["manifests"]
    assert (entry["artifactType"], entry["annotations"]) == ("application/sig", {"k": "v"})
    kind = "application/vnd.oci.image.config.v1%2Bjson"
    by_config = await client("GET", f"/v2/a/referrers/{SUBJECT}?artifactType={kind}")
    assert [entry["digest"] for entry in by_config.json["manifests"]] == [plain]
    none = await client("GET", f"/v2/a/referrers/{SUBJECT}?artifactType=other")
    assert none.json["manifests"] == []


async def test_referrers_of_an_unknown_subject_are_an_empty_list(client: Client) -> None:
    for name in ("a", "none"):
        got = await client("GET", f"/v2/{name}/referrers/{SUBJECT}")
        assert (got.status, got.json["manifests"]) == (200, [])
    bad = await client("GET", "/v2/a/referrers/sha256:short")
    assert (bad.status, bad.code) == (400, "DIGEST_INVALID")


async def test_referrers_are_paginated(client: Client) -> None:
    about = {"subject": {"mediaType": OCI_MANIFEST, "digest": str(SUBJECT), "size": 7}}
    made = {
        await image(client, "a", f"t{number}", annotations={"n": str(number)}, **about) for number in range(5)
    }
    path: str | None = f"/v2/a/referrers/{SUBJECT}?n=2"
    found: list[str] = []
    while path:
        page = await client("GET", path)
        found += [entry["digest"] for entry in page.json["manifests"]]
        link = page.headers.get("Link", "")
        path = link[1 : link.index(">")] if link else None
    assert sorted(found) == sorted(made)


async def test_the_referrers_tag_schema_works(client: Client) -> None:
    """An index under the tag of the digest is an ordinary tag."""
    child = await image(client, "a", "child")
    entries = [{"mediaType": OCI_MANIFEST, "digest": child, "size": 1}]
    index = f'{{"schemaVersion":2,"mediaType":"{OCI_INDEX}","manifests":{entries}}}'.replace(
        "'", '"'
    ).encode()
    tag = str(SUBJECT).replace(":", "-")
    assert (await client.manifest("a", tag, index, OCI_INDEX)).status == 201
    assert (await client("GET", f"/v2/a/manifests/{tag}")).body == index


async def test_deleting_a_tag_a_manifest_and_a_blob(client: Client) -> None:
    digest = await image(client, "a", "one")
    await image(client, "a", "two")
    assert (await client("DELETE", "/v2/a/manifests/one")).status == 202
    assert (await client("GET", "/v2/a/manifests/one")).status == 404
    assert (await client("GET", "/v2/a/manifests/two")).status == 200
    assert (await client("DELETE", f"/v2/a/manifests/{digest}")).status == 202
    for reference in ("two", digest):
        assert (await client("GET", f"/v2/a/manifests/{reference}")).status == 404
        assert (await client("DELETE", f"/v2/a/manifests/{reference}")).code == "MANIFEST_UNKNOWN"
    blob = digests.of(b"{}")
    assert (await client("DELETE", f"/v2/a/blobs/{blob}")).status == 202
    assert (await client("GET", f"/v2/a/blobs/{blob}")).status == 404
    assert (await client("DELETE", f"/v2/a/blobs/{blob}")).code == "BLOB_UNKNOWN"
    assert (await client("DELETE", "/v2/none/manifests/x")).code == "NAME_UNKNOWN"


async def test_deletes_and_writes_can_be_disabled(tmp_path: Path) -> None:
    async with serve(tmp_path, delete=False) as client:
        digest = await image(client, "a", "one")
        for path in ("manifests/one", f"manifests/{digest}", f"blobs/{digests.of(b'{}')}"):
            answer = await client("DELETE", f"/v2/a/{path}")
            assert (answer.status, answer.code) == (405, "UNSUPPORTED")
    async with serve(tmp_path, read_only=True) as client:
        assert (await client("GET", "/v2/a/manifests/one")).status == 200
        assert (await client("POST", "/v2/a/blobs/uploads/")).code == "UNSUPPORTED"
