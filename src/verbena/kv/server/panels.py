"""The store's panels on the status page of its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from verbena.kv.server.info import SECTIONS, human

if TYPE_CHECKING:
    from verbena.kv.server.server import Server

Panel = dict[str, Any]
MAX_COMMANDS = 12
MAX_RANGES = 8
SLOTS = 16384


def panels(server: Server) -> dict[str, Callable[[], Panel | None]]:
    """Returns functions that make the panels, by title. They run on a thread of the page's server."""
    return {
        "Store": lambda: _store(server),
        "Keyspace": lambda: _keyspace(server),
        "Commands": lambda: _commands(server),
        "Replication": lambda: _section(server, "replication"),
        "Cluster": lambda: _cluster(server),
        "Shards": lambda: _shards(server),
        "Moves": lambda: _moves(server),
    }


def _store(server: Server) -> Panel:
    counters, limit = server.engine.counters(), server.parameters.get("maxmemory")
    return {
        "fields": {
            "clients": counters["clients"],
            "commands": f"{counters['commands']:,} ({int(server.stats.ops.per_second):,}/s)",
            "memory": human(counters["used_bytes"]) + (f" of {human(limit)}" if limit else ""),
            "expired, evicted": f"{counters['expired']:,}, {counters.get('evicted', 0):,}",
        }
    }


def _keyspace(server: Server) -> Panel:
    rows = [
        [f"db{database.index}", f"{len(database):,}", f"{database.volatile_keys:,}"]
        for database in server.databases
        if len(database)
    ]
    return {"columns": ["database", "keys", "with a time to live"], "rows": rows, "empty": "No key yet."}


def _commands(server: Server) -> Panel:
    """Returns the commands with the largest total time, with their latencies."""
    counts = SECTIONS["commandstats"](server)
    times = SECTIONS["latencystats"](server)
    found = []
    for key, text in counts.items():
        name = key.removeprefix("cmdstat_")
        counters = dict(part.split("=", 1) for part in str(text).split(","))
        spread = dict(
            part.split("=", 1)
            for part in str(times.get(f"latency_percentiles_usec_{name}", "")).split(",")
            if part
        )
        found.append((float(counters.get("usec", 0)), name, counters, spread))
    rows = [
        [
            name.replace("|", " "),
            f"{int(counters.get('calls', 0)):,}",
            f"{counters.get('usec_per_call', '–')} µs",
            f"{spread['p50']} µs" if "p50" in spread else "–",
            f"{spread['p99']} µs" if "p99" in spread else "–",
        ]
        for _, name, counters, spread in sorted(found, reverse=True, key=lambda row: row[:2])[:MAX_COMMANDS]
    ]
    columns = ["command", "calls", "mean", "p50", "p99"]
    return {"columns": columns, "rows": rows, "empty": "No command yet."}


def _cluster(server: Server) -> Panel | None:
    """Returns the cluster section of INFO; None: the server is not in a cluster."""
    panel = _section(server, "cluster")
    return panel if panel is not None and panel["fields"].get("cluster_enabled", "0") != "0" else None


def _shards(server: Server) -> Panel | None:
    """Returns the owners of slots according to this node's copy of the cluster map."""
    if server.services.cluster is None:
        return None
    map = server.services.cluster.map
    rows = []
    for id, member in sorted(map.members.items(), key=lambda one: one[1].name):
        copied, slots = map.replicas.get(id), map.slots_of(id)
        role = f"replica of {map.members[copied].name}" if copied else "primary"
        rows.append(
            [
                member.name + (" (this node)" if id == server.services.cluster.id else ""),
                member.address,
                role,
                {"progress": sum(len(part) for part in slots) / SLOTS},
                ", ".join(str(part) for part in slots[:MAX_RANGES]) or "–",
            ]
        )
    return {"columns": ["node", "address", "role", "share of the slots", "slots"], "rows": rows}


def _moves(server: Server) -> Panel | None:
    """Returns moves whose source is this node, finished ones included."""
    if server.services.cluster is None:
        return None
    map = server.services.cluster.map
    rows = [
        [
            move["slots"],
            map.members[move["target"]].name if move["target"] in map.members else move["target"][:8],
            move["phase"],
            move["wire"] or "–",
            human(move["bytes_transferred"] + move["fallback_bytes"]),
            {"progress": move["fraction"]} if "fraction" in move else "",
        ]
        for move in server.services.cluster.moves.status()
    ]
    columns = ["slots", "to", "phase", "wire", "acknowledged", "copied"]
    return {"columns": columns, "rows": rows, "empty": "No slot has been moved from here."}


def _section(server: Server, name: str) -> Panel | None:
    """Returns the fields of an INFO section, with those that services add."""
    fields = dict(SECTIONS[name](server)) if name in SECTIONS else {}
    more = server.services.info_sections.get(name)
    if more is not None:
        fields.update(more())
    return {"fields": {key: str(value) for key, value in fields.items()}} if fields else None
