"""Requests put together at random from what clients send and from what they should not: every one is
answered, none by a fault of ours, and what is refused says so in the specification's words."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from urllib.parse import quote

import pytest
from support.registry.filling import image_manifest
from support.registry.http_client import Client, serve

from verbena.registry import digests
from verbena.registry.errors import CODES
from verbena.registry.manifests import OCI_INDEX, OCI_MANIFEST

REQUESTS = 150
BLOB = digests.of(b"hello")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
NAMES = ("a", "a/b", "A", "..", "a/../b", "a//b", "_", "é", "a" * 300, "a%2Fb", "a b", "\x00", "blobs", "")
WORDS = (
    *(
        str(BLOB),
        f"sha512:{'0' * 128}",
        f"sha256:{'0' * 64}",
        "sha256:",
        "sha256:zz",
        "md5:00",
        ":",
        "latest",
    ),
    *(
        "",
        "-",
        "..",
        "%00",
        "t" * 129,
        "uploads",
        "list",
        "x" * 2000,
        "\u0661",
        "00000000-0000-0000-0000-000000000000",
    ),
)
QUERIES = ("digest", "mount", "from", "n", "last", "artifactType", "digest-algorithm", "tag", "scope", "x")
VALUES = (*WORDS, "0", "1", "-1", "9" * 40, "a", "a/b", "md5", "sha512", "'; DROP TABLE tags; --")
HEADERS = ("Range", "Content-Range", "If-None-Match", "If-Range", "Authorization", "Content-Type", "Accept")
SAID = (
    *(
        "bytes=0-1",
        "bytes=-1",
        "bytes=9-",
        "0-4",
        "5-9",
        "bytes 0-4/5",
        "x",
        "-",
        "*",
        f'"{BLOB}"',
        "W/*",
        "9" * 50,
    ),
    *(
        "Basic !!",
        "Basic OjpA",
        "Bearer x.y.z",
        "Bearer",
        "Digest x",
        OCI_MANIFEST,
        OCI_INDEX,
        "text/plain",
        ";",
    ),
)


def a_path(choose: random.Random, uploads: list[str]) -> str:
    name, word = choose.choice(NAMES), choose.choice(WORDS)
    kind = choose.choice(("manifests", "blobs", "tags", "referrers", "blobs/uploads", "x"))
    path = choose.choice(
        [
            *(f"/v2/{quote(name)}/{kind}/{quote(word)}", f"/v2/{quote(name)}/blobs/uploads/", "/v2/_catalog"),
            *("/v2/", "/token", "/", f"/{quote(word)}", choose.choice(uploads)),
        ]
    )
    queries = [
        f"{choose.choice(QUERIES)}={quote(choose.choice(VALUES))}" for _ in range(choose.choice((0, 0, 1, 3)))
    ]
    return path + ("?" + "&".join(queries) if queries else "")


@pytest.mark.parametrize("seed", range(4))
async def test_any_request_gets_a_response(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    choose = random.Random(seed)
    async with serve(tmp_path / "data") as client:
        config = await client.blob("a", b"hello")
        manifest = image_manifest((config, 5), [])
        await client.manifest("a", "latest", manifest)
        uploads = [await client.begin(choose.choice(("a", "a/b"))) for _ in range(4)]
        bodies = (None, b"", b"hello", b"{}", b"[", manifest, bytes(70_000))
        for _ in range(REQUESTS):
            await one(client, choose, uploads, bodies)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_malformed_http_is_rejected_without_a_log_line(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Any client can send it, so it must not fill the disk."""
    host, port = client.base.removeprefix("http://").split(":")
    for nonsense in (
        b"X / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA\r\n\r\n",
        b"\x16\x03\x01" * 20,
        b"G" * 9000,
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(nonsense)
        assert (await reader.readline()).startswith(b"HTTP/1.0 400 ")
        writer.close()
    assert caplog.records == []


async def one(
    client: Client, choose: random.Random, uploads: list[str], bodies: tuple[bytes | None, ...]
) -> None:
    method, path = choose.choice(METHODS), a_path(choose, uploads)
    headers = {choose.choice(HEADERS): choose.choice(SAID) for _ in range(choose.choice((0, 1, 2)))}
    body = choose.choice(bodies) if method in ("POST", "PUT", "PATCH") else None
    answer = await client(
        method, path, body, **{key.replace("-", "_"): text for key, text in headers.items()}
    )
    said = (method, path, headers, answer)
    assert answer.status < 500, said
    if answer.status >= 400 and method != "HEAD":
        assert answer.code in CODES, said
