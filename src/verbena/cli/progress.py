"""Progress on standard error, redrawn in place: a bar if the share of the work is known, else the time.
Nothing is written if standard error is not a terminal."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TextIO

WIDTH = 30
REDRAW_S = 0.1
QUIET_S = 1.0  # shorter work is over before a line could be read
_CLEAR = "\r\x1b[K"


class Progress:
    """Shows the progress of a task. Use it as a context manager, which clears the line in any case."""

    def __init__(self, label: str, *, enabled: bool = True, stream: TextIO | None = None) -> None:
        self._label = label
        self._stream = stream or sys.stderr
        self._enabled = enabled and self._stream.isatty()
        self._drawn_at = 0.0

    def __enter__(self) -> Progress:
        return self

    def update(self, fraction: float, *, note: str = "") -> None:
        """Shows `fraction` (0 to 1) of the work as done; `note` is a short text beside the bar."""
        now = time.monotonic()
        if self._enabled and now - self._drawn_at >= REDRAW_S:
            self._drawn_at = now
            fraction = min(max(fraction, 0.0), 1.0)
            filled = round(fraction * WIDTH)
            bar = "█" * filled + "·" * (WIDTH - filled)
            self._write(f"\r{self._label} {bar} {fraction:4.0%} {note}\x1b[K")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._drawn_at:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Waiting:
    """Shows how long a task of unknown length has taken. `say` prints a line of the result meanwhile."""

    def __init__(self, label: str, *, enabled: bool = True, stream: TextIO | None = None) -> None:
        self._label = label
        self._stream = stream or sys.stderr
        self._enabled = enabled and self._stream.isatty()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._since = time.monotonic()
        self._drawn = False
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def __enter__(self) -> Waiting:
        if self._enabled:
            self._thread.start()
        return self

    def say(self, text: str) -> None:
        """Prints a text on standard output, above the line of progress."""
        with self._lock:
            self._clear()
            print(text, flush=True)
            self._since = time.monotonic()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._enabled:
            self._thread.join()
            self._clear()

    def _draw(self) -> None:
        while not self._over.wait(REDRAW_S):
            with self._lock:
                elapsed = time.monotonic() - self._since
                if elapsed >= QUIET_S:
                    self._drawn = True
                    self._stream.write(f"\r{self._label} … {elapsed:.0f} s\x1b[K")
                    self._stream.flush()

    def _clear(self) -> None:
        if self._drawn:
            self._drawn = False
            self._stream.write(_CLEAR)
            self._stream.flush()
