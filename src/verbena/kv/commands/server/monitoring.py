"""Slow commands, latency and memory: SLOWLOG, LATENCY, MEMORY, DEBUG."""

from __future__ import annotations

import gc
import time

from verbena.kv.commands.arguments import display, integer
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply, Verbatim
from verbena.kv.server.call import Call
from verbena.kv.server.counters import BUCKETS, resident_bytes
from verbena.kv.server.info import human

ADMIN = "admin noscript loading stale"


@command(
    "SLOWLOG GET",
    arity=-2,
    flags=ADMIN,
    group="server",
    summary="Returns the latest entries of the slow log.",
    since="2.2.12",
)
def slowlog_get(call: Call, *count: bytes) -> Reply:
    if len(count) > 1:
        raise CommandError("ERR wrong number of arguments for 'slowlog|get' command")
    most = integer(count[0], error="ERR count should be greater than or equal to -1") if count else 10
    if most < -1:
        raise CommandError("ERR count should be greater than or equal to -1")
    entries = list(call.server.stats.slowlog.entries)
    return [
        [entry.number, entry.unix_s, entry.us, entry.argv, entry.address.encode(), entry.name.encode()]
        for entry in (entries if most == -1 else entries[:most])
    ]


@command(
    "SLOWLOG LEN",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Returns the number of entries in the slow log.",
    since="2.2.12",
)
def slowlog_len(call: Call) -> Reply:
    return len(call.server.stats.slowlog.entries)


@command(
    "SLOWLOG RESET",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Deletes all entries of the slow log.",
    since="2.2.12",
)
def slowlog_reset(call: Call) -> Reply:
    call.server.stats.slowlog.entries.clear()
    return "OK"


@command(
    "LATENCY LATEST",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Returns the latest latency spike of each event.",
    since="2.8.13",
)
def latency_latest(call: Call) -> Reply:
    monitor = call.server.stats.latency
    return [[event.encode(), *samples[-1], monitor.worst[event]] for event, samples in monitor.events.items()]


@command(
    "LATENCY HISTORY",
    arity=3,
    flags=ADMIN,
    group="server",
    summary="Returns the latency spikes of an event.",
    since="2.8.13",
)
def latency_history(call: Call, event: bytes) -> Reply:
    return [list(sample) for sample in call.server.stats.latency.events.get(display(event), ())]


@command(
    "LATENCY RESET",
    arity=-2,
    flags=ADMIN,
    group="server",
    summary="Deletes the recorded latency spikes of events.",
    since="2.8.13",
)
def latency_reset(call: Call, *events: bytes) -> Reply:
    return call.server.stats.latency.reset([display(event) for event in events])


