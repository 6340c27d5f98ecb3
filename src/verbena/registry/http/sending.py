"""Blobs to clients: from the file to the socket by sendfile, so that no byte passes through Python; small
ones with their headers in one write; those still on their way as they arrive."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import BinaryIO

from aiohttp import web

from verbena.registry.errors import Refused
from verbena.registry.incoming import IncomingBlob, IncomingFailed

SMALL = 32 << 10
"""Up to here a read and one write cost less than a sendfile."""
PIECE = 1 << 20


async def send_whole(
    request: web.BaseRequest, response: web.StreamResponse, file: BinaryIO, start: int, end: int
) -> None:
    """Sends headers and [start, end) of the file."""
    response.content_length = end - start
    await response.prepare(request)
    await _send(request, response, file, start, end)
    await response.write_eof()


async def send_arriving(
    request: web.BaseRequest, response: web.StreamResponse, incoming: IncomingBlob, start: int, end: int
) -> None:
    """The same of a blob that is being fetched, as its bytes come. If they stop coming the connection is
    cut: headers have promised a length, and a client must not take less for the whole."""
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
                raise ConnectionResetError("the blob could not be fetched to its end")
            await _send(request, response, file, position, there)
            position = there
        await response.write_eof()


async def send_pieces(
    request: web.BaseRequest, response: web.StreamResponse, pieces: AsyncIterator[memoryview], length: int
) -> None:
    """Headers go after the first piece has come, so that a failure can be told; a later one cuts the
    connection. Raises Refused."""
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
        raise ConnectionResetError("the blob could not be sent to its end") from refused
    await response.write_eof()


async def _send(
    request: web.BaseRequest, response: web.StreamResponse, file: BinaryIO, start: int, end: int
) -> None:
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client has left")
    loop = asyncio.get_running_loop()
    if transport.get_extra_info("sslcontext") is None:
        await loop.sendfile(transport, file, start, end - start, fallback=False)
        return
    fd = file.fileno()
    while start < end:
        piece = await loop.run_in_executor(None, os.pread, fd, min(PIECE, end - start), start)
        if not piece:
            raise ConnectionResetError("the file is shorter than it was")
        await response.write(piece)
        start += len(piece)
