"""A registry's HTTP server in the test's own event loop, and a client for the OCI distribution API."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from verbena.config import Config, override
from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.manifests import OCI_MANIFEST
from verbena.registry.program import serving
from verbena.registry.service import Registry

OCTETS = {"Content-Type": "application/octet-stream"}


@dataclass
class Answer:
    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error code of the specification in the body."""
        return str(self.json["errors"][0]["code"])


class Client:
    """Sends requests to one server. `registry` is the object that it serves, for checks of its state."""

    def __init__(self, base: str, session: aiohttp.ClientSession, registry: Registry) -> None:
        self.base = base
        self.session = session
        self.registry = registry

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        spelled = {name.replace("_", "-"): value for name, value in headers.items()}
        url = path if path.startswith("http") else self.base + path
        body = io.BytesIO(body) if isinstance(body, bytes) and body else body
        async with self.session.request(
            method, url, data=body, headers=spelled, allow_redirects=False, skip_auto_headers=["Content-Type"]
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    async def begin(self, name: str, query: str = "") -> str:
        answer = await self("POST", f"/v2/{name}/blobs/uploads/{query}")
        assert answer.status == 202, answer
        return str(answer.headers["Location"])

    async def blob(self, name: str, content: bytes, algorithm: str = "sha256") -> Digest:
        digest = digests.of(content, algorithm)
        answer = await self("PUT", f"{await self.begin(name)}?digest={digest}", content)
        assert answer.status == 201, answer
        return digest

    async def manifest(self, name: str, reference: str, content: bytes, kind: str = OCI_MANIFEST) -> Answer:
        return await self("PUT", f"/v2/{name}/manifests/{reference}", content, Content_Type=kind)


@contextlib.asynccontextmanager
async def serve(folder: Path, **keys: Any) -> AsyncIterator[Client]:
    """Serves `folder` with these keys of [registry]; keys of other sections by their full name, with "__" for
    the dot."""
    values = {f"registry.{key}" if "__" not in key else key.replace("__", "."): v for key, v in keys.items()}
    values |= {"registry.folder": str(folder), "registry.port": 0}
    async with serving(override(Config(), values)) as program, aiohttp.ClientSession() as session:
        client = Client(program.server.addresses[0], session, program.registry)
        client.program = program  # type: ignore[attr-defined]
        yield client
