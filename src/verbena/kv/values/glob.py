"""Patterns of Redis: * ? [a-z] [^a], and \\ before a literal character."""

from __future__ import annotations

import functools
import re


@functools.lru_cache(maxsize=4096)
def compiled(pattern: bytes) -> re.Pattern[bytes]:
    out: list[bytes] = []
    at, length = 0, len(pattern)
    while at < length:
        char = pattern[at : at + 1]
        at += 1
        if char == b"*":
            if not out or out[-1] != b".*":  # successive stars only cost time
                out.append(b".*")
        elif char == b"?":
            out.append(b".")
        elif char == b"[":
            chosen, at = _class(pattern, at)
            out.append(chosen)
        else:
            if char == b"\\" and at < length:
                char = pattern[at : at + 1]
                at += 1
            out.append(re.escape(char))
    return re.compile(b"".join(out), re.DOTALL)


def _class(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Converts a character class, from after its "[". Returns the regular expression and the position after
    it. An unclosed class extends to the end of the pattern."""
    negated = pattern[at : at + 1] == b"^"
    at += negated
    chosen: set[int] = set()
    while at < len(pattern) and pattern[at : at + 1] != b"]":
        if pattern[at : at + 1] == b"\\" and at + 1 < len(pattern):
            at += 1
            chosen.add(pattern[at])
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            chosen.update(range(low, high + 1))
            at += 2
        else:
            chosen.add(pattern[at])
        at += 1
    body = b"".join(re.escape(bytes([value])) for value in sorted(chosen))
    if not body:
        return (b"." if negated else b"(?!)"), at + 1
    return (b"[^" if negated else b"[") + body + b"]", at + 1


def matches(pattern: bytes, text: bytes) -> bool:
    return compiled(pattern).fullmatch(text) is not None
