"""Paginated lists: tags, referrers and the catalog."""

from __future__ import annotations

from urllib.parse import urlencode

from aiohttp import web

from verbena.registry.errors import Refused
from verbena.registry.http.call import HttpCall, answer, answer_json
from verbena.registry.manifests import OCI_INDEX
from verbena.registry.service import parse_digest


async def base(call: HttpCall) -> web.StreamResponse:
    return answer(200, body=b"{}", content_type="application/json")


async def list_tags(call: HttpCall) -> web.StreamResponse:
    limit = _limit(call)
    # Fetch one more than requested, to know whether there is a next page.
    tags = call.registry.tags(call.name, after=call.request.query.get("last", ""), limit=limit + 1)
    headers = {}
    if len(tags) > limit:
        tags = tags[:limit]
        if tags:
            headers["Link"] = _next(call, call.path("tags", "list"), n=str(limit), last=tags[-1])
    return answer_json({"name": call.name, "tags": tags}, headers)


async def list_referrers(call: HttpCall) -> web.StreamResponse:
    subject, query = parse_digest(call.route.reference), call.request.query
    wanted = query.get("artifactType") or None
    limit = _limit(call)
    found = call.registry.referrers(
        call.name, subject, artifact_type=wanted, after=query.get("last", ""), limit=limit + 1
    )
    headers = {"OCI-Filters-Applied": "artifactType"} if wanted else {}
    if len(found) > limit:
        found = found[:limit]
        if found:
            again = {"artifactType": wanted} if wanted else {}
            path = call.path("referrers", str(subject))
            headers["Link"] = _next(call, path, n=str(limit), last=found[-1]["digest"], **again)
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": found}
    return answer_json(document, headers, OCI_INDEX)


async def catalog(call: HttpCall) -> web.StreamResponse:
    """Lists the repositories that the client may pull from."""
    limit, after = _limit(call), call.request.query.get("last", "")
    names: list[str] = []
    more = True
    while more and len(names) <= limit:
        page = call.registry.metadata.repositories(after=after, limit=limit + 1)
        more = len(page) > limit
        names += [name for name in page if call.identity.may("pull", name)]
        after = page[-1] if page else after
    headers = {}
    if len(names) > limit:
        names = names[:limit]
        if names:
            headers["Link"] = _next(call, "/v2/_catalog", n=str(limit), last=names[-1])
    return answer_json({"repositories": names}, headers)


def _limit(call: HttpCall) -> int:
    text = call.request.query.get("n")
    if text is None:
        return call.settings.page
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Refused("UNSUPPORTED", "n is not a number", status=400)
    return min(int(text), call.settings.page)


def _next(call: HttpCall, path: str, **query: str) -> str:
    return f'<{path}?{urlencode(query)}>; rel="next"'
