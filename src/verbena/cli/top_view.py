"""The output of `verbena top`, computed from two statuses of a node. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verbena.cli import text

Status = Mapping[str, Any]
Rates = dict[str, Any]

_OPERATIONS = ("call", "read", "write")
_COUNTS = (
    ("sends", "send_ops"),
    ("receives", "recv_ops"),
    ("reads", "read_ops"),
    ("writes", "write_ops"),
    ("out_bytes", "send_bytes", "write_bytes"),
    ("in_bytes", "recv_bytes", "read_bytes"),
)


def compute_rates(before: Status, now: Status) -> Rates:
    """Computes rates per second and latencies for the time between two statuses."""
    seconds = max(1e-3, now["looked_at"] - before["looked_at"])
    former = {session["id"]: session["wires"] for session in before["sessions"]}
    return {
        "seconds": round(seconds, 3),
        "wires": {
            wire: _rates([counters], [before["totals"].get(wire)], seconds)
            for wire, counters in now["totals"].items()
        },
        "sessions": {
            session["id"]: _rates(
                list(session["wires"].values()),
                [former.get(session["id"], {}).get(wire) for wire in session["wires"]],
                seconds,
            )
            for session in now["sessions"]
        },
    }


def render(now: Status, rates: Rates, *, width: int = 110, height: int = 0) -> str:
    """Formats lines for a screen of this size; height 0 means no limit."""
    lines = [
        f"{_clean(now['node'])}  up {_age(now['uptime_s'])}  {now['sessions_open']} sessions"
        f" ({now['sessions_opened']} opened, {sum(now['sessions_ended'].values())} ended)"
        f"  {now['regions']} regions",
        *_notes(now),
        "",
        *_wires(now, rates),
        "",
        *_sessions(now, rates),
    ]
    hidden = now["sessions_open"] - len(now["sessions"])
    if hidden > 0:
        lines.append(f"… and {hidden} less active sessions")
    if height and len(lines) > height:
        left_out = len(lines) - height + 1
        lines = [*lines[: height - 1], f"… {left_out} more lines: enlarge the window, or use --once"]
    return "\n".join(line[:width].rstrip() for line in lines)


def _notes(now: Status) -> list[str]:
    notes = [
        f"no {wire}: {_clean(facts['reason'])}" for wire, facts in now["wires"].items() if not facts["open"]
    ]
    if now["refused"]:
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(now["refused"].items()))
        notes.append(f"rejected: {counts}")
    failed = {reason: count for reason, count in now["sessions_ended"].items() if "closed" not in reason}
    if failed:
        notes.append(f"failed: {', '.join(f'{reason} {count}' for reason, count in sorted(failed.items()))}")
    return notes


def _wires(now: Status, rates: Rates) -> list[str]:
    rows = [["WIRE", "sends", "receives", "reads", "writes", "out", "in", "links", "replayed", "errors"]]
    for wire, counters in now["totals"].items():
        rate = rates["wires"][wire]
        rows.append(
            [
                wire,
                *(text.rate(rate[name]) for name in ("sends", "receives", "reads", "writes")),
                *(text.bandwidth(rate[name]) for name in ("out_bytes", "in_bytes")),
                str(counters["links"]),
                str(counters["replayed_messages"]),
                str(counters["completion_errors"] + counters["damaged_messages"]),
            ]
        )
    return text.table(rows).splitlines()


def _sessions(now: Status, rates: Rates) -> list[str]:
    if not now["sessions"]:
        return ["no other sessions"]
    shown = [
        operation
        for operation in _OPERATIONS
        if any(rates["sessions"][session["id"]]["latency"].get(operation) for session in now["sessions"])
    ]
    rows = [["SESSION", "wire", "up", "out", "in", "ops", *(f"{name} p50/p99" for name in shown)]]
    ends = [""]
    for session in now["sessions"]:
        rate = rates["sessions"][session["id"]]
        rows.append(
            [
                _clean(session["peer_name"]),
                session["wire"] or session["state"],
                _age(session["age_s"]),
                text.bandwidth(rate["out_bytes"]),
                text.bandwidth(rate["in_bytes"]),
                text.rate(sum(rate[name] for name in ("sends", "receives", "reads", "writes"))),
                *(_quantiles(rate["latency"].get(name)) for name in shown),
            ]
        )
        about = (session["peer"], _clean(session["reason"]), _clean(session["principal"]))
        ends.append("  ".join(filter(None, (session["id"], *about))))
    ends[0] = "id, peer, reason, principal"
    return [f"{row}  {end}" for row, end in zip(text.table(rows).splitlines(), ends, strict=True)]


def _rates(now: Sequence[Status], before: Sequence[Status | None], seconds: float) -> Rates:
    """Rates over several wires of one session, or over one wire of the node."""

    def increase(*names: str) -> float:
        return sum(
            float(wire[name]) - (former[name] if former else 0)
            for wire, former in zip(now, before, strict=True)
            for name in names
        )

    return {
        **{name: round(increase(*counts) / seconds, 3) for name, *counts in _COUNTS},
        "latency": {
            operation: found
            for operation in _OPERATIONS
            if (
                found := _latency(
                    [_buckets(one, operation) for one in now], [_buckets(one, operation) for one in before]
                )
            )
        },
    }


def _buckets(counters: Status | None, operation: str) -> dict[int, int]:
    return dict(counters["latency"].get(operation, {}).get("buckets", ())) if counters else {}


def _latency(now: Sequence[dict[int, int]], before: Sequence[dict[int, int]]) -> Rates | None:
    increase: dict[int, int] = {}
    for ours, former in zip(now, before, strict=True):
        for bound, count in ours.items():
            increase[bound] = increase.get(bound, 0) + count - former.get(bound, 0)
    count = sum(increase.values())
    if count <= 0:
        return None
    return {
        "count": count,
        **{name: _quantile(increase, q * count) for name, q in (("p50_ns", 0.5), ("p99_ns", 0.99))},
    }


def _quantile(counts: Mapping[int, int], wanted: float) -> int:
    """Returns the upper bound of the bucket with the quantile."""
    seen = 0
    for bound in sorted(counts):
        seen += counts[bound]
        if seen >= wanted:
            return bound
    return 0


def _quantiles(latency: Rates | None) -> str:
    return f"{text.duration(latency['p50_ns'])} / {text.duration(latency['p99_ns'])}" if latency else "–"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, hours = seconds / 60, seconds / 3600
    return (
        f"{minutes:.0f} min" if minutes < 120 else f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} d"
    )


def _clean(words: str) -> str:
    """Replaces unprintable characters, so that a peer cannot send control sequences to the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)
