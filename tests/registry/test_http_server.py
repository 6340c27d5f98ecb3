"""What is around the specification: TLS, figures, logs, notifications, limits, faults, and blobs on their
way."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import hmac
import json
import logging
import random
import ssl
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from support.certificates import Authority
from support.registry.filling import image_manifest
from support.registry.http_client import Client, serve

from verbena.config import Config, override
from verbena.errors import AddressError
from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.incoming import IncomingBlob
from verbena.registry.manifests import OCI_MANIFEST, Manifest
from verbena.registry.program import collect_once, serving

CONTENT = random.Random(5).randbytes(3_000_000)
DIGEST = digests.of(CONTENT)


async def test_blobs_and_ranges_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("registry")
    files = {"tls__certificate": str(own.certificate), "tls__key": str(own.key)}
    async with serve(tmp_path / "data", tls=True, **files) as client:
        assert client.base.startswith("https://")
        context = ssl.create_default_context(cafile=str(authority.ca))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            client.session = session
            digest = await client.blob("a", CONTENT)
            assert (await client("GET", f"/v2/a/blobs/{digest}")).body == CONTENT
            part = await client("GET", f"/v2/a/blobs/{digest}", Range="bytes=1000-2000000")
            assert (part.status, part.body) == (206, CONTENT[1000:2_000_001])


async def test_client_certificates_can_be_required(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, other = authority.issue("registry"), authority.issue("client")
    files = {"tls__certificate": str(own.certificate), "tls__key": str(own.key), "tls__ca": str(authority.ca)}
    async with serve(tmp_path / "data", tls=True, tls__require_client_certificate=True, **files) as client:
        context = ssl.create_default_context(cafile=str(authority.ca))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            client.session = session
            with pytest.raises(aiohttp.ClientError):
                await client("GET", "/v2/")
        context.load_cert_chain(other.certificate, other.key)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            client.session = session
            assert (await client("GET", "/v2/")).status == 200


async def test_the_health_page_asks_the_database(tmp_path: Path) -> None:
    """A writer that hangs or a closed database is reported, and HEAD has no body."""
    async with serve(tmp_path, metrics__listen="127.0.0.1:0") as client:
        program = client.program  # type: ignore[attr-defined]
        page = f"{program.metrics_address}/healthz"
        answer = await client("GET", page)
        assert (answer.status, answer.body) == (200, b"ok\n")
        assert (await client("POST", page)).status == 405
        database, free = program.registry.database, threading.Event()
        hanging = asyncio.ensure_future(database.write(lambda connection: free.wait()))
        answer = await client("GET", page)
        assert (answer.status, answer.body) == (503, b"database: no answer within 1 s\n")
        free.set()
        await hanging
        assert (await client("GET", page)).status == 200
        await asyncio.to_thread(database.close)
        answer = await client("GET", page)
        assert answer.status == 503
        assert answer.body.startswith(b"database: the check failed: ")
        answer = await client("HEAD", page)
        assert (answer.status, answer.body) == (503, b"")


async def test_the_metrics_page(tmp_path: Path) -> None:
    async with serve(tmp_path, metrics__listen="127.0.0.1:0") as client:
        digest = await client.blob("a", CONTENT)
        await client("GET", f"/v2/a/blobs/{digest}")
        await client("GET", "/v2/a/manifests/none")
        address = client.program.metrics_address  # type: ignore[attr-defined]
        page = (await client("GET", f"{address}/metrics")).body.decode()
        for line in (
            'verbena_registry_requests_total{method="GET",endpoint="blob",status="200"} 1',
            'verbena_registry_requests_total{method="GET",endpoint="manifest",status="404"} 1',
            f"verbena_registry_received_bytes_total {len(CONTENT)}",
            'verbena_registry_events_total{action="push",kind="blob"} 1',
            f'verbena_registry_stored{{kind="blob_bytes"}} {len(CONTENT)}',
            'verbena_registry_request_seconds_count{endpoint="blob"} 1',
        ):
            assert line in page.splitlines()
        assert (await client("GET", "/metrics")).status == 404  # not where clients are
        assert (await client("GET", f"{address}/v2/a/tags/list")).status == 403
        from prometheus_client.parser import text_string_to_metric_families

        from verbena.registry.metrics import TABLE

        assert len(list(text_string_to_metric_families(page))) == len(TABLE) + 1  # and how long requests took


async def test_the_access_log_has_a_line_for_each_request(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    async with serve(tmp_path / "data", access_log=str(log)) as client:
        await client("GET", "/v2/", User_Agent='a "b"')
        log.rename(tmp_path / "old.log")
        client.program.server.access_log.reopen()  # type: ignore[attr-defined]
        await client("GET", "/v2/a/manifests/x%0Ay")
    [first] = (tmp_path / "old.log").read_text().splitlines()
    assert '"GET /v2/ HTTP/1.1" 200 2 "a \\x22b\\x22"' in first
    [second] = log.read_text().splitlines()
    assert '"GET /v2/a/manifests/x%0Ay HTTP/1.1" 404' in second


class Hook:
    """A webhook receiver that does not answer at first."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.heard: list[tuple[dict[str, Any], str]] = []
        self.enough = asyncio.Event()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if self.failures:
            self.failures -= 1
            return web.Response(status=503)
        self.heard.append((json.loads(body), request.headers.get("X-Verbena-Signature", "")))
        expected = hmac.new(b"a secret of hooks", body, hashlib.sha256).hexdigest()
        assert self.heard[-1][1] == f"sha256={expected}"
        if len(self.heard) == 4:
            self.enough.set()
        return web.Response()


