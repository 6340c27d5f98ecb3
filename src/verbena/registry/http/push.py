"""Uploads, mounts and manifests: POST, PATCH, PUT, and GET and DELETE of an upload."""

from __future__ import annotations

from aiohttp import web

from verbena.registry import digests
from verbena.registry.bucket import BucketFailed
from verbena.registry.digests import Digest
from verbena.registry.errors import Refused
from verbena.registry.http.call import HttpCall, answer
from verbena.registry.http.ranges import parse_content_range, upload_range
from verbena.registry.http.receiving import receive_blob, receive_short
from verbena.registry.service import Blob, parse_digest
from verbena.registry.uploads import Upload

MAX_TAGS = 100


async def begin_upload(call: HttpCall) -> web.StreamResponse:
    """POST: mounts a blob, receives a whole one (`digest` in the query), or begins an upload."""
    query = call.request.query
    if "mount" in query:
        digest = parse_digest(query["mount"])
        blob = await call.registry.mount(
            call.name,
            digest,
            origin=query.get("from"),
            may_read=lambda name: call.identity.may("pull", name),
            actor=call.identity.user,
        )
        if blob is not None:
            return _created(call, blob)
    if "digest" in query and "mount" not in query:
        return await _whole(call, parse_digest(query["digest"]))
    upload = await call.registry.begin_upload(call.name, query.get("digest-algorithm", digests.DEFAULT))
    headers = _progress(call, upload)
    if call.settings.chunk_min_bytes:
        headers["OCI-Chunk-Min-Length"] = str(call.settings.chunk_min_bytes)
    return answer(202, headers)


async def get_upload(call: HttpCall) -> web.StreamResponse:
    upload = call.registry.uploads.get(call.name, call.route.reference)
    return answer(204, _progress(call, upload))


async def patch_upload(call: HttpCall) -> web.StreamResponse:
    upload = call.registry.uploads.get(call.name, call.route.reference)
    async with upload.busy:
        await _append(call, upload)
        await call.registry.uploads.touch(upload)
        return answer(202, _progress(call, upload))


async def put_upload(call: HttpCall) -> web.StreamResponse:
    """PUT: appends the last chunk, if the request has a body, then verifies the digest and stores the
    blob."""
    upload = call.registry.uploads.get(call.name, call.route.reference)
    if "digest" not in call.request.query:
        raise Refused("DIGEST_INVALID", "the parameter digest is missing")
    digest = parse_digest(call.request.query["digest"])
    async with upload.busy:
        if await _append(call, upload):
            blob = await _finish_or_cancel(call, upload, digest)
        else:
            blob = await call.registry.finish_upload(upload, digest, actor=call.identity.user)
    return _created(call, blob)


async def cancel_upload(call: HttpCall) -> web.StreamResponse:
    upload = call.registry.uploads.get(call.name, call.route.reference)
    async with upload.busy:
        await call.registry.uploads.cancel(upload)
    return answer(204)


async def put_manifest(call: HttpCall) -> web.StreamResponse:
    tags = call.request.query.getall("tag", [])
    if len(tags) > MAX_TAGS:
        raise Refused("MANIFEST_INVALID", f"at most {MAX_TAGS} tags per request", status=414)
    content = await receive_short(call, call.registry.limits.manifest_bytes)
    pushed = await call.registry.put_manifest(
        *(call.name, call.route.reference, content, call.request.headers.get("Content-Type", "")),
        tags=tags,
        actor=call.identity.user,
    )
    response = answer(
        201,
        {
            "Location": call.path("manifests", str(pushed.digest)),
            "Docker-Content-Digest": str(pushed.digest),
        },
    )
    if pushed.subject:
        response.headers["OCI-Subject"] = pushed.subject
    for tag in tags:
        response.headers.add("OCI-Tag", tag)
    return response


async def _whole(call: HttpCall, digest: Digest) -> web.StreamResponse:
    upload = await call.registry.begin_upload(call.name, digest.algorithm)
    async with upload.busy:
        try:
            await receive_blob(call, upload.incoming)
        except BaseException:
            await call.registry.uploads.cancel(upload)
            raise
        try:
            blob = await _finish_or_cancel(call, upload, digest)
        except BucketFailed:
            await call.registry.uploads.cancel(upload)  # the client does not know the upload's location
            raise
    return _created(call, blob)


async def _finish_or_cancel(call: HttpCall, upload: Upload, digest: Digest) -> Blob:
    """Finishes the upload. On a 4xx error, such as a wrong digest, it cancels the upload. On a 5xx error the
    upload stays, and a PUT without a body can finish it later."""
    try:
        return await call.registry.finish_upload(upload, digest, actor=call.identity.user)
    except Refused as refused:
        if refused.status < 500:
            await call.registry.uploads.cancel(upload)
        raise


async def _append(call: HttpCall, upload: Upload) -> int:
    """Appends a chunk and returns its length. Raises Refused (416) if its range does not start at the
    upload's end."""
    await upload.incoming.settle()
    header = call.request.headers.get("Content-Range")
    length = call.request.content_length
    said = None
    if header is not None and length != 0:
        said = parse_content_range(header)
        if said is None or said[0] != upload.received:
            raise _out_of_order(call, upload)
        if length is not None and length != said[1] - said[0]:
            raise Refused("SIZE_INVALID", "Content-Range and Content-Length contradict each other")
    received = await receive_blob(call, upload.incoming)
    if said is not None and received != said[1] - said[0]:
        raise Refused("SIZE_INVALID", headers=_progress(call, upload))
    return received


def _out_of_order(call: HttpCall, upload: Upload) -> Refused:
    return Refused(
        "BLOB_UPLOAD_INVALID",
        f"the next chunk must begin at {upload.received}",
        status=416,
        headers=_progress(call, upload),
    )


def _progress(call: HttpCall, upload: Upload) -> dict[str, str]:
    return {
        "Location": call.path("blobs", "uploads", upload.id),
        "Range": upload_range(upload.received),
        "Docker-Upload-UUID": upload.id,
    }


def _created(call: HttpCall, blob: Blob) -> web.Response:
    headers = {
        "Location": call.path("blobs", str(blob.digest)),
        "Docker-Content-Digest": str(blob.digest),
    }
    return answer(201, headers)
