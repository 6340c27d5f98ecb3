"""Work on all keys of some slots, in steps of a millisecond: digests for comparing, and removal."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable

from verbena import _native

_STEP_S = 0.001


async def keep_digest(digest: _native.kv.SlotDigest) -> None:
    """Keeps a digest nearly up to date, so that little is left to do when writes stop. Runs until the digest
    is closed, or this is cancelled."""
    with contextlib.suppress(ValueError):  # it was closed
        while True:
            done = await asyncio.to_thread(digest.work, _STEP_S)
            await asyncio.sleep(0.01 if done else 0.001)


def finish_digest(
    digest: _native.kv.SlotDigest, now_ms: int, left_out: list[int], effort_s: float
) -> tuple[int, int, list[int]]:
    """Returns the sum, the number of keys, and which large values it leaves out; writes have stopped. Large
    values are summed for at most `effort_s`, in steps between the commands of other slots. Blocks."""
    ends = time.monotonic() + effort_s
    while effort_s and not digest.work(_STEP_S, still=True) and time.monotonic() < ends:
        pass
    return digest.finish(now_ms, left_out)


async def remove_keys(engine: _native.kv.Engine, slots: Iterable[int]) -> int:
    """Removes the keys of these slots from the store. How many there were."""
    sweep = _native.kv.SlotSweep(engine, list(slots))
    done = False
    while not done:
        done = await asyncio.to_thread(sweep.work, _STEP_S)
        await asyncio.sleep(0 if done else 0.001)
    return sweep.removed
