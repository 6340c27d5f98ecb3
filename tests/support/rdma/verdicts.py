"""Results of a matrix: each cell prints ok or FAILED, and the last lines give the reasons."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable


class Verdicts:
    """Collects failures. Turns SIGTERM into an exit, so that the program cleans up."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def judge(self, name: str, work: Callable[[], str]) -> bool:
        """Runs a cell and returns whether it passed. `work` returns what is wrong or an empty string; an
        AssertionError means that a wait timed out."""
        try:
            wrong = work()
        except AssertionError as error:
            wrong = f"it hangs: {error}"
        if wrong:
            self.failures.append(f"{name}: {wrong}")
        return not wrong

    def cell(self, name: str, width: int, work: Callable[[], str]) -> None:
        """Runs a cell as judge() does, and prints the result."""
        print(f"{'ok' if self.judge(name, work) else 'FAILED':>{width}}", end="", flush=True)

    def end(self) -> int:
        """Prints the last lines and returns the exit status."""
        for line in self.failures:
            print(line)
        count = len(self.failures)
        print(f"{count} failures" if count else "nothing was lost, doubled or undone")
        return int(bool(count))
