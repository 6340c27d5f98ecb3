"""A registry node without HTTP, for nodes.py: commands and responses are lines of JSON."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from verbena import transport
from verbena.registry import digests
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.nodes.settings import NodesSettings
from verbena.registry.service import Registry

PIECE = 4 << 20


async def main(folder: str, peers: list[str], wires: list[str]) -> None:
    registry = Registry(folder)
    settings = NodesSettings(peers=tuple(peers), piece_timeout_s=60.0)
    nodes = await Nodes.open(
        registry,
        settings,
        transport_settings=transport.Settings(wires=tuple(wires), recv_buffer_pool_size=4096),
    )
    await asyncio.gather(*(peer.tried.wait() for peer in nodes.peers))
    notify({"address": nodes.address})
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        command = json.loads(line)
        notify(await {"push": push, "fetch": fetch, "figures": figures}[command.pop("do")](nodes, **command))
    await nodes.close()
    registry.close()


def notify(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


async def push(nodes: Nodes, files: list[str]) -> dict[str, Any]:
    found = []
    for file in files:
        upload = await nodes.registry.begin_upload("bench")
        with Path(file).open("rb") as opened:  # noqa: ASYNC230 - nothing else happens meanwhile
            while piece := opened.read(PIECE):
                await upload.incoming.append([piece])
        digest = await upload.incoming.digest("sha256")
        await nodes.registry.finish_upload(upload, digest)
        found.append(str(digest))
    return {"digests": found}


async def fetch(nodes: Nodes, blobs: list[str]) -> dict[str, Any]:
    """Fetches blobs one after the other, each until it is verified and stored; returns the seconds of
    each."""
    seconds = []
    for blob in blobs:
        begun = time.perf_counter()
        found = await nodes.fetch("bench", digests.parse(blob))
        assert found is not None, f"nobody has {blob}"
        await found.whole
        seconds.append(time.perf_counter() - begun)
    return {"seconds": seconds}


async def figures(nodes: Nodes) -> dict[str, Any]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    wires = sorted({peer.session.wire or "" for peer in nodes.peers if peer.session})
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "own_mib": own_mib(),
        "sent": nodes.source.sent_bytes,
        "wires": wires,
    }


def own_mib() -> float:
    """Memory in use, with shared pages divided among the processes that map them, because peers' windows are
    mapped here too."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])))
