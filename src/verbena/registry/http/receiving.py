"""Receives request bodies: collects batches that workers write and hash while the next one arrives."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from verbena.registry.errors import Refused
from verbena.registry.feed import AHEAD
from verbena.registry.http.call import HttpCall
from verbena.registry.incoming import BATCH, IncomingBlob

UPLOAD_MEMORY_BYTES = 32 << 20
"""Limit of bytes in memory for all uploads together; each upload gets an equal share."""
MIN_BATCH_BYTES = 128 << 10


class _Share:
    """The number of bytes that each active upload may have in memory."""

    uploads = 0

    @classmethod
    def bytes(cls) -> int:
        return min(AHEAD, max(2 * MIN_BATCH_BYTES, UPLOAD_MEMORY_BYTES // max(1, cls.uploads)))


class Deadline:
    """Cancels the current task if `progress()` is not called for `seconds`. A call costs one assignment."""

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
            self._task.uncancel()  # the request gets a response, and the connection's task continues


async def receive_blob(call: HttpCall, incoming: IncomingBlob) -> int:
    """Appends the body and returns its length. If the client disconnects, the received bytes stay, so that it
    can resume. Raises Refused (408, 413), ConnectionResetError."""
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
                deadline.progress()  # time spent on a slow disk does not count against the client
    except asyncio.CancelledError:
        if not deadline.passed:
            raise
        raise Refused(
            "BLOB_UPLOAD_INVALID",
            "no data within the time limit",
            status=408,
            headers={"Connection": "close"},
        ) from None
    except (ConnectionError, HttpProcessingError, web.RequestPayloadError) as error:
        raise ConnectionResetError("the client disconnected") from error
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


async def receive_short(call: HttpCall, limit: int) -> bytes:
    """Returns the whole body. Raises Refused: 413 if it is longer than `limit`, 408 if the client stalls."""
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
        raise Refused("SIZE_INVALID", "no data within the time limit", status=408) from None
    except (HttpProcessingError, web.RequestPayloadError) as error:
        raise ConnectionResetError("the client disconnected") from error
    finally:
        deadline.close()
        call.received_bytes += len(body)
    return bytes(body)


def too_long(limit: int) -> Refused:
    return Refused("SIZE_INVALID", f"at most {limit} bytes are accepted", status=413)


def _refuse_longer(request: web.BaseRequest, limit: int) -> None:
    if (request.content_length or 0) > limit:
        raise too_long(limit)
