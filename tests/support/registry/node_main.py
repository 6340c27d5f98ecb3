"""A registry node as its own process, driven by lines of JSON: `push` makes a blob from a seed, `push_file`
from a file, `pull` fetches one and reports what arrived, `figures` reports the counters. Started by
processes.py."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.registry.filling import Filler
from support.registry.nodes import follow, settled
from verbena import transport
from verbena.registry import digests
from verbena.registry.errors import Refused
from verbena.registry.incoming import IncomingFailed
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.nodes.settings import NodesSettings
from verbena.registry.service import Blob, Registry

PIECE = 4 << 20


async def main(options: dict[str, Any]) -> None:
    registry = Registry(options.pop("folder"))
    wires = tuple(options.pop("wires", ("shm", "iwarp")))
    secret = options.pop("secret", "").encode()
    devices = options.pop("devices", {})
    resume_timeout_s = options.pop("resume_timeout_s", 30.0)
    recv_buffer_pool_size = options.pop("recv_buffer_pool_size", 1000)
    settings = NodesSettings(**{**options, "peers": tuple(options.get("peers", ()))})
    nodes = await Nodes.open(
        registry,
        settings,
        transport_settings=transport.Settings(
            wires=wires,
            secret=secret,
            devices=devices,
            recv_buffer_pool_size=recv_buffer_pool_size,
            resume_timeout_s=resume_timeout_s,
        ),
    )
    print(json.dumps({"address": nodes.address}), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    running: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        task = asyncio.ensure_future(_answer(nodes, json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)
    await nodes.close()
    registry.close()


async def _answer(nodes: Nodes, command: dict[str, Any]) -> None:
    result = await globals()[f"_{command.pop('do')}"](nodes, **command)
    print(json.dumps(result), flush=True)


async def _push(nodes: Nodes, seed: int, length: int, repository: str = "app") -> dict[str, Any]:
    content = random.Random(seed).randbytes(length)
    return {"digest": str(await Filler(nodes.registry).blob(repository, content))}


async def _push_file(nodes: Nodes, file: str, repository: str = "app") -> dict[str, Any]:
    upload = await nodes.registry.begin_upload(repository)
    with Path(file).open("rb") as opened:
        while piece := opened.read(PIECE):
            await upload.incoming.append([piece])
    digest = await upload.incoming.digest("sha256")
    await nodes.registry.finish_upload(upload, digest)
    return {"digest": str(digest)}


async def _pull(nodes: Nodes, digest: str, repository: str = "app") -> dict[str, Any]:
    begun = time.perf_counter()
    try:
        blob = await nodes.registry.blob(repository, digests.parse(digest))
        content = blob.path.read_bytes() if isinstance(blob, Blob) else await follow(blob)
    except (Refused, IncomingFailed) as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    right = str(digests.of(content, digests.parse(digest).algorithm)) == digest
    return {"length": len(content), "right": right, "seconds": time.perf_counter() - begun}


async def _fetch(nodes: Nodes, digest: str, repository: str = "app") -> dict[str, Any]:
    """As pull, but only until the blob is stored."""
    begun = time.perf_counter()
    fetch = await nodes.fetch(repository, digests.parse(digest))
    if fetch is None:
        return {"failed": "nobody has it"}
    await asyncio.wait([fetch.whole])
    error = fetch.whole.exception()
    return {"failed": str(error)} if error else {"seconds": time.perf_counter() - begun}


async def _received(nodes: Nodes, digest: str, least: int) -> dict[str, Any]:
    """Answers once this many bytes of an incoming blob have arrived."""
    fetch = nodes.fetches.get(digests.parse(digest))
    while fetch is not None and sum(fetch.transfer.received.values()) < least and not fetch.whole.done():
        await fetch.changed.wait()
    return {"received": sum(fetch.transfer.received.values()) if fetch else -1}


async def _peers(nodes: Nodes, count: int) -> dict[str, Any]:
    """Answers once this many peers are usable."""
    while len(nodes.usable_peers()) < count:  # noqa: ASYNC110 - this program asks from outside
        await asyncio.sleep(0.02)
    return {"peers": len(nodes.usable_peers())}


async def _settled(nodes: Nodes) -> dict[str, Any]:
    """Answers when no transfer is in progress."""
    await settled(nodes)
    return {}


async def _figures(nodes: Nodes) -> dict[str, Any]:
    peers = [*nodes.peers, *nodes.inbound.values()]
    return {
        "sent": nodes.source.sent_bytes,
        "fetched": nodes.fetched,
        "failed": nodes.failed,
        "corrupt_blobs": sum(peer.corrupt_blobs for peer in peers),
        "stalls": sum(peer.stalls for peer in peers),
        "upstream": sum(fetch.transfer.received.get("upstream", 0) for fetch in nodes.fetches.values()),
        "blobs": len(list(nodes.registry.blobs.files())),
        "incoming": len(list(nodes.registry.blobs.incoming_files())),
        "problems": [f"{peer.address}: {peer.problem}" for peer in peers if peer.problem],
        "wires": sorted({peer.session.wire or "" for peer in nodes.peers if peer.session}),
        "cpu_s": time.process_time(),
        "own_mib": own_mib(),
    }


def own_mib() -> float:
    """Memory in use, with shared pages divided among the processes that map them, because peers' windows are
    mapped here too."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
