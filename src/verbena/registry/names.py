"""Valid names of repositories and tags, in the grammar of the OCI specification."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 255
REPOSITORY = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
TAG = r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}"

_REPOSITORY, _TAG = re.compile(REPOSITORY), re.compile(TAG)


def is_repository(name: str) -> bool:
    # The length first: it bounds the time that the grammar takes.
    return len(name) <= MAX_NAME_LENGTH and _REPOSITORY.fullmatch(name) is not None


def is_tag(name: str) -> bool:
    return _TAG.fullmatch(name) is not None
