"""The context of one request, and functions that build responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from verbena.registry.access.identity import Identity
from verbena.registry.digests import Digest
from verbena.registry.errors import Refused
from verbena.registry.http.routes import Route
from verbena.registry.service import Registry

JSON = "application/json"
VERSION = {"Docker-Distribution-API-Version": "registry/2.0"}


@dataclass(frozen=True)
class Settings:
    """Settings of the HTTP server."""

    delete: bool = True
    read_only: bool = False
    chunk_min_bytes: int = 0
    timeout_s: float = 60.0
    requests_per_s: int = 0
    max_connections: int = 1000
    page: int = 1000
    redirect_s: int = 0
    """Validity of redirects to the bucket in seconds; 0 disables redirects."""


@dataclass
class HttpCall:
    """What a handler gets: the request, its parsed path and the client's identity."""

    request: web.BaseRequest
    route: Route
    registry: Registry
    identity: Identity
    settings: Settings
    received_bytes: int = 0
    sent_bytes: int = 0

    @property
    def name(self) -> str:
        return self.route.name

    def path(self, *parts: str) -> str:
        """A path within this repository. Relative, because only a proxy in front knows scheme and host."""
        return "/".join(("/v2", self.name, *parts))


def answer(
    status: int, headers: Mapping[str, str] | None = None, body: bytes = b"", content_type: str = ""
) -> web.Response:
    response = web.Response(status=status, headers=headers, body=body)
    if content_type:
        response.headers["Content-Type"] = content_type
    elif not body:
        response.headers.pop("Content-Type", None)
    return response


def answer_json(document: Any, headers: Mapping[str, str] | None = None, kind: str = JSON) -> web.Response:
    return answer(200, headers, json.dumps(document).encode(), kind)


def answer_refusal(refused: Refused) -> web.Response:
    return answer(refused.status, refused.headers, refused.body(), JSON)


def digest_headers(digest: Digest) -> dict[str, str]:
    return {"Docker-Content-Digest": str(digest), "ETag": f'"{digest}"'}
