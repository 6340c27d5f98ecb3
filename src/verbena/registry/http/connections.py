"""Connections: how many at once, and peers that have vanished."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

logger = logging.getLogger("verbena.registry.http")


def _ours(record: logging.LogRecord) -> bool:
    """Whether a record is about us: what is no HTTP is the client's fault, and anyone can send it."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, HttpProcessingError)


logger.addFilter(_ours)


class Connections(web.Server):
    """aiohttp's server, with a bound. Whoever is one too many is cut at once, and may come again."""

    def __init__(self, handler: Any, *, most: int, timeout_s: float, **options: Any) -> None:
        super().__init__(handler, logger=logger, **options)
        self._most = most
        self._timeout_s = timeout_s
        self.refused = 0

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._connections) > self._most:
            self.refused += 1
            transport.abort()
            return
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            # Who acknowledges nothing for so long is gone, and a download to it would wait for ever.
            milliseconds = int(self._timeout_s * 1000)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
