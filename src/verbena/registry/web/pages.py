"""Requests of the web page: its files, this node's state, and the locations of blobs. Repositories, tags and
manifests come from the registry's API. Data is visible only with the right to pull it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import resources

from aiohttp import web

from verbena import __version__
from verbena.registry.errors import Refused
from verbena.registry.http.call import answer, answer_json
from verbena.registry.http.routes import Route
from verbena.registry.http.server import Server
from verbena.registry.nodes.nodes import Nodes
from verbena.registry.service import parse_digest
from verbena.registry.web import state

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/ui/style.css": ("style.css", "text/css; charset=utf-8"),
    "/ui/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/ui/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Only our own scripts may run: a pushed name or annotation must never be executed.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
MAX_BLOBS = 128

Page = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def add_pages(server: Server, nodes: Nodes | None) -> None:
    """Adds the pages to the server."""
    for path, (name, kind) in FILES.items():
        content = resources.files(__package__).joinpath("static", name).read_bytes()
        server.pages[path] = _file(content, kind)
    pages = Pages(server, nodes)
    server.pages["/ui/node.json"] = checked(pages.node)
    server.pages["/ui/where.json"] = checked(pages.where)


class Pages:
    def __init__(self, server: Server, nodes: Nodes | None) -> None:
        self._server = server
        self._nodes = nodes

    async def node(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serves the state of this node: peers, stored blobs, transfers. Needs the same rights as the API's
        base endpoint."""
        await self._allow(request, Route("base"))
        identity = await self._server.authenticator.identify(request, Route("base"))
        document = state.node(
            self._server.registry, self._nodes, may_pull=lambda name: identity.may("pull", name)
        )
        return answer_json({"version": __version__, **document}, HEADERS)

    async def where(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serves the names of the nodes that have the requested blobs of a repository. Raises Refused without
        the right to pull."""
        repository = request.query.get("repository", "")
        wanted = [parse_digest(text) for text in request.query.getall("digest", [])[:MAX_BLOBS]]
        if not wanted:
            raise Refused("DIGEST_INVALID", "the parameter digest is missing")
        await self._allow(request, Route("blob", repository, str(wanted[0])))
        locations = await asyncio.gather(
            *(state.locations(self._server.registry, self._nodes, repository, digest) for digest in wanted)
        )
        blobs = {str(digest): found for digest, found in zip(wanted, locations, strict=True)}
        return answer_json({"repository": repository, "blobs": blobs}, HEADERS)

    async def _allow(self, request: web.BaseRequest, route: Route) -> None:
        authenticator = self._server.authenticator
        authenticator.check(request, route, await authenticator.identify(request, route))


def _file(content: bytes, kind: str) -> Page:
    async def show(request: web.BaseRequest) -> web.StreamResponse:
        return answer(200, HEADERS, content, kind)

    return checked(show)


def checked(page: Page) -> Page:
    """Wraps a page so that it refuses methods other than GET and HEAD."""

    async def show(request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            raise Refused("UNSUPPORTED", headers={"Allow": "GET, HEAD"})
        return await page(request)

    return show
