"""/healthz of the metrics address: whether the registry's database answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from verbena.registry.http.call import answer
from verbena.registry.service import Registry
from verbena.registry.web.pages import checked
from verbena.transport.observe.health import Health

HEADERS = {"Cache-Control": "no-store"}


def health_page(registry: Registry) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    health = Health({"database": DatabaseCheck(registry)})

    async def page(request: web.BaseRequest) -> web.StreamResponse:
        problems = await health.problems()
        text = problems or "ok\n"
        return answer(503 if problems else 200, HEADERS, text.encode(), "text/plain; charset=utf-8")

    return checked(page)


class DatabaseCheck:
    """Reads from the database, and begins and ends a write transaction on the writer's thread, as a push
    does. While that waits, it begins no other."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._writing: asyncio.Task[None] | None = None

    async def __call__(self) -> str:
        self._registry.database.rows("SELECT name FROM repositories LIMIT 1")
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())
        await asyncio.shield(self._writing)
        return ""

    async def _write(self) -> None:
        await self._registry.database.write(lambda connection: None, durable=False)
