"""Pages refuse the host names of other sites (DNS rebinding), and other sites' pages change nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import aiohttp
import pytest
from support.registry.http_client import Client, serve

import verbena
from verbena.transport import Settings
from verbena.transport.observe.host_names import HostNames

OWN = socket.gethostname().lower()
ALLOWED = ["127.0.0.1:9121", "[::1]:9121", "192.0.2.7", "localhost", "LocalHost:80", "localhost.", OWN]
FOREIGN = [
    *("evil.example", "evil.example:9121", "localhost.evil.example", "127.0.0.1.evil.example", ""),
    *("user@localhost", "localhost/path", "localhost:x", "[::1", "127.0.0.1:99999", "0x7f.1"),
]


@pytest.mark.parametrize("host", ALLOWED)
def test_a_name_of_this_machine_is_allowed(host: str) -> None:
    assert HostNames().refusal([host]) == ""


@pytest.mark.parametrize("host", FOREIGN)
def test_any_other_name_is_refused(host: str) -> None:
    """The text names the key under which the name can be allowed."""
    assert "metrics.host_names" in HostNames().refusal([host])
    assert HostNames().refusal(["localhost", host])


def test_further_names_are_configured() -> None:
    names = HostNames(("store-1.example.com",))
    assert names.refusal(["Store-1.example.com:9121"]) == ""
    assert names.refusal(["store-2.example.com"])


def test_a_request_without_the_header_is_allowed() -> None:
    """Browsers always send it."""
    assert HostNames().refusal([]) == ""


async def _status(address: str, path: str, host: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}{path}", headers={"Host": host}) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize("path", ["/", "/page.js", "/status.json", "/metrics"])
async def test_a_node_serves_its_pages_under_its_names_only(path: str) -> None:
    settings = Settings(metrics_listen="127.0.0.1:0", metrics_host_names=("store.example",))
    async with verbena.listen("127.0.0.1:0", config=settings) as listener:
        (server,) = listener.node._metrics_servers
        for host in (server.address, "store.example"):
            assert (await _status(server.address, path, host))[0] == 200
        status, text = await _status(server.address, path, "evil.example")
        assert (status, text) == (
            421,
            "'evil.example' is not a name of this node: add it to metrics.host_names\n",
        )
        # a health check says nothing about the node, and its name is that of a load balancer
        assert (await _status(server.address, "/healthz", "evil.example"))[0] == 200


async def test_a_registry_serves_its_pages_under_its_names_only(tmp_path: Path) -> None:
    """Clients such as docker use any name for the API."""
    async with serve(tmp_path, host_names="hub.example", metrics__listen="127.0.0.1:0") as client:
        metrics = client.program.metrics_address.removeprefix("http://")  # type: ignore[attr-defined]
        own = client.base.removeprefix("http://")
        for address, path in ((own, "/"), (own, "/ui/app.js"), (own, "/ui/node.json"), (metrics, "/metrics")):
            assert (await _status(address, path, address))[0] == 200
            assert (await _status(address, path, "evil.example"))[0] == 421
        assert (await _status(own, "/", "hub.example"))[0] == 200
        assert (await _status(metrics, "/metrics", "hub.example"))[0] == 421
        assert (await _status(own, "/v2/", "registry.example"))[0] == 200


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("", "http://evil.example"),
        ("", "null"),
        ("evil.example", "http://evil.example"),  # its name points at this machine
        ("", "http://127.0.0.1:1"),
    ],
)
async def test_a_page_of_another_site_changes_nothing_in_a_registry(
    tmp_path: Path, host: str, origin: str
) -> None:
    """Uploads, pushes and deletes. The registry's own page, and clients without a browser, may."""
    async with serve(tmp_path) as client:
        digest = await client.blob("app", b"a layer")
        own = client.base.removeprefix("http://")
        headers = {"Host": host or own, "Origin": origin}
        for method, path in (
            ("POST", "/v2/app/blobs/uploads/"),
            ("PUT", "/v2/app/manifests/latest"),
            ("DELETE", f"/v2/app/blobs/{digest}"),
        ):
            answer = await client(method, path, b"{}", **headers)
            assert (answer.status, answer.code) == (403, "DENIED")
        assert (await client("HEAD", f"/v2/app/blobs/{digest}")).status == 200
        assert await _begins(client, Origin=client.base)
        assert await _begins(client)


async def _begins(client: Client, **headers: str) -> bool:
    return (await client("POST", "/v2/app/blobs/uploads/", **headers)).status == 202
