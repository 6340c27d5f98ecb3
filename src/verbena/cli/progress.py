"""A progress bar on standard error: redrawn in place on a terminal, dots elsewhere, silent if disabled."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

WIDTH = 30
REDRAW_S = 0.1
DOTS = 20


class Progress:
    """Shows the progress of a task. Use it as a context manager, which ends the line in any case."""

    def __init__(self, label: str, *, enabled: bool = True, stream: TextIO | None = None) -> None:
        self._label = label
        self._stream = stream or sys.stderr
        self._enabled = enabled
        self._terminal = enabled and self._stream.isatty()
        self._drawn_at = 0.0
        self._dots = 0

    def __enter__(self) -> Progress:
        if self._enabled and not self._terminal:
            self._write(f"{self._label} ")
        return self

    def update(self, fraction: float, *, note: str = "") -> None:
        """Shows `fraction` (0 to 1) of the work as done; `note` is a short text beside the bar."""
        fraction = min(max(fraction, 0.0), 1.0)
        if self._terminal:
            now = time.monotonic()
            if now - self._drawn_at >= REDRAW_S:
                self._drawn_at = now
                filled = round(fraction * WIDTH)
                bar = "█" * filled + "·" * (WIDTH - filled)
                self._write(f"\r{self._label} {bar} {fraction:4.0%} {note}\x1b[K")
        elif self._enabled:
            due = int(fraction * DOTS)
            self._write("." * (due - self._dots))
            self._dots = max(due, self._dots)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._terminal:
            self._write("\r\x1b[K")
        elif self._enabled:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