async def test_webhooks_are_signed_and_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verbena.registry.http.webhooks.FIRST_PAUSE_S", 0.0)
    hook = Hook(failures=2)
    runner = web.ServerRunner(web.Server(hook.handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
    async with serve(tmp_path, webhooks=address, webhook_secret="a secret of hooks") as client:
        config = await client.blob("a", b"{}")
        await client.manifest("a", "latest", image_manifest((config, 2), []))
        await client("GET", "/v2/a/manifests/latest")
        await client("DELETE", "/v2/a/manifests/latest")
        await asyncio.wait_for(hook.enough.wait(), 30)
    await runner.cleanup()
    events = [document["events"][0] for document, _ in hook.heard]
    assert [event["action"] for event in events] == ["push", "push", "pull", "delete"]
    assert events[1]["target"]["tag"] == "latest"
    assert events[1]["target"]["mediaType"] == OCI_MANIFEST
    assert events[0]["target"]["digest"] == str(config)


async def test_a_stalled_upload_times_out_and_keeps_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as client:
        program = client.program  # type: ignore[attr-defined]
        object.__setattr__(program.server.settings, "timeout_s", 0.05)
        where = await client.begin("a")
        host, port = client.base.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"PATCH {where} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 408 " in head
        writer.close()
        assert (await client("GET", where)).headers["Range"] == "0-4"


async def test_a_full_disk_is_reported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    where = await client.begin("a")

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("verbena.registry.incoming._write_all", full)
        answer = await client("PUT", f"{where}?digest={DIGEST}", CONTENT)
    assert (answer.status, answer.json["errors"][0]["message"]) == (507, "no space left on device")


async def test_an_internal_error_is_500_and_the_server_continues(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL):
        patch.setattr(client.registry.metadata, "manifest", lambda *arguments: 1 / 0)
        assert (await client("GET", "/v2/a/manifests/x")).status == 500
    assert (await client("GET", "/v2/a/manifests/x")).status == 404


async def test_a_blob_without_its_file_is_unknown(client: Client) -> None:
    digest = await client.blob("a", CONTENT)
    client.registry.blobs.path_of(digest).unlink()
    answer = await client("GET", f"/v2/a/blobs/{digest}")
    assert (answer.status, answer.code) == (404, "BLOB_UNKNOWN")


class Afar:
    """A source that fetches one blob slowly."""

    def __init__(self, client: Client) -> None:
        self.registry = client.registry
        self.incoming = self.registry.blobs.incoming(size=len(CONTENT))

    async def blob(self, repository: str, digest: Digest) -> IncomingBlob | None:
        return self.incoming if digest == DIGEST else None

    async def manifest(self, repository: str, reference: str) -> Manifest | None:
        content = image_manifest((DIGEST, len(CONTENT)), [])
        return Manifest(digests.of(content), OCI_MANIFEST, content) if reference == "afar" else None


async def test_a_blob_being_fetched_is_streamed_to_all_clients(client: Client) -> None:
    source = client.registry.source = Afar(client)
    readers = [asyncio.create_task(client("GET", f"/v2/a/blobs/{DIGEST}")) for _ in range(3)]
    part = asyncio.create_task(client("GET", f"/v2/a/blobs/{DIGEST}", Range="bytes=1999999-2000009"))
    for start in range(0, len(CONTENT), 500_000):
        await source.incoming.append([CONTENT[start : start + 500_000]])
        await asyncio.sleep(0)
    await source.incoming.settle()
    assert [(await reader).body for reader in readers] == [CONTENT] * 3
    assert (await part).body == CONTENT[1_999_999:2_000_010]
    await client.registry.adopt(source.incoming, "a", DIGEST)
    source.incoming.close()
    client.registry.source = None
    assert (await client("GET", f"/v2/a/blobs/{DIGEST}")).body == CONTENT
    assert (await client("GET", "/v2/a/manifests/afar")).status == 404


async def test_a_failed_fetch_aborts_the_response(client: Client) -> None:
    """The client must be able to see that the body is incomplete."""
    source = client.registry.source = Afar(client)
    reader = asyncio.create_task(client("GET", f"/v2/a/blobs/{DIGEST}"))
    await source.incoming.append([CONTENT[:500_000]])
    await source.incoming.settle()
    client.registry.discard(source.incoming, OSError("the peer is gone"))
    with pytest.raises(aiohttp.ClientError):
        await reader
    source.incoming.close()
    assert (await client("GET", "/v2/a/manifests/afar")).status == 200


async def test_a_connection_above_the_limit_is_aborted(tmp_path: Path) -> None:
    async with serve(tmp_path, max_connections=2) as client:
        host, port = client.base.removeprefix("http://").split(":")
        kept = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        for reader, writer in kept:
            writer.write(b"GET /v2/ HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n{}")
        reader, writer = await asyncio.open_connection(host, int(port))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        for _, other in (*kept, (reader, writer)):
            other.close()
        program = client.program  # type: ignore[attr-defined]
        assert "verbena_registry_connections_refused_total 1" in program.server.metrics.page()


async def test_garbage_is_collected_while_serving(tmp_path: Path) -> None:
    keys = {"registry__retention__grace_s": 0}
    async with serve(tmp_path, **keys) as client:
        digest = await client.blob("a", b"lonely")
        program = client.program  # type: ignore[attr-defined]
        config = override(Config(), {"registry.folder": str(tmp_path), "registry.retention.grace_s": 0})
        await collect_once(config, program.server.metrics)
        assert (await client("HEAD", f"/v2/a/blobs/{digest}")).status == 404
        assert 'verbena_registry_collected_total{kind="blobs"} 1' in program.server.metrics.page()


async def test_an_address_in_use_is_named(tmp_path: Path, client: Client) -> None:
    port = int(client.base.rpartition(":")[2])
    config = override(Config(), {"registry.port": port, "registry.folder": str(tmp_path / "other")})
    with pytest.raises(AddressError, match="in use"):
        async with serving(config):
            pass
