"""Suggests a name for a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Returns the most similar of `names`, without regard to case and to - or _; None if none is similar."""
    import difflib  # slow to import, and only needed for errors

    known = {_plain(candidate): candidate for candidate in names}
    # Only the start: a long name is not a typing error, and comparing it is slow.
    close = difflib.get_close_matches(_plain(name[:64]), known, n=1, cutoff=0.6)
    return known[close[0]] if close else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")
