"""Cells of a matrix: each is ok or FAILED, and the last lines say why."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable


class Verdicts:
    """What has failed so far. Who is told to end (SIGTERM) leaves nothing behind."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def judge(self, name: str, work: Callable[[], str]) -> bool:
        """Whether a cell is right: `work` says what is wrong, or ""; who waits in vain asserts."""
        try:
            wrong = work()
        except AssertionError as error:
            wrong = f"it hangs: {error}"
        if wrong:
            self.failures.append(f"{name}: {wrong}")
        return not wrong

    def cell(self, name: str, width: int, work: Callable[[], str]) -> None:
        """The same, printed."""
        print(f"{'ok' if self.judge(name, work) else 'FAILED':>{width}}", end="", flush=True)

    def end(self) -> int:
        """The last lines; a program's status."""
        for line in self.failures:
            print(line)
        count = len(self.failures)
        print(f"{count} failures" if count else "nothing was lost, doubled or undone")
        return int(bool(count))
