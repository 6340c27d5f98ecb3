"""What runs when the interpreter ends: after its last non-daemon thread, and after the program's own atexit
handlers, unless those were registered before verbena was imported. Depends on nothing."""

from __future__ import annotations

import atexit
from collections.abc import Callable

_steps: list[Callable[[], object]] = []


def at_end(step: Callable[[], object]) -> None:
    """Registers a function. The one that was registered last runs first."""
    _steps.append(step)


def _run() -> None:
    try:
        while _steps:
            _steps.pop()()
    finally:
        if _steps:  # one was ended by an exception, such as KeyboardInterrupt
            _run()


atexit.register(_run)
