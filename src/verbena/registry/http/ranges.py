"""Ranges and conditions of requests, by RFC 9110, and the ranges of uploads, by the specification."""

from __future__ import annotations

import re

_RANGE = re.compile(r"bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.IGNORECASE)
_CONTENT_RANGE = re.compile(r"(?:bytes[ =])?([0-9]{1,18})-([0-9]{1,18})(?:/(?:[0-9]{1,18}|\*))?")
_TAG = re.compile(r'(?:W/)?"([^"]*)"')


class Unsatisfiable(Exception):
    """No byte of the range exists: 416."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The stretch [start, end) that is asked for, or None for all of it: also where the header is not one
    range of bytes, which a server may ignore. Raises Unsatisfiable."""
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
    """The stretch [start, end) that an upload's chunk says it is; None if it is not understood."""
    match = _CONTENT_RANGE.fullmatch(header.strip())
    if not match or int(match[2]) < int(match[1]):
        return None
    return int(match[1]), int(match[2]) + 1


def matches(header: str | None, tag: str) -> bool:
    """Whether an If-None-Match header names the entity tag, or any."""
    if header is None:
        return False
    return header.strip() == "*" or tag in _TAG.findall(header)


def upload_range(received: int) -> str:
    """What has been received, as clients of uploads have always been told: `0-0` also stands for nothing."""
    return f"0-{max(0, received - 1)}"
