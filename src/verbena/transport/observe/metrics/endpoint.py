"""Serves the status page and the metrics of a node: a small HTTP server on the control thread.
It supports GET and HEAD of a few paths, limits size, time and connections, and closes after each response."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verbena import _threads
from verbena.errors import setup_error
from verbena.transport.address import HostPort, parse_host_port
from verbena.transport.listening.binding import bind
from verbena.transport.observe import log
from verbena.transport.observe.health import Health
from verbena.transport.observe.host_names import HostNames
from verbena.transport.observe.metrics import page, prometheus
from verbena.transport.observe.metrics.node_totals import snapshot
from verbena.transport.observe.metrics.table import METRICS

if TYPE_CHECKING:
    from verbena.transport.node import Node

# Returns metrics of a program in the Prometheus text format.
MetricSource = Callable[[], Awaitable[str]]

MAX_REQUEST_BYTES = 8192
MAX_CONNECTIONS = 32
TIMEOUT_S = 5.0
SOURCE_LIMIT_S = 4.0
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass
class _Request:
    method: str
    path: str
    hosts: list[str]


class MetricsServer:
    """Created by Node.serve_metrics(), closed with the node."""

    def __init__(self, node: Node) -> None:
        self.address = ""
        self._node = node
        self._host_names = HostNames(node.settings.metrics_host_names)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._silent: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # no request yet; oldest first
        self._health = Health(node.health_checks)

    async def _open(self, address: str) -> None:
        where = parse_host_port(address)
        try:
            sockets = await bind(where.host, where.port)
        except OSError as error:
            raise setup_error(
                "address_in_use",
                operation="serve metrics",
                detail=f"{where}: {error.strerror}",
                errno=error.errno,
            ) from error
        for one in sockets:
            server = await asyncio.start_server(self._on_connection, sock=one, limit=MAX_REQUEST_BYTES)
            self._servers.append(server)
        bound = sockets[0].getsockname()
        self.address = str(HostPort(where.host or bound[0], bound[1]))

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        # No await before: counts in order of arrival.
        too_many = len(self._tasks) > MAX_CONNECTIONS and not self._close_oldest_silent()
        self._silent[task] = writer
        try:
            with contextlib.suppress(OSError, asyncio.TimeoutError, TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._exchange(task, reader, writer, too_many), 2 * TIMEOUT_S)
        finally:
            self._tasks.discard(task)
            self._silent.pop(task, None)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    def _close_oldest_silent(self) -> bool:
        """Makes room for a new connection, so that silent ones cannot lock out others. False: there is no
        silent one."""
        if not self._silent:
            return False
        task = next(iter(self._silent))
        self._silent.pop(task).transport.abort()
        self._tasks.discard(task)
        return True

    async def _exchange(
        self,
        task: asyncio.Task[None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        too_many: bool,
    ) -> None:
        method = ""
        if too_many:
            status, kind, body = 503, TEXT, "too many at once\n"
        else:
            request = await self._read(reader)
            self._silent.pop(task, None)
            if isinstance(request, tuple):
                status, kind, body = request
            else:
                method = request.method
                status, kind, body = await self._answer(request)
        self._silent.pop(task, None)
        content = body.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
            f"{'Allow: GET, HEAD' + chr(13) + chr(10) if status == 405 else ''}"
            f"Content-Security-Policy: {page.POLICY}\r\nX-Content-Type-Options: nosniff\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode("ascii") + (b"" if method == "HEAD" else content))
        await writer.drain()
        writer.write_eof()
        # Discard what the client still sends: closing with unread bytes would reset the connection and lose
        # the response. A client that timed out (408) or exceeds the limit (503) is disconnected without this.
        if status not in (408, 503):
            while await asyncio.wait_for(reader.read(MAX_REQUEST_BYTES), TIMEOUT_S):
                pass

    async def _read(self, reader: asyncio.StreamReader) -> _Request | tuple[int, str, str]:
        """Returns the request, or the response to one that is not valid."""
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
        except asyncio.LimitOverrunError:
            return 431, TEXT, f"a request has {MAX_REQUEST_BYTES} bytes at most\n"
        except (asyncio.TimeoutError, TimeoutError):
            return 408, TEXT, "no request came\n"
        except asyncio.IncompleteReadError:
            return 400, TEXT, "the request was cut short\n"
        first, *lines = request.decode("latin-1").split("\r\n")
        request_line = first.split(" ")
        if len(request_line) != 3 or not request_line[2].startswith("HTTP/1."):
            return 400, TEXT, "this is not HTTP/1\n"
        return _Request(request_line[0], request_line[1].partition("?")[0], _hosts(lines))

    async def _answer(self, request: _Request) -> tuple[int, str, str]:
        path = request.path
        if path not in (*page.FILES, "/status.json", "/metrics", "/healthz"):
            return 404, TEXT, "there are /, /status.json, /metrics and /healthz\n"
        if request.method not in ("GET", "HEAD"):
            return 405, TEXT, "only GET and HEAD are allowed\n"
        if path != "/healthz" and (refusal := self._host_names.refusal(request.hosts)):
            return 421, TEXT, refusal
        if path == "/healthz":
            problems = "closed\n" if self._node._closed else await self._health.problems()
            return (503, TEXT, problems) if problems else (200, TEXT, "ok\n")
        if path in page.FILES:
            return 200, *await _threads.workers.run(page.file, path)
        if path == "/status.json":
            return 200, JSON, await _threads.workers.run(page.document, self._node)
        # In another thread: a snapshot of many sessions is slow, and the control thread must accept sessions
        # and fail over meanwhile.
        text = await _threads.workers.run(lambda: prometheus.render(METRICS, snapshot(self._node)))
        sources = list(self._node.metric_sources.items())
        more = await asyncio.gather(*(_text_of(name, source) for name, source in sources))
        return 200, prometheus.CONTENT_TYPE, text + "".join(more)


async def _text_of(name: str, source: MetricSource) -> str:
    """Returns the text of a program's metrics. If that fails, the page lacks them."""
    try:
        return await asyncio.wait_for(source(), SOURCE_LIMIT_S)
    except Exception:
        log.logger.exception("the metrics of %s cannot be read", name)
        return ""


def _hosts(lines: list[str]) -> list[str]:
    """Returns the values of all Host headers."""
    fields = (line.partition(":") for line in lines)
    return [value.strip() for name, _, value in fields if name.strip().lower() == "host"]
