"""The error table: every completion status and set-up code, in the order of the reference page."""

from __future__ import annotations

from collections.abc import Mapping

from verbena.errors.explanation import Explanation
from verbena.errors.rows import completion, connection, machine, registry, session, shards, store, tls, verbs

STATUSES: tuple[Explanation, ...] = completion.ROWS
# The sections of the set-up codes, by their heading.
SETUP: Mapping[str, tuple[Explanation, ...]] = {
    "This machine and its devices": machine.ROWS,
    "Connecting": connection.ROWS,
    "TLS and certificates": tls.ROWS,
    "Sessions and far memory": session.ROWS,
    "The store": store.ROWS,
    "The registry": registry.ROWS,
    "Cluster and shard moves": shards.ROWS,
    "Use of verbs objects": verbs.ROWS,
}

EXPLANATIONS: Mapping[str, Explanation] = {
    row.code: row for rows in (STATUSES, *SETUP.values()) for row in rows
}
