"""Webhooks: posts every event to each address, in the format of the Docker registry. Each address has a
bounded queue, so that one that does not answer delays nothing else; events past the bound are dropped."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import uuid
from collections.abc import Sequence
from datetime import datetime, timezone

import aiohttp

from verbena.registry.events import Event
from verbena.registry.metrics import Metrics

logger = logging.getLogger("verbena.registry")

CONTENT_TYPE = "application/vnd.docker.distribution.events.v1+json"
MAX_QUEUED = 10_000
TRIES = 5
FIRST_PAUSE_S = 0.5


class Webhooks:
    """A listener of the registry. `close()` waits up to `timeout_s` for queued events."""

    def __init__(self, addresses: Sequence[str], *, secret: bytes = b"", metrics: Metrics) -> None:
        self._secret = secret
        self._metrics = metrics
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        self._queues = {address: asyncio.Queue[Event](MAX_QUEUED) for address in addresses}
        self._tasks = [asyncio.create_task(self._deliver(a, queue)) for a, queue in self._queues.items()]

    async def __call__(self, event: Event) -> None:
        for queue in self._queues.values():
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:
                self._metrics.webhooks["dropped"] += 1

    async def close(self, timeout_s: float = 5.0) -> None:
        waiting = asyncio.gather(*(queue.join() for queue in self._queues.values()))
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(waiting, timeout_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _deliver(self, address: str, queue: asyncio.Queue[Event]) -> None:
        while True:
            event = await queue.get()
            body = json.dumps({"events": [describe(event)]}).encode()
            outcome = "sent" if await self._post(address, body) else "failed"
            self._metrics.webhooks[outcome] += 1
            queue.task_done()

    async def _post(self, address: str, body: bytes) -> bool:
        headers = {"Content-Type": CONTENT_TYPE}
        if self._secret:
            headers["X-Verbena-Signature"] = (
                f"sha256={hmac.new(self._secret, body, hashlib.sha256).hexdigest()}"
            )
        reason = ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(FIRST_PAUSE_S * 2 ** (attempt - 1))
            try:
                async with self._session.post(address, data=body, headers=headers) as response:
                    if response.status < 400:
                        return True
                    reason = str(response.status)
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
        logger.warning("a notification to %s failed: %s", address, reason)
        return False


def describe(event: Event) -> dict[str, object]:
    """Returns an event in the format of the Docker registry's notifications."""
    target: dict[str, object] = {"repository": event.repository}
    if event.digest is not None:
        target |= {"digest": str(event.digest), "size": event.size, "length": event.size}
    if event.media_type or event.kind == "blob":
        target["mediaType"] = event.media_type or "application/octet-stream"
    if event.tag:
        target["tag"] = event.tag
    return {
        "id": str(uuid.uuid4()),
        "timestamp": datetime.fromtimestamp(event.time, timezone.utc).isoformat(),
        "action": event.action,
        "target": target,
        "actor": {"name": event.actor} if event.actor else {},
    }
