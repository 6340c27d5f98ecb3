"""GET and HEAD of manifests and blobs."""

from __future__ import annotations

import os

from aiohttp import web

from verbena.registry.errors import Refused
from verbena.registry.events import Event
from verbena.registry.http import sending
from verbena.registry.http.call import VERSION, HttpCall, answer, digest_headers
from verbena.registry.http.ranges import Unsatisfiable, matches, parse_range
from verbena.registry.incoming import IncomingBlob
from verbena.registry.service import Blob, parse_digest

OCTETS = "application/octet-stream"
IMMUTABLE = {"Cache-Control": "max-age=31536000, immutable"}


async def get_manifest(call: HttpCall) -> web.StreamResponse:
    manifest = await call.registry.manifest(call.name, call.route.reference)
    headers = digest_headers(manifest.digest)
    if matches(call.request.headers.get("If-None-Match"), str(manifest.digest)):
        return answer(304, headers)
    if call.request.method == "GET":
        await call.registry.notify(
            Event(
                *("pull", "manifest", call.name, manifest.digest, len(manifest.content)),
                *(manifest.media_type, call.route.reference, call.identity.user),
            )
        )
    return answer(200, headers, manifest.content, manifest.media_type)


async def get_blob(call: HttpCall) -> web.StreamResponse:
    request, digest = call.request, parse_digest(call.route.reference)
    blob = await call.registry.blob(call.name, digest)
    headers = digest_headers(digest) | IMMUTABLE | VERSION | {"Accept-Ranges": "bytes"}
    if matches(request.headers.get("If-None-Match"), str(digest)):
        return answer(304, headers)
    size = blob.size
    assert size is not None  # a source sets the size before it returns the blob
    wanted = None
    condition = request.headers.get("If-Range")
    if condition is None or matches(condition, str(digest)):
        try:
            wanted = parse_range(request.headers.get("Range"), size)
        except Unsatisfiable:
            refused = Refused(
                "SIZE_INVALID",
                "range not satisfiable",
                status=416,
                headers={"Content-Range": f"bytes */{size}"},
            )
            raise refused from None
    start, end = wanted or (0, size)
    if wanted:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    headers["Content-Type"] = OCTETS
    response = web.StreamResponse(status=206 if wanted else 200, headers=headers)
    if request.method == "HEAD":
        return _head(response, end - start)
    if isinstance(blob, Blob) and blob.object and call.settings.redirect_s:
        assert call.registry.recall is not None
        address = await call.registry.recall.bucket.sign(blob.object, call.settings.redirect_s)
        return answer(307, digest_headers(digest) | {"Location": address, "Cache-Control": "no-store"})
    call.sent_bytes += end - start
    return await _send(call, blob, response, start, end)


async def _send(
    call: HttpCall, blob: Blob | IncomingBlob, response: web.StreamResponse, start: int, end: int
) -> web.StreamResponse:
    if isinstance(blob, IncomingBlob):
        await sending.send_arriving(call.request, response, blob, start, end)
        return response
    try:
        file = blob.path.open("rb", buffering=0)
    except FileNotFoundError:
        return await _send_recalled(call, blob, response, start, end)
    if blob.object and call.registry.recall is not None:
        call.registry.recall.used(blob.digest, blob.size)
    with file:
        if end - start <= sending.SMALL:
            body = os.pread(file.fileno(), end - start, start)
            return web.Response(status=response.status, headers=response.headers, body=body)
        await sending.send_whole(call.request, response, file, start, end)
    return response


async def _send_recalled(
    call: HttpCall, blob: Blob, response: web.StreamResponse, start: int, end: int
) -> web.StreamResponse:
    """Sends a blob from the bucket: the whole through a local file that concurrent requests share; a range
    directly from the bucket unless the file already has it."""
    recall = call.registry.recall
    if recall is None or not blob.object:
        raise Refused("BLOB_UNKNOWN", detail={"digest": str(blob.digest)})
    active = recall.active.get(blob.digest)
    if (start, end) != (0, blob.size) and (active is None or active.incoming.received < end):
        await sending.send_pieces(
            call.request, response, recall.read_range(blob.object, start, end), end - start
        )
        return response
    incoming = await recall.first(recall.start(blob.digest, blob.size, blob.object))
    await sending.send_arriving(call.request, response, incoming, start, end)
    return response


def _head(response: web.StreamResponse, length: int) -> web.StreamResponse:
    response.content_length = length
    return response
