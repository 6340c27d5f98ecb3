"""Health checks of a process: named functions, run together, each with a time limit. /healthz answers with
their result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

# Returns why the part is not healthy; empty: it is healthy.
Check = Callable[[], Awaitable[str]]

LIMIT_S = 1.0


class Health:
    """The checks of `checks`, which may change. However many callers wait, each check runs once at a time."""

    def __init__(self, checks: dict[str, Check]) -> None:
        self._checks = checks
        self._running: asyncio.Task[str] | None = None

    async def problems(self) -> str:
        """Runs the checks. Returns one line for each that failed; empty: all is well."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())
            self._running.add_done_callback(self._ended)
        return await asyncio.shield(self._running)

    def _ended(self, task: asyncio.Task[str]) -> None:
        self._running = None

    async def _run(self) -> str:
        checks = dict(self._checks)
        reasons = await asyncio.gather(*(_reason(check) for check in checks.values()))
        return "".join(f"{name}: {reason}\n" for name, reason in zip(checks, reasons, strict=True) if reason)


async def _reason(check: Check) -> str:
    try:
        return await asyncio.wait_for(check(), LIMIT_S)
    except (asyncio.TimeoutError, TimeoutError):
        return f"no answer within {LIMIT_S:g} s"
    except Exception as error:
        return f"the check failed: {error!r}"
