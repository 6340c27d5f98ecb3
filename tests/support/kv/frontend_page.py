"""The page docs/reference/frontends.md: rules by frontend, from what tests/security/test_frontends.py has
recorded. Fails if a combination was not seen or did not hold. Writes the page:

    pytest tests/security/test_frontends.py; PYTHONPATH=src:tests python -m support.kv.frontend_page"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from support.kv.frontend_rules import RULES
from support.kv.frontends import FRONTENDS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reference/frontends.md"
RESULTS = ROOT / "build/frontends.json"
COMMAND = "write it with: PYTHONPATH=src:tests python -m support.kv.frontend_page"
HOLDS, FAILED = "holds", "failed"

Results = dict[str, dict[str, str]]  # by rule and frontend


def load() -> Results:
    try:
        found: Results = json.loads(RESULTS.read_text())
    except FileNotFoundError:
        return {}
    return found


@contextlib.contextmanager
def recorded(rule: str, frontend: str) -> Iterator[None]:
    """Records whether the rule holds. A skipped test leaves no result."""
    _record(rule, frontend, None)
    try:
        yield
    except Exception:
        _record(rule, frontend, FAILED)
        raise
    _record(rule, frontend, HOLDS)


def _record(rule: str, frontend: str, result: str | None) -> None:
    results = load()
    row = results.setdefault(rule, {})
    row.pop(frontend, None)
    if result is not None:
        row[frontend] = result
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def unseen(results: Results) -> list[str]:
    """The combinations that need a result and have none."""
    return [
        f"{rule.name} on {frontend}"
        for rule in RULES.values()
        for frontend in FRONTENDS
        if frontend not in rule.not_applicable and frontend not in results.get(rule.name, {})
    ]


def page(results: Results) -> str:
    """ValueError: a combination was not seen, or the rule did not hold."""
    missing = unseen(results)
    failed = [
        f"{rule} on {frontend}"
        for rule, row in results.items()
        for frontend, result in row.items()
        if rule in RULES and frontend in FRONTENDS and result != HOLDS
    ]
    if missing or failed:
        raise ValueError(f"not seen: {missing}; failed: {failed}")
    titles = [frontend.title for frontend in FRONTENDS.values()]
    lines = [
        "# Frontends",
        "",
        "A store accepts clients over TCP, TLS, a Unix socket, sessions and Valkey over RDMA. Each frontend"
        " applies the same rules.",
        "This table is generated: a test checks every ✓ against a running store, with Valkey over RDMA on the"
        " wire `iwarp`.",
        "",
        f"| rule | {' | '.join(titles)} |",
        f"|---|{'---|' * len(titles)}",
    ]
    for rule in RULES.values():
        cells = [
            f"does not apply: {rule.not_applicable[name]}" if name in rule.not_applicable else "✓"
            for name in FRONTENDS
        ]
        lines.append(f"| {rule.name} | {' | '.join(cells)} |")
    lines += ["", "## Rules", ""]
    lines += [f"- **{rule.name}**: {rule.meaning}" for rule in RULES.values()]
    return "\n".join(lines) + "\n"


def main() -> int:
    try:
        text = page(load())
    except ValueError as error:
        print(f"{RESULTS.relative_to(ROOT)}: {error}; run pytest tests/security/test_frontends.py first")
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
