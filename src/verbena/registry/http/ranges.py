"""Range headers and conditions of RFC 9110, and the upload ranges of the OCI specification."""

from __future__ import annotations

import re

_RANGE = re.compile(r"bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.IGNORECASE)
_CONTENT_RANGE = re.compile(r"(?:bytes[ =])?([0-9]{1,18})-([0-9]{1,18})(?:/(?:[0-9]{1,18}|\*))?")
_TAG = re.compile(r'(?:W/)?"([^"]*)"')


class Unsatisfiable(Exception):
    """The range is outside the content; answered with 416."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Parses a Range header into [start, end). Returns None, for the whole content, if there is none or it is
    not a single range of bytes, which a server may ignore. Raises Unsatisfiable."""
    match = _RANGE.fullmatch(header or "")
    if not match or not (match[1] or match[2]):
        return None
    if not match[1]:
        last = int(match[2])
        if last == 0 or size == 0:
            raise Unsatisfiable
        return max(0, size - last), size
    start = int(match[1])
    end = int(match[2]) + 1 if match[2] else size
    if start >= size or end <= start:
        raise Unsatisfiable
    return start, min(end, size)


def parse_content_range(header: str) -> tuple[int, int] | None:
    """Parses the Content-Range of an upload chunk into [start, end); None if it is malformed."""
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if not match or int(match[2]) < int(match[1]):
        return None
    return int(match[1]), int(match[2]) + 1


def matches(header: str | None, tag: str) -> bool:
    """Whether a condition header lists the entity tag or is `*`."""
    if header is None:
        return False
    return header.strip() == "*" or tag in _TAG.findall(header)


def upload_range(received: int) -> str:
    """Formats the Range header of an upload; existing clients expect `0-0` for an empty upload as well."""
    return f"0-{max(0, received - 1)}"
