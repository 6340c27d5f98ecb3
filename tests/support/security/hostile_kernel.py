"""Checks the column `ibv` of docs/reference/hostile-processes.md: each of its tests passed in the last run of
`make test-kernel`. A skipped one is a failure in CI only.

    PYTHONPATH=tests python -m support.security.hostile_kernel
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from xml.etree import ElementTree

from support.security import hostile_page

JUNIT = hostile_page.ROOT / "build/kernel/results/suite/junit.xml"
PASSED, SKIPPED, FAILED, MISSING = "passed", "skipped", "failed", "not run"


def results(junit: Path) -> dict[str, str]:
    """The result of each test, as file::name: the worst of those with its parameters."""
    found: dict[str, str] = {}
    order = (PASSED, SKIPPED, FAILED)
    for case in ElementTree.parse(junit).iter("testcase"):
        children = {child.tag for child in case}
        result = FAILED if children & {"failure", "error"} else SKIPPED if "skipped" in children else PASSED
        test = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].partition('[')[0]}"
        found[test] = max(found.get(test, PASSED), result, key=order.index)
    return found


def not_passed(junit: Path) -> dict[str, str]:
    """The tests of the kernel testbed that the page names and that did not pass, with their result."""
    found = results(junit) if junit.exists() else {}
    kernel = (test for test in hostile_page.tests() if test.startswith(hostile_page.KERNEL))
    return {test: result for test in kernel if (result := found.get(test, MISSING)) != PASSED}


def main() -> int:
    found = not_passed(JUNIT)
    for test, result in found.items():
        print(f"docs/reference/hostile-processes.md names {test}: {result}")
    return int(any(result != SKIPPED or os.environ.get("CI") == "true" for result in found.values()))


if __name__ == "__main__":
    sys.exit(main())
