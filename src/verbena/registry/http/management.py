"""DELETE of manifests, tags and blobs."""

from __future__ import annotations

from aiohttp import web

from verbena.registry.errors import Refused
from verbena.registry.http.call import HttpCall, answer
from verbena.registry.service import parse_digest


async def delete_manifest(call: HttpCall) -> web.StreamResponse:
    _require_delete_enabled(call)
    await call.registry.delete_manifest(call.name, call.route.reference, actor=call.identity.user)
    return answer(202)


async def delete_blob(call: HttpCall) -> web.StreamResponse:
    _require_delete_enabled(call)
    digest = parse_digest(call.route.reference)
    await call.registry.delete_blob(call.name, digest, actor=call.identity.user)
    return answer(202)


def _require_delete_enabled(call: HttpCall) -> None:
    if not call.settings.delete:
        raise Refused("UNSUPPORTED", "deletes are disabled")
