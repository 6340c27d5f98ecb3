"""Content that no node has is fetched from upstream: once for all nodes, verified, and stored."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.registry import docker_registry
from support.registry.docker_registry import DockerRegistry
from support.registry.filling import image_manifest
from support.registry.nodes import Cluster, follow, pull, settled

from verbena.registry import digests
from verbena.registry.errors import Refused
from verbena.registry.incoming import IncomingBlob, IncomingFailed
from verbena.registry.nodes.settings import PIECE
from verbena.registry.nodes.upstream import Upstream, UpstreamFailed

BLOB = random.Random(11).randbytes(3 * PIECE + 99)
DIGEST = digests.of(BLOB)


class Stub(ThreadingHTTPServer):
    """A registry that requires a token, disconnects, or sends wrong bytes, as the test configures."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.content = BLOB
        self.token = ""
        self.break_after = 0
        self.gets: list[str] = []
        self.tokens_asked: list[dict[str, list[str]]] = []
        self.manifests: dict[str, bytes] = {}


class Handler(BaseHTTPRequestHandler):
    server: Stub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        stub = self.server
        parts = urlsplit(self.path)
        if parts.path == "/token":
            stub.tokens_asked.append(parse_qs(parts.query))
            self._answer(200, json.dumps({"token": stub.token, "expires_in": 300}).encode())
        elif stub.token and self.headers.get("Authorization") != f"Bearer {stub.token}":
            challenge = f'Bearer realm="{stub.url}/token",service="stub",scope="repository:app:pull"'
            self._answer(401, b"", **{"WWW-Authenticate": challenge})
        elif "/manifests/" in parts.path and parts.path.rpartition("/")[2] in stub.manifests:
            content = stub.manifests[parts.path.rpartition("/")[2]]
            stub.gets.append(parts.path)
            self._answer(200, content, **{"Content-Type": json.loads(content)["mediaType"]})
        elif parts.path == f"/v2/app/blobs/{DIGEST}":
            stub.gets.append(self.headers.get("Range", ""))
            start = int(self.headers.get("Range", "bytes=0-")[6:-1])
            self._send(stub.content[start:], 206 if start else 200)
        else:
            self._answer(404, b"")

    def _send(self, content: bytes, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.server.break_after:
            content, self.server.break_after = content[: self.server.break_after], 0
            self.close_connection = True
        self.wfile.write(content)

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_upstream_is_queried_once_for_all_nodes(tmp_path: Path, stub: Stub) -> None:
    """Three nodes with five clients each: one node fetches from upstream, the others from it."""
    async with Cluster(tmp_path, upstreams=(stub.url,)) as cluster:
        nodes = [await cluster.add() for _ in range(3)]
        got = await asyncio.gather(*(pull(node, DIGEST) for node in nodes for _ in range(5)))
        assert all(content == BLOB for content in got)
        assert stub.gets == [""]


async def test_a_token_is_fetched_and_reused(tmp_path: Path, stub: Stub) -> None:
    stub.token = "open-sesame"
    async with Cluster(tmp_path, upstreams=(stub.url,)) as cluster:
        node = await cluster.add()
        assert await pull(node, DIGEST) == BLOB
        with pytest.raises(Refused):
            await node.registry.blob("app", digests.of(b"another"))
    assert stub.tokens_asked == [{"service": ["stub"], "scope": ["repository:app:pull"]}]


async def test_an_interrupted_download_resumes(tmp_path: Path, stub: Stub) -> None:
    """A range request starts at the first missing piece; followers see no error."""
    stub.break_after = PIECE + 1000
    async with Cluster(tmp_path, upstreams=(stub.url,)) as cluster:
        assert await pull(await cluster.add(), DIGEST) == BLOB
    assert stub.gets == ["", f"bytes={PIECE}-"]


async def test_wrong_bytes_from_upstream_are_never_stored(tmp_path: Path, stub: Stub) -> None:
    stub.content = bytes(len(BLOB))
    async with Cluster(tmp_path, upstreams=(stub.url,)) as cluster:
        node = await cluster.add()
        blob = await node.registry.blob("app", DIGEST)
        assert isinstance(blob, IncomingBlob)
        with pytest.raises(IncomingFailed):
            await follow(blob)
        await settled(node)
        assert list(node.registry.blobs.files()) == []
        assert list(node.registry.blobs.incoming_files()) == []


async def test_the_next_upstream_is_used_when_one_is_down(tmp_path: Path, stub: Stub) -> None:
    async with Cluster(tmp_path, upstreams=("http://127.0.0.1:1", stub.url)) as cluster:
        assert await pull(await cluster.add(), DIGEST) == BLOB


async def test_a_tag_follows_upstream_and_stays_while_it_is_down(tmp_path: Path, stub: Stub) -> None:
    """A tag is checked again after its lifetime; an unreachable upstream does not remove stored content."""
    config = (digests.of(b"{}"), 2)
    first, second = image_manifest(config, []), image_manifest(config, [], annotations={"two": "2"})
    stub.manifests["latest"] = first
    async with Cluster(tmp_path, upstreams=(stub.url,)) as cluster:
        believing, doubting = await cluster.add(), await cluster.add(peers=(), tag_lifetime_s=0.0)
        for node in (believing, doubting):
            assert (await node.registry.manifest("app", "latest")).content == first
        stub.manifests["latest"] = second
        assert (await believing.registry.manifest("app", "latest")).content == first
        assert (await doubting.registry.manifest("app", "latest")).content == second
        del stub.manifests["latest"]
        assert (await doubting.registry.manifest("app", "latest")).content == second


@pytest.mark.skipif(docker_registry.PROGRAM is None, reason=docker_registry.REASON)
async def test_docker_registry_works_as_upstream(tmp_path: Path) -> None:
    """Manifest by tag, then its blobs, as a client pulls an image."""
    with DockerRegistry(tmp_path / "docker") as upstream:
        upstream.push("library/app", str(digests.of(b"{}")), b"{}")
        upstream.push("library/app", str(DIGEST), BLOB)
        content = image_manifest((digests.of(b"{}"), 2), [(DIGEST, len(BLOB))])
        upstream.push_manifest("library/app", "v1", content)
        async with Cluster(tmp_path, upstreams=(upstream.url,)) as cluster:
            node = await cluster.add()
            manifest = await node.registry.manifest("library/app", "v1")
            assert manifest.content == content
            for part in (b"{}", BLOB):
                assert await pull(node, digests.of(part), "library/app") == part
            await settled(node)
            upstream.close()
            assert (await node.registry.manifest("library/app", "v1")).content == content
            assert await pull(node, DIGEST, "library/app") == BLOB


@pytest.mark.parametrize("url", ["ftp://somewhere", "http://", "://"])
def test_an_upstream_must_be_a_registry_url(url: str) -> None:
    with pytest.raises(ValueError, match="not a registry URL"):
        Upstream(url)


def test_a_redirect_from_https_to_http_is_not_followed(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is not sent to another host."""
    upstream = Upstream("https://registry.test")
    sent: list[tuple[str, dict[str, str]]] = []

    class Answer:
        status = 307

        def __init__(self) -> None:
            self.headers = {"Location": "http://elsewhere.test/blob"}

    class Connection:
        def close(self) -> None:
            pass

    def request(url: str, headers: dict[str, str]) -> tuple[Any, Any]:
        sent.append((url, headers))
        return Answer(), Connection()

    monkeypatch.setattr(upstream, "_request", request)
    with pytest.raises(UpstreamFailed, match="https to http"):
        upstream.blob("app", DIGEST)
    assert len(sent) == 1


async def test_bytes_are_counted_by_source(tmp_path: Path, stub: Stub) -> None:
    """By the values that the metrics page shows."""
    async with Cluster(tmp_path) as cluster:
        first = await cluster.add(upstreams=(stub.url,))
        second = await cluster.add()
        for node in (first, second):
            assert await pull(node, DIGEST) == BLOB
            await settled(node)
        given, got = first.metric_values(), second.metric_values()
        assert ("received", "upstream", len(BLOB)) in given
        assert ("sent", "", len(BLOB)) in given
        assert ("received", first.address, len(BLOB)) in got
        assert ("fetches", "stored", 1) in got
        assert ("up", first.address, 1.0) in got
