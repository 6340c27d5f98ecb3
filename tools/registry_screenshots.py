"""Takes the screenshots of the registry's page for docs/guide: two nodes, some images, a transfer in
progress."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Aside  # noqa: E402
from support.registry.filling import image_manifest  # noqa: E402
from support.registry.http_client import Client, serve  # noqa: E402

PICTURES = ROOT / "docs" / "guide" / "images"
NODE = {"rdma_enabled": True, "rdma_listen_addr": "127.0.0.1", "rdma_listen_port": 0}
LARGE = 640 << 20


async def image(client: Client, name: str, tag: str, *sizes: int, **fields: Any) -> str:
    config = await client.blob(name, os.urandom(2000))
    layers = [(await client.blob(name, os.urandom(size)), size) for size in sizes]
    answer = await client.manifest(name, tag, image_manifest((config, 2000), layers, **fields))
    assert answer.status == 201, answer
    return str(layers[0][0])


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        async with serve(Path(folder) / "a", session__node_name="rack1-a", **NODE) as first:
            peer = first.program.nodes.address  # type: ignore[attr-defined]
            async with serve(Path(folder) / "b", session__node_name="rack1-b", peers=peer, **NODE) as second:
                await fill(first)
                large = await image(first, "models/embedder", "v7", LARGE, 9_000_000)
                await show(first, second, large)


async def fill(client: Client) -> None:
    note = {"org.opencontainers.image.source": "https://git.example/web/front"}
    for name in ("base/debian", "base/python", "tools/lint"):
        await image(client, name, "12.8", 28_000_000, 3_100_000)
    for tag in ("2026.10", "2026.11", "latest"):
        sizes = (28_000_000, 12_400_000, 48_100, 1_210_000)
        await image(client, "web/front", tag, *sizes, annotations=note)


async def show(first: Client, second: Client, large: str) -> None:
    nodes = second.program.nodes  # type: ignore[attr-defined]
    await asyncio.gather(*(peer.tried.wait() for peer in nodes.peers))
    async with Aside() as page:
        manifest = json.loads((await first("GET", "/v2/web/front/manifests/latest")).body)
        for layer in manifest["layers"][:2]:
            await second("GET", f"/v2/web/front/blobs/{layer['digest']}")
        await page.open(f"{second.base}/#/web/front@latest")
        await page.picture(PICTURES / "registry-manifest.png", whole=False)
        await page.open(f"{second.base}/#/web/front@latest", dark=True)
        await page.picture(PICTURES / "registry-manifest-dark.png", whole=False)
        await page.open(f"{first.base}/#/web/front", width=420, height=800)
        await page.picture(PICTURES / "registry-narrow.png", whole=False)
        await page.open(second.base)
        pulling = asyncio.ensure_future(second("GET", f"/v2/models/embedder/blobs/{large}"))
        await page.until("document.querySelector('progress')?.value > 0")
        await page.picture(PICTURES / "registry-nodes.png", whole=False)
        await pulling


if __name__ == "__main__":
    asyncio.run(main())
