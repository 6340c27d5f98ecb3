"""`Server`: accepts connections, dispatches requests, and maps failures to the specification's error
responses."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from verbena.errors import setup_error
from verbena.registry.access.identity import Identity
from verbena.registry.access.rates import Rates
from verbena.registry.bucket import BucketFailed
from verbena.registry.errors import Refused
from verbena.registry.events import Event
from verbena.registry.http import discovery, management, pull, push
from verbena.registry.http.access_log import AccessLog
from verbena.registry.http.authentication import Authenticator
from verbena.registry.http.call import VERSION, HttpCall, Settings, answer, answer_refusal
from verbena.registry.http.connections import Connections
from verbena.registry.http.routes import Route, route
from verbena.registry.metrics import CONTENT_TYPE, Metrics
from verbena.registry.service import Registry
from verbena.transport.observe.host_names import HostNames

logger = logging.getLogger("verbena.registry")

Handler = Callable[[HttpCall], Awaitable[web.StreamResponse]]

# The one table of handlers.
HANDLERS: dict[str, dict[str, Handler]] = {
    "base": {"GET": discovery.base, "HEAD": discovery.base},
    "catalog": {"GET": discovery.catalog},
    "tags": {"GET": discovery.list_tags},
    "referrers": {"GET": discovery.list_referrers},
    "manifest": {
        "GET": pull.get_manifest,
        "HEAD": pull.get_manifest,
        "PUT": push.put_manifest,
        "DELETE": management.delete_manifest,
    },
    "blob": {"GET": pull.get_blob, "HEAD": pull.get_blob, "DELETE": management.delete_blob},
    "uploads": {"POST": push.begin_upload},
    "upload": {
        "GET": push.get_upload,
        "PATCH": push.patch_upload,
        "PUT": push.put_upload,
        "DELETE": push.cancel_upload,
    },
}
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
READ_BUFFER = 256 << 10
SHUTDOWN_TIMEOUT_S = 10.0
KEEPALIVE_S = 75.0
"""The time for which an idle connection is kept open."""


@dataclass
class Server:
    """`start()` listens; `stop()` waits SHUTDOWN_TIMEOUT_S for running requests, then cancels them."""

    registry: Registry
    authenticator: Authenticator
    settings: Settings = field(default_factory=Settings)
    metrics: Metrics = field(default_factory=Metrics)
    access_log: AccessLog = field(default_factory=lambda: AccessLog(""))
    pages: dict[str, Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = field(default_factory=dict)
    """Handlers of additional paths, such as the web page and metrics."""
    host_names: HostNames = field(default_factory=lambda: HostNames(key="registry.host_names"))
    """The names under which these paths are served."""

    def __post_init__(self) -> None:
        self._rates = Rates(self.settings.requests_per_s) if self.settings.requests_per_s else None
        self._runner: web.ServerRunner | None = None
        self.registry.listeners.append(self._count)
        self.metrics.stored = self.registry.metadata.totals
        self.addresses: list[str] = []

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Starts to listen and fills `addresses`. Raises AddressError."""
        connections = Connections(
            self.handle,
            most=self.settings.max_connections,
            timeout_s=self.settings.timeout_s,
            read_bufsize=READ_BUFFER,
            keepalive_timeout=KEEPALIVE_S,
            access_log=None,
        )
        self.metrics.refused_connections = lambda: connections.refused
        self._runner = web.ServerRunner(connections, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=tls, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise setup_error(
                "address_in_use" if error.errno == errno.EADDRINUSE else "unreachable",
                operation="listen",
                detail=f"{host}:{port}",
                errno=error.errno,
            ) from error
        scheme = "https" if tls else "http"
        for address in self._runner.addresses:
            name = f"[{address[0]}]" if ":" in address[0] else address[0]
            self.addresses.append(f"{scheme}://{name}:{address[1]}")

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self.access_log.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request; failures become error responses. Connection errors, cancellation and an
        OSError other than a full disk propagate to aiohttp."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        self.metrics.in_progress += 1
        found = route(request.path) or Route("none")
        call = HttpCall(request, found, self.registry, Identity("", self.authenticator.policy), self.settings)
        status = 499
        try:
            response = await self._answer_or_refuse(call)
            status = response.status
            if not response.prepared:
                await self._finish(call, response)
            return response
        finally:
            seconds = loop.time() - started
            self.metrics.in_progress -= 1
            self.metrics.sent_bytes += call.sent_bytes
            self.metrics.received_bytes += call.received_bytes
            method = request.method if request.method in _METHODS else "other"
            self.metrics.request(method, found.endpoint, status, seconds)
            self.access_log.write(request, call.identity.user, status, call.sent_bytes, seconds)

    async def _answer_or_refuse(self, call: HttpCall) -> web.StreamResponse:
        try:
            return await self._answer(call)
        except Refused as refused:
            if isinstance(refused, BucketFailed):
                logger.error("%s %s: %s", call.request.method, call.request.path[:200], refused)
            return answer_refusal(refused)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except web.HTTPException as error:
            return answer(error.status)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            logger.error("the disk is full: %s", self.registry.folder)
            return answer_refusal(Refused("BLOB_UPLOAD_INVALID", "no space left on device", status=507))
        except Exception:
            logger.exception("a request failed: %s %s", call.request.method, call.request.path[:200])
            return answer(500)

    async def _answer(self, call: HttpCall) -> web.StreamResponse:
        request, found = call.request, call.route
        hosts = request.headers.getall("Host", [])
        if page := self.pages.get(request.path):
            if refusal := self.host_names.refusal(hosts):
                return answer(421, body=refusal.encode(), content_type="text/plain")
            return await page(request)
        if request.method in WRITES:
            origin = request.headers.get("Origin", "")
            if refusal := self.host_names.origin_refusal(origin, hosts):
                raise Refused("DENIED", refusal.strip(), status=403)
        if found.endpoint == "none":
            raise Refused("UNSUPPORTED", "unknown endpoint", status=404)
        self._check_rate(request)
        if found.endpoint == "token":
            return await self.authenticator.issue_token(request)
        handlers = HANDLERS[found.endpoint]
        handler = handlers.get(request.method)
        if handler is None:
            raise Refused("UNSUPPORTED", headers={"Allow": ", ".join(handlers)})
        call.identity = await self.authenticator.identify(request, found)
        self.authenticator.check(request, found, call.identity)
        if self.settings.read_only and request.method in WRITES:
            raise Refused("UNSUPPORTED", "the registry is read-only")
        return await handler(call)

    async def _finish(self, call: HttpCall, response: web.StreamResponse) -> None:
        response.headers.update(VERSION)
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            call.sent_bytes = len(response.body) if call.request.method != "HEAD" else 0

    def _check_rate(self, request: web.BaseRequest) -> None:
        if self._rates is None:
            return
        wait_s = self._rates.wait_s(request.remote or "", asyncio.get_running_loop().time())
        if wait_s:
            self.metrics.rate_limited += 1
            raise Refused("TOOMANYREQUESTS", headers={"Retry-After": str(math.ceil(wait_s))})

    async def _count(self, event: Event) -> None:
        self.metrics.events[event.action, event.kind] += 1

    async def metrics_page(self, request: web.BaseRequest) -> web.StreamResponse:
        return answer(200, body=self.metrics.page().encode(), content_type=CONTENT_TYPE)


_METHODS = frozenset({"GET", "HEAD", *WRITES})
