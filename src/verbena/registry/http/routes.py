"""Maps paths to endpoints. Repository names may contain slashes and words such as "blobs", so the patterns
match the name greedily, up to the last keyword."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PATTERNS = (
    ("tags", re.compile(r"/v2/(?P<name>.+)/tags/list")),
    ("uploads", re.compile(r"/v2/(?P<name>.+)/blobs/uploads/?")),
    ("upload", re.compile(r"/v2/(?P<name>.+)/blobs/uploads/(?P<reference>[^/]+)")),
    ("manifest", re.compile(r"/v2/(?P<name>.+)/manifests/(?P<reference>[^/]+)")),
    ("blob", re.compile(r"/v2/(?P<name>.+)/blobs/(?P<reference>[^/]+)")),
    ("referrers", re.compile(r"/v2/(?P<name>.+)/referrers/(?P<reference>[^/]+)")),
)
_FIXED = {"/v2/": "base", "/v2": "base", "/v2/_catalog": "catalog", "/token": "token"}
MAX_LENGTH = 1024


@dataclass(frozen=True)
class Route:
    """An endpoint, with the repository name and the reference in the path."""

    endpoint: str
    name: str = ""
    reference: str = ""


def route(path: str) -> Route | None:
    """Returns the route of a path, or None if there is no such endpoint."""
    if path in _FIXED:
        return Route(_FIXED[path])
    if len(path) > MAX_LENGTH:
        return None
    for endpoint, pattern in _PATTERNS:
        if match := pattern.fullmatch(path):
            return Route(endpoint, **match.groupdict())
    return None
