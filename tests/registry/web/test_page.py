"""The page for people, in a real browser: what it shows, by keyboard, in light and dark, and to whom."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support import browser
from support.browser import Aside
from support.registry.filling import Filler, image_manifest
from support.registry.http_client import Client, serve

from verbena.registry.manifests import OCI_INDEX
from verbena.registry.nodes.settings import PIECE

in_browser = pytest.mark.skipif(browser.PROGRAM is None, reason=browser.REASON)


async def fill(client: Client) -> str:
    """Pushes three repositories, an index of two platforms and a name with markup. Returns a digest."""
    filler = Filler(client.registry)
    rng = random.Random(1)
    for name, tags in (("tools/lint", ("1.0", "1.1")), ("web/front", ("latest", "2026.11"))):
        for tag in tags:
            layers = [rng.randbytes(rng.randrange(10_000, 900_000)) for _ in range(4)]
            evil = {"org.example.note": "<img src=x onerror=document.title='evil'>"}
            await filler.image(name, tag, *layers, annotations=evil)
    base = await filler.image("base/debian", "bookworm-amd64", rng.randbytes(5 << 20), rng.randbytes(40_000))
    arm = await filler.image("base/debian", "bookworm-arm64", rng.randbytes(4 << 20), rng.randbytes(30_000))
    parts = [
        {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": str(digest), "size": 600,
         "platform": {"os": "linux", "architecture": machine}}
        for digest, machine in ((base, "amd64"), (arm, "arm64"))
    ]  # fmt: skip
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": parts}
    await client.registry.put_manifest("base/debian", "bookworm", json.dumps(document).encode(), OCI_INDEX)
    return str(base)


@pytest_asyncio.fixture
async def page() -> AsyncIterator[Aside]:
    async with Aside() as opened:
        yield opened


@in_browser
async def test_repositories_tags_layers_and_sizes_are_shown(page: Aside, client: Client) -> None:
    await fill(client)
    await page.open(client.base)
    assert await page.texts("nav li a") == ["base/debian", "tools/lint", "web/front"]
    assert "3 repositories · 7 tags" in (await page.texts("#totals"))[0]
    await page.open(f"{client.base}/#/web/front")
    assert await page.texts("tbody td:first-child") == ["2026.11", "latest"]
    await page.open(f"{client.base}/#/web/front@latest")
    assert await page.texts("tbody td:first-child") == ["config", *(f"layer {n}" for n in range(1, 5))]
    assert await page.texts("tbody .chip") == ["this node"] * 5
    assert await page.evaluate("document.title") == "latest · web/front · Verbena registry"
    assert "<img src=x" in " ".join(await page.texts("dd"))
    assert page.failures == []


@in_browser
async def test_an_index_links_to_its_manifests(page: Aside, client: Client) -> None:
    digest = await fill(client)
    await page.open(f"{client.base}/#/base/debian@bookworm")
    assert await page.texts("tbody td:first-child") == ["linux/amd64", "linux/arm64"]
    await page.evaluate("document.querySelector('tbody a').click()")
    await page.until("document.querySelector('h3')?.textContent === 'Blobs'")
    assert digest in await page.texts("dd code")
    assert page.failures == []


@in_browser
async def test_everything_can_be_reached_by_the_keyboard(page: Aside, client: Client) -> None:
    """ "/" focuses the filter; arrow keys and Enter open a repository and a tag."""
    await fill(client)
    await page.open(client.base)
    for key in ("/", "w", "e", "b"):
        await page.press(key)
    assert await page.texts("nav li a") == ["web/front"]
    await page.press("ArrowDown")
    await page.press("Enter")
    await page.until("document.querySelector('h2')?.textContent === 'web/front'")
    await page.evaluate("document.querySelector('main a').focus()")
    await page.press("ArrowDown")
    await page.press("Enter")
    await page.until("document.querySelector('h2')?.textContent === 'web/front latest'")
    await page.press("/")
    await page.press("Escape")
    assert len(await page.texts("nav li a")) == 3
    assert page.failures == []


@in_browser
async def test_light_and_dark_follow_the_system_until_chosen(page: Aside, client: Client) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    await page.open(client.base, dark=False)
    light = await page.evaluate(ground)
    await page.open(client.base, dark=True)
    dark = await page.evaluate(ground)
    assert light != dark
    await page.evaluate("document.getElementById('theme').click()")
    assert await page.evaluate(ground) == light
    await page.open(client.base, dark=True)
    assert await page.evaluate(ground) == light  # remembered


@in_browser
async def test_the_log_in_dialog_appears_once(page: Aside, tmp_path: Path) -> None:
    import bcrypt

    users = tmp_path / "users"
    users.write_text("ann:" + bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode() + "\n")
    async with serve(tmp_path / "data", htpasswd=str(users)) as client:
        await fill(client)
        opening = asyncio.ensure_future(page.open(client.base))
        await page.until("document.getElementById('login')?.open")
        assert await page.texts("nav li a") == []
        for password, shown in (("wrong", "wrong user name or password"), ("secret", "")):
            await page.evaluate(f"""
                document.getElementById('user').value = 'ann';
                document.getElementById('password').value = '{password}';
                document.getElementById('login-problem').textContent = '';
                document.querySelector('#login button').click();
            """)
            if shown:
                await page.until(f"document.getElementById('login-problem').textContent === '{shown}'")
        await opening
        await page.until("document.querySelectorAll('nav li a').length === 3")
        assert not await page.evaluate("document.getElementById('login').open")


@in_browser
async def test_nodes_and_transfers_are_shown(page: Aside, tmp_path: Path) -> None:
    """The other node with its wire, a running transfer with its sources, and the location of each blob."""
    nodes: dict[str, Any] = {"rdma_enabled": True, "rdma_listen_addr": "127.0.0.1", "rdma_listen_port": 0}
    async with serve(tmp_path / "one", **nodes) as one:
        await fill(one)
        content = random.Random(9).randbytes(3 * PIECE)
        config, layer = await one.blob("big", b"{}"), await one.blob("big", content)
        manifest = image_manifest((config, 2), [(layer, len(content))])
        assert (await one.manifest("big", "v1", manifest)).status == 201
        address = one.program.nodes.address  # type: ignore[attr-defined]
        async with serve(tmp_path / "two", peers=address, metrics__listen="127.0.0.1:0", **nodes) as two:
            mine = two.program.nodes  # type: ignore[attr-defined]
            await asyncio.gather(*(peer.tried.wait() for peer in mine.peers))
            await page.open(two.base)
            assert "No transfers." in await page.texts(".empty")
            assert (await page.texts("main tbody td:nth-child(3)"))[-1] == "connected"
            assert (await page.texts("main tbody td:nth-child(4)"))[-1] == "shm"
            await page.open(f"{two.base}/#/big@v1")
            peer = mine.peers[0].name
            assert await page.texts("tbody .chip") == [peer, peer]
            held = asyncio.Lock()
            await held.acquire()
            landing = mine.registry.adopt

            async def adopt(*arguments: Any) -> Any:  # all pieces are here, and the last step waits
                async with held:
                    return await landing(*arguments)

            mine.registry.adopt = adopt
            pulling = asyncio.ensure_future(two("GET", f"/v2/big/blobs/{layer}"))
            await page.open(two.base)
            await page.until("document.querySelector('progress')?.value === 12582912")
            row = (await page.texts("main tbody tr"))[0]
            assert "12.0 MiB of 12.0 MiB" in row
            assert f"{peer} over shm: 12.0 MiB" in row
            await _on_the_nodes_page(page, two.program.metrics_address, peer)  # type: ignore[attr-defined]
            held.release()
            assert (await pulling).body == content
            await page.open(f"{two.base}/#/big@v1")
            assert await page.texts("tbody .chip") == [peer, "this node", peer]
    assert [failure for failure in page.failures if "Failed to load" not in failure] == []


async def _on_the_nodes_page(page: Aside, address: str, peer: str) -> None:
    """Checks wires, sessions and the transfer on the node page."""
    await page.open(address, ready="document.querySelectorAll('table').length > 3")
    shown = await page.text()
    assert f"{peer} over shm" in shown
    assert "12.0 MiB" in shown
    assert "verifying" in shown
    assert {"Registry", "Transfers", "Registry nodes", "Sessions"} <= set(await page.texts("h2"))


async def test_the_node_page_is_on_the_metrics_address_and_read_only(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"rdma_enabled": True, "rdma_listen_addr": "127.0.0.1", "rdma_listen_port": 0}
    async with serve(tmp_path / "data", metrics__listen="127.0.0.1:0", **keys) as client:
        await fill(client)
        address = client.program.metrics_address  # type: ignore[attr-defined]
        for path in ("/", "/page.js", "/page.css"):
            answer = await client("GET", address + path)
            assert answer.status == 200
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert (await client("POST", address + path)).status == 405
        panels = {
            panel["title"]: panel for panel in (await client("GET", address + "/status.json")).json["panels"]
        }
        assert panels["Registry"]["fields"]["repositories, tags"] == "3, 7"
        assert panels["Transfers"]["rows"] == panels["Registry nodes"]["rows"] == []
        assert b"verbena_registry" in (await client("GET", address + "/metrics")).body


async def test_the_page_loads_nothing_from_other_hosts(client: Client) -> None:
    answer = await client("GET", "/")
    assert answer.status == 200
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    for path in ("/", "/ui/style.css", "/ui/app.js", "/ui/icon.svg"):
        text = (await client("GET", path)).body.decode()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert (await client("POST", path)).status == 405


async def test_data_needs_the_right_to_pull(tmp_path: Path) -> None:
    async with serve(tmp_path / "data", anonymous="none", htpasswd=str(_no_users(tmp_path))) as client:
        digest = await fill(client)
        assert (await client("GET", "/ui/node.json")).status == 401
        assert (await client("GET", f"/ui/where.json?repository=base/debian&digest={digest}")).status == 401


@pytest.mark.parametrize("query", ["", "?repository=a", "?repository=a&digest=x"])
async def test_malformed_requests_are_rejected(client: Client, query: str) -> None:
    assert (await client("GET", f"/ui/where.json{query}")).status == 400


def _no_users(folder: Path) -> Path:
    file = folder / "users"
    file.write_text("")
    return file


async def test_the_page_can_be_disabled(tmp_path: Path) -> None:
    async with serve(tmp_path / "data", page=False) as client:
        assert (await client("GET", "/")).status == 404
