"""INFO: every field is counted or measured somewhere. Services.info_sections adds sections; one with the name
of a section here adds fields to it."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from verbena import __version__
from verbena.kv.server.counters import percentile, resident_bytes

if TYPE_CHECKING:
    from verbena.kv.server.server import Server

Fields = dict[str, Any]


def server_section(server: Server) -> Fields:
    from verbena.kv.commands.server.connection import VERSION

    uptime = int(time.time() - server.stats.started)
    return {
        "redis_version": VERSION,
        "server_name": "verbena",
        "verbena_version": __version__,
        "redis_mode": "cluster" if server.services.cluster is not None else "standalone",
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "arch_bits": 64 if sys.maxsize > 2**32 else 32,
        "monotonic_clock": "POSIX clock_gettime",
        "multiplexing_api": "epoll",
        "python_version": platform.python_version(),
        "process_id": os.getpid(),
        "process_supervised": "no",
        "run_id": server.stats.run_id,
        "tcp_port": server.parameters.get("port"),
        "server_time_usec": time.time_ns() // 1000,
        "uptime_in_seconds": uptime,
        "uptime_in_days": uptime // 86_400,
        "hz": server.parameters.get("hz"),
        "configured_hz": server.parameters.get("hz"),
        "lru_clock": int(time.time()) & 0xFFFFFF,
        "executable": sys.executable,
        "config_file": server.parameters.file,
        "io_threads_active": 0,
    }


def clients_section(server: Server) -> Fields:
    counters = server.engine.counters()
    clients = server.clients.known()
    return {
        "connected_clients": counters["clients"] - sum(c.is_replica for c in clients),
        "maxclients": server.clients.max_clients,
        "client_recent_max_input_buffer": counters["recent_input_bytes"],
        "client_recent_max_output_buffer": counters["recent_output_bytes"],
        "blocked_clients": len(server.blocking),
        "tracking_clients": server.clients.tracking.clients,
        "clients_in_timeout_table": server.blocking.with_deadline,
        "pubsub_clients": sum(c.is_subscriber for c in clients),
        "watching_clients": sum(c.watching for c in clients),
        "total_blocking_keys": len(server.blocking.by_key),
    }


def human(count: int) -> str:
    for unit, factor in (("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.2f}{unit}"
    return f"{count}B"


def memory_section(server: Server) -> Fields:
    waiting = sum(c.native.pending_in + c.native.pending_out for c in server.clients.known())
    return {**memory_of_store(server), "mem_clients_normal": waiting}


def memory_of_store(server: Server) -> Fields:
    """Returns the fields that cost no time for each client."""
    counters = server.engine.counters()
    used, peak = counters["used_bytes"], max(server.stats.peak_bytes, counters["used_bytes"])
    rss, limit = resident_bytes(), server.parameters.get("maxmemory")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "used_memory": used,
        "used_memory_human": human(used),
        "used_memory_rss": rss,
        "used_memory_rss_human": human(rss),
        "used_memory_peak": peak,
        "used_memory_peak_human": human(peak),
        "used_memory_peak_perc": f"{used / peak * 100 if peak else 0:.2f}%",
        "used_memory_peak_time": int(server.stats.peak_time),
        "allocator_allocated": used - counters["object_bytes"],
        "allocator_active": counters["chunk_bytes"],
        "allocator_frag_ratio": f"{counters['chunk_bytes'] / (used - counters['object_bytes'] or 1):.2f}",
        "allocator_frag_bytes": counters["chunk_bytes"] - used + counters["object_bytes"],
        "total_system_memory": total,
        "total_system_memory_human": human(total),
        "maxmemory": limit,
        "maxmemory_human": human(limit),
        "maxmemory_policy": server.parameters.get("maxmemory-policy"),
        "mem_fragmentation_ratio": f"{rss / used if used else 0:.2f}",
        "mem_fragmentation_bytes": rss - used,
        "mem_aof_buffer": _log_buffer(server),
        "mem_replication_backlog": server.engine.backlog_counters().get("bytes", 0),
        "mem_allocator": "verbena",
        "active_defrag_running": 0,
        "lazyfree_pending_objects": counters["retired_blocks"] + counters["lazy_free_values"],
        "lazyfree_pending_elements": counters["lazy_free_elements"],
        "lazyfreed_objects": counters["lazy_freed_values"],
        "lazyfreed_elements": counters["lazy_freed_elements"],
    }


def _log_buffer(server: Server) -> int:
    persistence = server.services.persistence
    return persistence.info().get("aof_buffer_length", 0) if persistence is not None else 0


def persistence_section(server: Server) -> Fields:
    if server.services.persistence is not None:
        return server.services.persistence.info()
    return {"loading": 0, "rdb_changes_since_last_save": server.engine.counters()["dirty"]}


def stats_section(server: Server) -> Fields:
    all_, own = server.engine.counters(), server.stats
    pubsub, refused, followers = server.pubsub, server.acl.refused, server.services.replication
    return {
        "total_connections_received": all_["connections"],
        "total_commands_processed": all_["commands"],
        "total_commands_by_program": all_["python_commands"],
        "instantaneous_ops_per_sec": int(own.ops.per_second),
        "total_net_input_bytes": all_["bytes_in"],
        "total_net_output_bytes": all_["bytes_out"],
        "total_reads_processed": all_["reads"],
        "total_writes_processed": all_["writes"],
        "io_threaded_reads_processed": 0,
        "io_threaded_writes_processed": 0,
        "instantaneous_input_kbps": f"{own.bytes_in.per_second / 1024:.2f}",
        "instantaneous_output_kbps": f"{own.bytes_out.per_second / 1024:.2f}",
        "rejected_connections": all_["rejected_connections"],
        "sync_full": followers.full_syncs if followers is not None else 0,
        "sync_partial_ok": followers.partial_syncs if followers is not None else 0,
        "sync_partial_err": followers.refused_partials if followers is not None else 0,
        "expired_keys": all_["expired"],
        "evicted_keys": all_["evicted"],
        "evicted_clients": 0,
        "keyspace_hits": all_["hits"],
        "keyspace_misses": all_["misses"],
        "pubsub_channels": len(pubsub.channels),
        "pubsub_patterns": len(pubsub.patterns),
        "pubsubshard_channels": len(pubsub.shard_channels),
        # Snapshots are made without fork().
        "latest_fork_usec": 0,
        "total_forks": 0,
        "tracking_total_keys": all_["tracked_keys"],
        "tracking_total_items": all_["tracked_items"],
        "tracking_total_prefixes": all_["tracked_prefixes"],
        "total_error_replies": sum(own.all_errors().values()),
        "acl_access_denied_auth": refused["auth"],
        "acl_access_denied_cmd": refused["command"],
        "acl_access_denied_key": refused["key"],
        "acl_access_denied_channel": refused["channel"],
        "client_query_buffer_limit_disconnections": all_["input_disconnections"],
        "client_output_buffer_limit_disconnections": all_["output_disconnections"],
    }


def replication_section(server: Server) -> Fields:
    if server.services.replication is not None:
        return server.services.replication.info()
    return {
        "role": "master",
        "connected_slaves": 0,
        "master_replid": server.stats.run_id,
        "master_repl_offset": 0,
    }


def cpu_section(server: Server) -> Fields:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "used_cpu_sys": f"{own.ru_stime:.6f}",
        "used_cpu_user": f"{own.ru_utime:.6f}",
        "used_cpu_sys_children": f"{children.ru_stime:.6f}",
        "used_cpu_user_children": f"{children.ru_utime:.6f}",
        "used_cpu_sys_main_thread": f"{server.stats.loop_sys_s:.6f}",
        "used_cpu_user_main_thread": f"{server.stats.loop_user_s:.6f}",
    }


def modules_section(server: Server) -> Fields:
    return {}


def shown_name(name: str) -> str:
    """Returns a command's name as INFO shows it."""
    return name.lower().replace(" ", "|")


