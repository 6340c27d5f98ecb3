"""A proxy in front of an S3 store: forwards requests, and breaks those that a test selects."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType

import aiohttp
from aiohttp import web

# What happens to a request, by method and path with query: "pass", "refuse" (500), "cut" (after the start
# of the body) or "stall" (no answer while the proxy runs).
Choose = Callable[[str, str], str]


class Gate:
    """The proxy, a context manager. `choose` may be replaced at any time."""

    def __init__(self, target: str) -> None:
        self.choose: Choose = lambda method, path: "pass"
        self.seen: list[tuple[str, str]] = []
        self.stalled = asyncio.Event()
        self.url = ""
        self._target = target
        self._stack = AsyncExitStack()
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Gate:
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(30))
        )
        runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        await self._stack.aclose()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path
        self.seen.append((request.method, path))
        what = self.choose(request.method, path)
        if what == "stall":
            self.stalled.set()
            await self._closing.wait()
        if what in ("cut", "stall"):
            await request.content.readany()
            assert request.transport is not None
            request.transport.abort()
            raise ConnectionResetError("cut")
        if what == "refuse":
            return web.Response(status=500)
        # The signature covers the Host header, so it is forwarded unchanged.
        async with self._session.request(
            request.method,
            aiohttp.client.URL(self._target + path, encoded=True),
            headers={key: value for key, value in request.headers.items() if key != "Expect"},
            data=io.BytesIO(await request.content.read()),
            skip_auto_headers=("Content-Type", "User-Agent", "Accept", "Accept-Encoding"),
        ) as answer:
            body = await answer.read()
            headers = {
                key: value
                for key, value in answer.headers.items()
                if key not in ("Transfer-Encoding", "Connection")
            }
            if request.method == "HEAD":
                response = web.StreamResponse(status=answer.status, headers=headers)
                await response.prepare(request)
                return response
            return web.Response(status=answer.status, headers=headers, body=body)
