"""Bodies from clients: gathered into batches that workers write and hash while the next one arrives."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from verbena.registry.errors import Refused
from verbena.registry.feed import AHEAD
from verbena.registry.http.call import Call
from verbena.registry.incoming import BATCH, IncomingBlob

ALL_UPLOADS = 32 << 20
"""How many bytes of all uploads together are on their way to the disk; each has its share."""
SHORTEST_BATCH = 128 << 10


class _Share:
    """What one of the uploads under way may have in memory."""

    uploads = 0

    @classmethod
    def bytes(cls) -> int:
        return min(AHEAD, max(2 * SHORTEST_BATCH, ALL_UPLOADS // max(1, cls.uploads)))


class Deadline:
    """Ends a task in which nothing has come for a while. Progress costs one assignment."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self.progress_at = self._loop.time()
        self.passed = False
        self._handle = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        left = self.progress_at + self._seconds - self._loop.time()
        if left > 0:
            self._handle = self._loop.call_later(left, self._look)
        elif self._task is not None:
            self.passed = True
            self._task.cancel()

    def progress(self) -> None:
        self.progress_at = self._loop.time()

    def close(self) -> None:
        self._handle.cancel()
        if self.passed and self._task is not None and sys.version_info >= (3, 11):
            self._task.uncancel()  # the request has its answer, and the connection's task goes on


async def receive_blob(call: Call, incoming: IncomingBlob) -> int:
    """Appends the body, and says how long it was. What came before a client broke off stays, to be
    resumed."""
    content = call.request.content
    limit = call.registry.limits.blob_bytes - incoming.end
    _refuse_longer(call.request, limit)
    deadline = Deadline(call.settings.timeout_s)
    pieces: list[bytes] = []
    waiting = total = 0
    _Share.uploads += 1
    try:
        while piece := await content.readany():
            deadline.progress()
            pieces.append(piece)
            waiting += len(piece)
            total += len(piece)
            share = _Share.bytes()
            if waiting >= min(BATCH, share // 2):
                if total > limit:
                    raise too_long(call.registry.limits.blob_bytes)
                batch, pieces, waiting = pieces, [], 0
                await incoming.append(batch, ahead=share)
                deadline.progress()  # a slow disk is no silent client
    except asyncio.CancelledError:
        if not deadline.passed:
            raise
        raise Refused(
            "BLOB_UPLOAD_INVALID", "nothing came for too long", status=408, headers={"Connection": "close"}
        ) from None
    except (ConnectionError, HttpProcessingError, web.RequestPayloadError) as error:
        raise ConnectionResetError("the client broke off") from error
    finally:
        _Share.uploads -= 1
        deadline.close()
        call.received_bytes += total
        if pieces and total <= limit:
            await incoming.append(pieces)
        await incoming.settle()
    if total > limit:
        raise too_long(call.registry.limits.blob_bytes)
    return total


async def receive_short(call: Call, limit: int) -> bytes:
    """The whole body, if it has at most `limit` bytes."""
    _refuse_longer(call.request, limit)
    deadline = Deadline(call.settings.timeout_s)
    body = bytearray()
    try:
        while piece := await call.request.content.readany():
            deadline.progress()
            body += piece
            if len(body) > limit:
                raise too_long(limit)
    except asyncio.CancelledError:
        if not deadline.passed:
            raise
        raise Refused("SIZE_INVALID", "nothing came for too long", status=408) from None
    except (HttpProcessingError, web.RequestPayloadError) as error:
        raise ConnectionResetError("the client broke off") from error
    finally:
        deadline.close()
        call.received_bytes += len(body)
    return bytes(body)


def too_long(limit: int) -> Refused:
    return Refused("SIZE_INVALID", f"at most {limit} bytes are taken", status=413)


def _refuse_longer(request: web.BaseRequest, limit: int) -> None:
    if (request.content_length or 0) > limit:
        raise too_long(limit)
