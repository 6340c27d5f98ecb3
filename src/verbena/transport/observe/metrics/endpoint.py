"""Serves the status page and the metrics of a node: a small HTTP server on the control thread.
It supports GET of a few paths, limits size, time and connections, and closes after each response."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from verbena.errors import setup_error
from verbena.transport.address import HostPort, parse_host_port
from verbena.transport.observe.metrics import page, prometheus
from verbena.transport.observe.metrics.node_totals import snapshot

if TYPE_CHECKING:
    from verbena.transport.node import Node

MAX_REQUEST_BYTES = 8192
MAX_CONNECTIONS = 32
TIMEOUT_S = 5.0
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class MetricsServer:
    """Created by Node.serve_metrics(), closed with the node."""

    def __init__(self, node: Node) -> None:
        self.address = ""
        self._node = node
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def _open(self, address: str) -> None:
        where = parse_host_port(address)
        try:
            self._server = await asyncio.start_server(
                self._on_connection, where.host or None, where.port, limit=MAX_REQUEST_BYTES
            )
        except OSError as error:
            raise setup_error(
                "address_in_use",
                operation="serve metrics",
                detail=f"{where}: {error.strerror}",
                errno=error.errno,
            ) from error
        bound = self._server.sockets[0].getsockname()
        self.address = str(HostPort(where.host or bound[0], bound[1]))

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        too_many = len(self._tasks) > MAX_CONNECTIONS  # no await before: counts in order of arrival
        try:
            with contextlib.suppress(OSError, asyncio.TimeoutError, TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._exchange(reader, writer, too_many), 2 * TIMEOUT_S)
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, too_many: bool
    ) -> None:
        if too_many:
            status, kind, body = 503, TEXT, "too many at once\n"
        else:
            status, kind, body = await self._answer(reader)
        content = body.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
            f"{'Allow: GET' + chr(13) + chr(10) if status == 405 else ''}"
            f"Content-Security-Policy: {page.POLICY}\r\nX-Content-Type-Options: nosniff\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode("ascii") + content)
        await writer.drain()
        writer.write_eof()
        # Discard what the client still sends: closing with unread bytes would reset the connection and lose
        # the response. A client that timed out (408) or exceeds the limit (503) is disconnected without this.
        if status not in (408, 503):
            while await asyncio.wait_for(reader.read(MAX_REQUEST_BYTES), TIMEOUT_S):
                pass

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, str, str]:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
        except asyncio.LimitOverrunError:
            return 431, TEXT, f"a request has {MAX_REQUEST_BYTES} bytes at most\n"
        except (asyncio.TimeoutError, TimeoutError):
            return 408, TEXT, "no request came\n"
        except asyncio.IncompleteReadError:
            return 400, TEXT, "the request was cut short\n"
        request_line = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(request_line) != 3 or not request_line[2].startswith("HTTP/1."):
            return 400, TEXT, "this is not HTTP/1\n"
        path = request_line[1].partition("?")[0]
        if path not in (*page.FILES, "/status.json", "/metrics", "/healthz"):
            return 404, TEXT, "there are /, /status.json, /metrics and /healthz\n"
        if request_line[0] != "GET":
            return 405, TEXT, "only GET is allowed\n"
        if path == "/healthz":
            return (503, TEXT, "closed\n") if self._node._closed else (200, TEXT, "ok\n")
        if path in page.FILES:
            return 200, *await asyncio.to_thread(page.file, path)
        if path == "/status.json":
            return 200, JSON, await asyncio.to_thread(page.document, self._node)
        # In another thread: a snapshot of many sessions is slow, and the control thread must accept sessions
        # and fail over meanwhile.
        text = await asyncio.to_thread(lambda: prometheus.render(snapshot(self._node)))
        return 200, prometheus.CONTENT_TYPE, text
