"""What a server reports of its replication: ROLE and the fields of INFO."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from verbena.kv.replication.primary_address import FIELD
from verbena.transport.observe.metrics.counters import Histogram

if TYPE_CHECKING:
    from verbena.kv.replication.replication import Replication

NO_HISTORY = "0" * 40


def role(replication: Replication) -> list[Any]:
    """Returns the reply of ROLE."""
    link = replication.link
    if link is not None:
        return [b"slave", link.host.encode(), link.port, link.state.encode(), link.offset]
    rows = [
        [replica.host.encode(), b"%d" % replica.port, b"%d" % replica.sender.counters()["offset"]]
        for replica in replication.replicas
        if replica.is_linked
    ]
    return [b"master", replication.server.engine.backlog_counters()["offset"], rows]


def info(replication: Replication) -> dict[str, Any]:
    """Returns the fields of INFO replication."""
    backlog, get = replication.server.engine.backlog_counters(), replication.server.parameters.get
    link = replication.link
    fields: dict[str, Any] = {"role": "slave" if link is not None else "master"}
    if link is not None:
        counters = link.counters()
        up = link.state == "connected" and link.linked
        silent_s = counters["silent_ns"] // 1_000_000_000 if up and counters else -1
        fields |= {
            "master_host": link.host,
            "master_port": link.port,
            "master_link_status": "up" if up else "down",
            "master_last_io_seconds_ago": silent_s,
            "master_sync_in_progress": int(link.state == "sync"),
            "slave_read_repl_offset": link.offset,
            "slave_repl_offset": link.offset,
        }
        if not up:
            fields["master_link_down_since_seconds"] = int(time.monotonic() - link.down_since)
        fields |= {
            "slave_priority": 100,
            "slave_read_only": int(get("replica-read-only")),
            "replica_announced": 1,
            "master_link_wire": link.wire,
            "master_link_error": link.last_error,
            "replica_full_syncs": link.full_syncs,
            "replica_partial_syncs": link.partial_syncs,
            "replica_written_bytes": counters.get("written_bytes", 0),
            "replica_received_bytes": counters.get("bytes", 0),
            "replica_damaged_pieces": counters.get("damaged", 0),
            **_lag_fields(counters),
        }
    fields["connected_slaves"] = sum(replica.is_linked for replica in replication.replicas)
    if get("min-replicas-to-write"):
        fields["min_slaves_good_slaves"] = replication.good_replicas()
    for number, replica in enumerate(replication.replicas):
        row = replica.sender.counters()
        fields[f"slave{number}"] = (
            f"ip={replica.host},port={replica.port},state={replica.state(row)},"
            f"offset={row['offset']},lag={row['silent_ns'] // 1_000_000_000},"
            f"wire={replica.session.wire or 'none'},writes={row['writes']},messages={row['messages']},"
            f"inlined={row['inlined']},repeats={row['repeats']},"
            f"yielded_us={row['yielded_ns'] // 1000}"
        )
    return fields | {
        "master_failover_state": "no-failover",
        "master_replid": link.position.replid or NO_HISTORY if link is not None else replication.replid,
        "master_replid2": replication.replid2,
        "master_repl_offset": link.offset if link is not None else backlog["offset"],
        "second_repl_offset": replication.second_offset,
        "repl_backlog_active": backlog["has_backlog"],
        "repl_backlog_size": get("repl-backlog-size"),
        # Bytes are counted from 1: the last one of the backlog is master_repl_offset.
        "repl_backlog_first_byte_offset": backlog["first_offset"] + 1 if backlog["has_backlog"] else 0,
        "repl_backlog_histlen": backlog.get("bytes", 0),
        FIELD: replication.sessions_port,
    }


def _lag_fields(counters: dict[str, Any]) -> dict[str, int]:
    """Returns the replica's lag in the last eight seconds; 0: there was nothing to apply."""
    lags = Histogram(buckets=counters["lags"]) if counters else Histogram()
    return {
        f"replica_lag_p{percent}_us": int((lags.quantile_ns(percent / 100) or 0) / 1000)
        for percent in (50, 99)
    }