def commandstats_section(server: Server) -> Fields:
    return {
        f"cmdstat_{shown_name(name)}": (
            f"calls={f.calls},usec={f.ns // 1000},usec_per_call={f.ns / 1000 / (f.calls or 1):.2f},"
            f"rejected_calls={f.rejected},failed_calls={f.failed}"
        )
        for name, f in sorted(server.stats.all_commands().items())
    }


def errorstats_section(server: Server) -> Fields:
    return {
        f"errorstat_{code}": f"count={count}" for code, count in sorted(server.stats.all_errors().items())
    }


def latencystats_section(server: Server) -> Fields:
    wanted = server.parameters.get("latency-tracking-info-percentiles")
    return {
        f"latency_percentiles_usec_{shown_name(name)}": ",".join(
            f"p{percent:g}={percentile(f.buckets, percent) / 1000:.3f}" for percent in wanted
        )
        for name, f in sorted(server.stats.all_commands().items())
        if f.calls
    }


def cluster_section(server: Server) -> Fields:
    cluster = server.services.cluster
    if cluster is None:
        return {"cluster_enabled": 0}
    return {"cluster_enabled": 1, "cluster_messages_refused": cluster.refused_messages}


def keyspace_section(server: Server) -> Fields:
    return {
        f"db{database.index}": f"keys={len(database)},expires={database.volatile_keys}"
        for database in server.databases
        if len(database)
    }


# The sections, in the order in which INFO shows them.
SECTIONS: dict[str, Callable[[Server], Fields]] = {
    "server": server_section,
    "clients": clients_section,
    "memory": memory_section,
    "persistence": persistence_section,
    "stats": stats_section,
    "replication": replication_section,
    "cpu": cpu_section,
    "modules": modules_section,
    "commandstats": commandstats_section,
    "errorstats": errorstats_section,
    "latencystats": latencystats_section,
    "cluster": cluster_section,
    "keyspace": keyspace_section,
}
_ONLY_WHEN_ASKED = frozenset({"commandstats", "latencystats"})


def chosen_sections(server: Server, names: list[str]) -> list[str]:
    """Returns the sections that were requested; the default ones if none."""
    there = [*SECTIONS, *(name for name in server.services.info_sections if name not in SECTIONS)]
    usual = [name for name in there if name not in _ONLY_WHEN_ASKED]
    if not names:
        return usual
    wanted: set[str] = set()
    for word in names:
        wanted.update(there if word in ("all", "everything") else usual if word == "default" else [word])
    return [name for name in there if name in wanted]


def fields_of(server: Server, section: str) -> Fields:
    fields = SECTIONS[section](server) if section in SECTIONS else {}
    added = server.services.info_sections.get(section)
    return {**fields, **added()} if added is not None else fields


def render(server: Server, names: list[str]) -> bytes:
    parts = []
    for section in chosen_sections(server, names):
        title = {"cpu": "CPU"}.get(section, section.capitalize())
        lines = [f"# {title}", *(f"{name}:{value}" for name, value in fields_of(server, section).items())]
        parts.append("".join(f"{line}\r\n" for line in lines))
    return "\r\n".join(parts).encode("utf-8", "surrogateescape")
