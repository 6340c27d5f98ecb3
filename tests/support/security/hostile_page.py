"""The page docs/reference/hostile-processes.md, from hostile_table.py and what the tests in tests/security
have recorded. Fails if a test that it names was not seen or failed; tests of the kernel testbed are marked.
Writes the page:

    pytest tests/security; PYTHONPATH=src:tests python -m support.security.hostile_page"""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path

from support.security.attacks import WIRES
from support.security.hostile_table import LIMITS, TABLE, Cell

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/reference/hostile-processes.md"
RESULTS = ROOT / "build/hostile-processes.json"
COMMAND = "write it with: PYTHONPATH=src:tests python -m support.security.hostile_page"
HOLDS, FAILED = "holds", "failed"
KERNEL = "tests/kernel/"

HEAD = """# Hostile processes

What a hostile process can do to a node, by where it runs and by wire. Each statement has a test.
This page is generated from what the tests have seen; those of `ibv` run in the kernel testbed, on Soft-RoCE
and Soft-iWARP: CI fails if one of them has not passed.

For the strongest separation, run each service as a user of its own, with a secret or certificates.
"""


def cells() -> list[Cell]:
    return [cell for place in TABLE for cell in place.cells.values()] + list(LIMITS)


def tests() -> list[str]:
    """All tests that the page names, as file::name."""
    return sorted({test for cell in cells() for test in cell.tests})


def load() -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(RESULTS.read_text())
    except FileNotFoundError:
        return {}
    return found


def record(test: str, parameters: str, result: str) -> None:
    """Records the result of one test, with its parameters. Several processes may do so."""
    RESULTS.parent.mkdir(exist_ok=True)
    with open(RESULTS.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = load()
        found[test + parameters] = result
        RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def missing(results: dict[str, str]) -> list[str]:
    """The tests outside of the kernel testbed that have no result, or a failure."""
    found = []
    for test in tests():
        seen = [result for name, result in results.items() if name.partition("[")[0] == test]
        if not test.startswith(KERNEL) and (not seen or FAILED in seen):
            found.append(test)
    return found


def page() -> str:
    titles = [f"`{wire}`" for wire in WIRES]
    lines = [HEAD, _row("the process is", *titles), _row(*["---"] * (1 + len(WIRES)))]
    lines += [_row(place.title, *(place.cells[wire].statement for wire in WIRES)) for place in TABLE]
    lines += ["", "## On every wire", ""]
    lines += [f"- {cell.statement}" for cell in LIMITS]
    lines += ["", "## Tests", "", _row("the process is", "wire", "tests"), _row("---", "---", "---")]
    lines += [_row(place.title, f"`{wire}`", _names(place.cells[wire])) for place in TABLE for wire in WIRES]
    lines += [_row("on every wire", "", _names(cell)) for cell in LIMITS]
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _names(cell: Cell) -> str:
    return "<br>".join(
        f"`{Path(test.partition('::')[0]).stem}`: `{test.rpartition('::')[2]}`"
        + (" (kernel testbed)" if test.startswith(KERNEL) else "")
        for test in cell.tests
    )


def main() -> int:
    if found := missing(load()):
        print(f"{RESULTS.relative_to(ROOT)}: not seen, or failed: {found}; run pytest tests/security first")
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
