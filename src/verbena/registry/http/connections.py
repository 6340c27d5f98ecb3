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


FIRST_REQUEST_S = 10.0
"""The time for the head of a connection's first request."""


class Connections(web.Server):
    """aiohttp's server with a limit on connections. One above the limit takes the place of the oldest
    connection without a request; if there is none, it is aborted at once, and the client may retry."""

    def __init__(self, handler: Any, *, most: int, timeout_s: float, **options: Any) -> None:
        super().__init__(handler, logger=logger, **options)
        self._most = most
        self._timeout_s = timeout_s
        self._silent: dict[RequestHandler, asyncio.Transport] = {}  # no request yet; oldest first
        self.refused = 0

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._connections) > self._most:
            self.refused += 1
            if not self._silent:
                transport.abort()
                return
            self._abort_silent(next(iter(self._silent)))
        self._silent[handler] = transport
        asyncio.get_running_loop().call_later(FIRST_REQUEST_S, self._abort_silent, handler)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            # A peer that acknowledges nothing for this long is gone; without the timeout, a download to it
            # would hang.
            milliseconds = int(self._timeout_s * 1000)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._silent.pop(handler, None)

    def _make_request(self, message: Any, payload: Any, protocol: RequestHandler, *rest: Any) -> Any:
        self._silent.pop(protocol, None)
        return super()._make_request(message, payload, protocol, *rest)

    def _abort_silent(self, handler: RequestHandler) -> None:
        transport = self._silent.pop(handler, None)
        if transport is not None:
            transport.abort()
