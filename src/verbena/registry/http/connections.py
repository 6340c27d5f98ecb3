"""Limits on connections: their number, and a timeout for peers that stop acknowledging."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

logger = logging.getLogger("verbena.registry.http")


def _is_server_error(record: logging.LogRecord) -> bool:
    """Filters the log: drops errors about malformed HTTP, which any client can cause."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, HttpProcessingError)


logger.addFilter(_is_server_error)


class Connections(web.Server):
    """aiohttp's server with a limit on connections. One above the limit is aborted at once; the client may
    retry."""

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
            # A peer that acknowledges nothing for this long is gone; without the timeout, a download to it
            # would hang.
            milliseconds = int(self._timeout_s * 1000)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