@command(
    "LATENCY GRAPH",
    arity=3,
    flags=ADMIN,
    group="server",
    summary="Returns a text graph of the latency spikes of an event.",
    since="2.8.13",
)
def latency_graph(call: Call, event: bytes) -> Reply:
    samples = call.server.stats.latency.events.get(display(event))
    if not samples:
        raise CommandError(f"ERR No samples available for event '{display(event)}'")
    high = max(ms for _, ms in samples)
    bars = "".join("_.-=#"[min(4, ms * 5 // (high + 1))] for _, ms in samples)
    low = min(ms for _, ms in samples)
    return Verbatim(f"{display(event)} - high {high} ms, low {low} ms\n{bars}\n".encode())


@command(
    "LATENCY DOCTOR",
    arity=2,
    flags=ADMIN,
    group="server",
    summary="Returns a report about the latency spikes.",
    since="2.8.13",
)
def latency_doctor(call: Call) -> Reply:
    monitor = call.server.stats.latency
    if not monitor.threshold_ms:
        return Verbatim(b"Spikes are not watched for: CONFIG SET latency-monitor-threshold <milliseconds>.\n")
    if not monitor.events:
        return Verbatim(b"No spike was seen.\n")
    lines = [
        f"{event}: {len(samples)} spikes, the worst took {monitor.worst[event]} ms."
        for event, samples in monitor.events.items()
    ]
    return Verbatim("\n".join([*lines, "SLOWLOG GET names the commands.", ""]).encode())


@command(
    "LATENCY HISTOGRAM",
    arity=-2,
    flags=ADMIN,
    group="server",
    summary="Returns the latency distribution of commands.",
    since="7.0.0",
)
def latency_histogram(call: Call, *names: bytes) -> Reply:
    wanted = {display(name).upper().replace("|", " ") for name in names}
    found = {}
    for name, counters in sorted(call.server.stats.all_commands().items()):
        if not counters.calls or (wanted and name not in wanted and name.partition(" ")[0] not in wanted):
            continue
        seen, histogram = 0, {}
        for exponent in range(BUCKETS):
            seen += counters.buckets[exponent]
            if counters.buckets[exponent]:
                histogram[max(1, round((1 << exponent) / 1000))] = seen
        found[name.lower().replace(" ", "|").encode()] = {
            b"calls": counters.calls,
            b"histogram_usec": histogram,
        }
    return found


@command(
    "MEMORY USAGE",
    arity=-3,
    flags="readonly",
    keys=(2, 2, 1),
    group="server",
    summary="Returns the memory that a key and its value use, in bytes.",
    since="4.0.0",
)
def memory_usage(call: Call, key: bytes, *args: bytes) -> Reply:
    # SAMPLES has no effect: the size is maintained, not sampled.
    if args and (len(args) != 2 or args[0].upper() != b"SAMPLES" or integer(args[1]) < 0):
        raise InvalidSyntax()
    details = call.db.details(key)
    return None if details is None else details[1]


@command(
    "MEMORY STATS",
    arity=2,
    flags="",
    group="server",
    summary="Returns details about memory usage.",
    since="4.0.0",
)
def memory_stats(call: Call) -> Reply:
    server = call.server
    counters = server.engine.counters()
    used, rss = counters["used_bytes"], resident_bytes()
    peak = max(server.stats.peak_bytes, used)
    keys = sum(len(database) for database in server.databases)
    return {
        b"peak.allocated": peak,
        b"total.allocated": used,
        b"clients.normal": sum(c.native.pending_in + c.native.pending_out for c in server.clients.known()),
        b"keys.count": keys,
        b"keys.bytes-per-key": used // keys if keys else 0,
        b"dataset.bytes": used,
        b"peak.percentage": used / peak * 100 if peak else 0.0,
        b"allocator.active": counters["chunk_bytes"],
        b"process.resident": rss,
        b"fragmentation": rss / used if used else 0.0,
        b"fragmentation.bytes": rss - used,
    }


@command(
    "MEMORY DOCTOR",
    arity=2,
    flags="",
    group="server",
    summary="Returns a report about memory problems.",
    since="4.0.0",
)
def memory_doctor(call: Call) -> Reply:
    counters, limit = call.server.engine.counters(), call.server.parameters.get("maxmemory")
    used = counters["used_bytes"]
    remarks = []
    if limit and used > limit * 0.9:
        remarks.append(f"{human(used)} of maxmemory's {human(limit)} are used.")
    if counters["chunk_bytes"] > 2 * used and counters["chunk_bytes"] > 64 << 20:
        remarks.append(f"{human(counters['chunk_bytes'])} are held for {human(used)} of values.")
    return Verbatim(("\n".join(remarks) or "Nothing is remarkable.").encode() + b"\n")


@command(
    "MEMORY PURGE",
    arity=2,
    flags="",
    group="server",
    summary="Runs Python's garbage collector.",
    since="4.0.0",
)
def memory_purge(call: Call) -> Reply:
    gc.collect()
    return "OK"


@command(
    "MEMORY MALLOC-STATS",
    arity=2,
    flags="",
    group="server",
    summary="Returns the statistics of the memory arena.",
    since="4.0.0",
)
def memory_malloc_stats(call: Call) -> Reply:
    counters = call.server.engine.counters()
    return Verbatim(f"used {counters['used_bytes']} of {counters['chunk_bytes']} bytes in chunks\n".encode())


def allow_debug(call: Call) -> None:
    mode = call.server.parameters.get("enable-debug-command")
    address = call.client.native.address
    local = address.startswith(("127.", "[::1]", "/"))
    if mode == "no" or (mode == "local" and not local):
        raise CommandError(
            'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can '
            "run it from a local connection, otherwise you need to set this option and restart the server."
        )


@command(
    "DEBUG SLEEP",
    arity=3,
    flags=ADMIN,
    group="server",
    summary="Blocks the server for a number of seconds.",
)
def debug_sleep(call: Call, seconds: bytes) -> Reply:
    allow_debug(call)
    try:
        duration = float(seconds)
    except ValueError:
        raise CommandError("ERR value is not a valid float") from None
    time.sleep(max(0.0, min(duration, 3600.0)))
    return "OK"


@command(
    "DEBUG SET-ACTIVE-EXPIRE",
    arity=3,
    flags=ADMIN,
    group="server",
    summary="Turns the background deletion of expired keys on or off.",
)
def debug_set_active_expire(call: Call, switch: bytes) -> Reply:
    allow_debug(call)
    call.server.engine.active_expiry = integer(switch) != 0
    return "OK"


@command(
    "DEBUG OBJECT",
    arity=3,
    flags=ADMIN,
    keys=(2, 2, 1),
    group="server",
    summary="Returns how the value at a key is stored.",
)
def debug_object(call: Call, key: bytes) -> Reply:
    allow_debug(call)
    details = call.db.details(key)
    if details is None:
        raise CommandError("ERR no such key")
    kind, size, idle, frequency = details
    return f"Value type:{kind} refcount:1 item_bytes:{size} lru_seconds_idle:{idle} lfu_frequency:{frequency}"
