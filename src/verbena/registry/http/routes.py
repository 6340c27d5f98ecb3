"""Which endpoint a path means. Names may hold slashes, and words such as "blobs": paths are read from
their end."""

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
LONGEST = 1024


@dataclass(frozen=True)
class Route:
    """An endpoint, and what its path names."""

    endpoint: str
    name: str = ""
    reference: str = ""


def route(path: str) -> Route | None:
    """None if there is no such endpoint."""
    if path in _FIXED:
        return Route(_FIXED[path])
    if len(path) > LONGEST:
        return None
    for endpoint, pattern in _PATTERNS:
        if match := pattern.fullmatch(path):
            return Route(endpoint, **match.groupdict())
    return None
