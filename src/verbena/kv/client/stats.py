"""Counters of a client of the store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stats:
    """`one_sided` and `by_message` count the strings read by get(), get_into() and mget(). `redirects`: MOVED
    and ASK replies that were followed; `retries`: commands repeated because a cluster could not run them yet.
    `wire` and `reason`: those of the session."""

    one_sided: int
    by_message: int
    redirects: int
    retries: int
    wire: str | None
    reason: str
