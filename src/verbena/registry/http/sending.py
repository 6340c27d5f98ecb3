"""Sends blobs: with sendfile from file to socket (without TLS), so that no byte passes through Python; small
ones in one write with their headers; incomplete ones as their bytes arrive."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import BinaryIO

from aiohttp import web

from verbena.registry.errors import Refused
from verbena.registry.incoming import IncomingBlob, IncomingFailed

SMALL = 32 << 10
"""Up to this size, a read and one write are cheaper than sendfile."""
PIECE = 1 << 20


async def send_whole(
    request: web.BaseRequest, response: web.StreamResponse, file: BinaryIO, start: int, end: int
) -> None:
    """Sends the headers and bytes [start, end) of the file."""
    response.content_length = end - start
    await response.prepare(request)
    await _send(request, response, file, start, end)
    await response.write_eof()


async def send_arriving(
    request: web.BaseRequest, response: web.StreamResponse, incoming: IncomingBlob, start: int, end: int
) -> None:
    """Sends [start, end) of a blob that is being fetched, as its bytes arrive. If the fetch fails, it aborts
    the connection, so that the client notices the truncation. Raises ConnectionResetError."""
    response.content_length = end - start
    with os.fdopen(os.dup(incoming.fileno()), "rb", buffering=0) as file:
        await response.prepare(request)
        position = start
        while position < end:
            try:
                there = min(end, await incoming.arrived(position))
            except IncomingFailed:
                there = position
            if there <= position:
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError("the fetch of the blob failed")
            await _send(request, response, file, position, there)
            position = there
        await response.write_eof()


async def send_pieces(
    request: web.BaseRequest, response: web.StreamResponse, pieces: AsyncIterator[memoryview], length: int
) -> None:
    """Sends headers once the first piece has arrived. A failure before that raises Refused; a later one
    aborts the connection and raises ConnectionResetError."""
    response.content_length = length
    try:
        async for piece in pieces:
            if not response.prepared:
                await response.prepare(request)
            await response.write(piece)
    except Refused as refused:
        if not response.prepared:
            raise
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("sending the blob failed") from refused
    await response.write_eof()


async def _send(
    request: web.BaseRequest, response: web.StreamResponse, file: BinaryIO, start: int, end: int
) -> None:
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client disconnected")
    loop = asyncio.get_running_loop()
    if transport.get_extra_info("sslcontext") is None:
        await loop.sendfile(transport, file, start, end - start, fallback=False)
        return
    fd = file.fileno()
    while start < end:
        piece = await loop.run_in_executor(None, os.pread, fd, min(PIECE, end - start), start)
        if not piece:
            raise ConnectionResetError("the file was truncated")
        await response.write(piece)
        start += len(piece)
