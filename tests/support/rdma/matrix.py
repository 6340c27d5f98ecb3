"""The conformance matrix: which rule passed on which provider. Printed at the end of a run."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

PROVIDERS = ("shm", "fake", "ibv", "iwarp", "iwarp-plain", "iwarp-tls", "quic")
# Columns for a provider with a setting, with the environment of both ends. For TLS, see tls_environment.
SETTINGS = {"iwarp-plain": {"VERBENA_IWARP_ACKNOWLEDGED": "0"}}
RULES = {
    "A1": "objects and attributes",
    "A2": "queue pair states",
    "A3": "queues",
    "A4": "events",
    "A5": "registration and keys",
    "A6": "protection domains",
    "A7": "operations",
    "A8": "gather, inline, unsignalled",
    "A9": "error statuses",
    "A10": "integrity",
    "A11": "synchronisation",
    "A12": "memory windows",
    "CM": "connection manager",
    "faults": "injected faults",
    "processes": "two processes",
}

Outcomes = dict[tuple[str, str], Counter[str]]


def tag(item: pytest.Item) -> None:
    """Adds the test's cell of the matrix to its reports."""
    marker = item.get_closest_marker("rule")
    callspec = getattr(item, "callspec", None)
    if marker and callspec and "provider" in callspec.params:
        item.user_properties.append(("cell", (marker.args[0], callspec.params["provider"])))


def outcomes(reports: dict[str, list[pytest.TestReport]]) -> Outcomes:
    """Counts for each cell: "passed", "failed", or the reason of a skip."""
    table: Outcomes = defaultdict(Counter)
    for kind in ("passed", "failed", "error", "skipped"):
        for report in reports.get(kind, []):
            cell = dict(getattr(report, "user_properties", ())).get("cell")
            if cell and (kind != "passed" or report.when == "call"):
                table[tuple(cell)][_outcome(kind, report)] += 1
    return table


def lines(table: Outcomes) -> list[str]:
    """The printed matrix: a row per rule, a column per provider, then the reasons of empty columns."""
    used = [rule for rule in RULES if any(cell[0] == rule for cell in table)]
    columns = [name for name in PROVIDERS if any(cell[1] == name for cell in table)]
    rows = [["", *columns]]
    rows += [[f"{rule} {RULES[rule]}", *(_cell(table[rule, name]) for name in columns)] for rule in used]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    text = [
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    reasons: dict[str, set[str]] = defaultdict(set)
    for (_, name), counts in table.items():
        reasons[name] |= {outcome for outcome in counts if outcome not in ("passed", "failed")}
    return text + [f"{name}: {reason}" for name in columns for reason in sorted(reasons[name])]


def _outcome(kind: str, report: pytest.TestReport) -> str:
    if kind == "skipped" and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return "failed" if kind == "error" else kind


def _cell(counts: Counter[str]) -> str:
    skipped = sum(number for outcome, number in counts.items() if outcome not in ("passed", "failed"))
    parts = [(counts["failed"], "FAILED"), (counts["passed"], "passed"), (skipped, "skipped")]
    return ", ".join(f"{number} {word}" for number, word in parts if number) or "-"
