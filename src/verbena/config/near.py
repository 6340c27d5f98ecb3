"""The name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The likeliest of `names`, if one is near: another case, - for _, or a few letters off."""
    import difflib  # slow to import, and not needed where nothing is wrong

    known = {_plain(candidate): candidate for candidate in names}
    # A long name is no typing error, and comparing it takes long.
    close = difflib.get_close_matches(_plain(name[:64]), known, n=1, cutoff=0.6)
    return known[close[0]] if close else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")
