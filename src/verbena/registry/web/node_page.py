"""This node's page on the metrics address: wires, sessions and errors as on every node, and the registry's
panels. It is separate from the registry's address because its readers need not have the right to pull."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from verbena.registry.http.call import answer
from verbena.registry.http.server import Server
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.web import state
from verbena.registry.web.pages import checked
from verbena.transport.observe.metrics import page

Panel = dict[str, Any]
HEADERS = {
    "Content-Security-Policy": page.POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
SHORT_DIGEST = len("sha256:") + 12


def add_node_page(server: Server, nodes: Nodes) -> None:
    """Adds the page to the server."""
    nodes.node.panels.update(panels(nodes))

    async def file(request: web.BaseRequest) -> web.StreamResponse:
        kind, text = await asyncio.to_thread(page.file, request.path)
        return _answer(kind, text)

    async def document(request: web.BaseRequest) -> web.StreamResponse:
        # On the event loop's thread, because the loop changes what the panels read.
        return _answer("application/json", page.document(nodes.node))

    server.pages.update(dict.fromkeys(page.FILES, checked(file)))
    server.pages["/status.json"] = checked(document)


def panels(nodes: Nodes) -> dict[str, Callable[[], Panel]]:
    """The registry's panels by title."""

    def now() -> Panel:
        return state.node(nodes.registry, nodes, may_pull=lambda _: True)

    return {
        "Registry": lambda: _registry(now()),
        "Transfers": lambda: _transfers(now()),
        "Registry nodes": lambda: _peers(now()),
    }


def _registry(document: Panel) -> Panel:
    stored, node = document["stored"], document["node"]
    return {
        "fields": {
            "repositories, tags": f"{stored['repositories']:,}, {stored['tags']:,}",
            "blobs": f"{stored['blobs']:,}, {_size(stored['blob_bytes'])}",
            "sent to other nodes": _size(node["sent_bytes"]),
            "fetched, failed": f"{node['fetched']:,}, {node['failed']:,}",
            "pending replicas": node["replicating"],
        }
    }


def _transfers(document: Panel) -> Panel:
    rows = [
        [
            transfer["digest"][:SHORT_DIGEST],
            ", ".join(transfer["repositories"]),
            ", ".join(f"{source['name']} over {source['wire'] or 'HTTP'}" for source in transfer["sources"]),
            _size(transfer["size"]),
            {"progress": transfer["received"] / transfer["size"] if transfer["size"] else 1.0},
            transfer["state"],
        ]
        for transfer in document["transfers"]
    ]
    columns = ["blob", "repository", "source", "size", "received", "state"]
    return {"columns": columns, "rows": rows, "empty": "No transfers."}


def _peers(document: Panel) -> Panel:
    rows = [
        [
            peer["name"],
            peer["address"],
            {"text": peer["state"], "mood": "good" if peer["state"] == "connected" else "warn"},
            peer["wire"],
            _size(peer["received_bytes"]),
        ]
        for peer in document["peers"]
    ]
    columns = ["node", "address", "state", "wire", "received"]
    return {"columns": columns, "rows": rows, "empty": "No other nodes."}


def _size(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"


def _answer(kind: str, text: str) -> web.StreamResponse:
    return answer(200, body=text.encode(), content_type=kind, headers=HEADERS)
