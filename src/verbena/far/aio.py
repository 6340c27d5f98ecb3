"""The asyncio form of far memory: the same names, awaited. Accesses run in threads, without Python's lock."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from verbena.far import client
from verbena.far.array import BLOCK_BYTES, CACHE_BYTES
from verbena.far.array import Array as BlockingArray
from verbena.transport import Session
from verbena.transport.offload import in_thread
from verbena.transport.requests import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, DTypeLike, NDArray


class Array:
    """A far.Array whose accesses are awaited: `await array[5:10]`, `await array.set(key, value)`,
    `await array.take(rows)`. `sync` is its blocking form. An async context manager."""

    def __init__(self, sync: BlockingArray) -> None:
        self.sync = sync

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sync.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.sync.dtype

    @property
    def name(self) -> str | None:
        return self.sync.name

    def __len__(self) -> int:
        return len(self.sync)

    def __getitem__(self, key: Any) -> Coroutine[Any, Any, Any]:
        return in_thread(functools.partial(self.sync._get, key))

    async def set(self, key: Any, value: ArrayLike | BlockingArray) -> None:
        """As `array[key] = value`."""
        await in_thread(functools.partial(self.sync._set, key, value))

    async def take(self, rows: ArrayLike, out: NDArray[Any] | None = None) -> NDArray[Any]:
        return await in_thread(functools.partial(self.sync._take, rows, out))

    async def put(self, rows: ArrayLike, values: ArrayLike) -> None:
        await in_thread(functools.partial(self.sync._put, rows, values))

    def prefetch(self, key: Any = slice(None)) -> None:
        """As prefetch() of the blocking form, which does not block."""
        self.sync.prefetch(key)

    async def flush(self) -> None:
        await in_thread(self.sync._flush)

    async def invalidate(self, *, discard: bool = False) -> None:
        await in_thread(functools.partial(self.sync._invalidate, discard))

    def stats(self) -> dict[str, int]:
        return self.sync.stats()

    async def close(self) -> None:
        await _run(self.sync.close)

    async def __aenter__(self) -> Array:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _run(self.sync.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return repr(self.sync)


async def zeros(
    session: Session,
    shape: int | Sequence[int],
    dtype: DTypeLike = float,
    *,
    name: str | None = None,
    cache_bytes: int = CACHE_BYTES,
    block_bytes: int = BLOCK_BYTES,
    timeout_s: float | None = None,
) -> Array:
    """As far.zeros()."""
    options: dict[str, Any] = {"cache_bytes": cache_bytes, "block_bytes": block_bytes, "timeout_s": timeout_s}
    return Array(await _run(functools.partial(client.zeros, name=name, **options), session, shape, dtype))


async def attach(
    session: Session,
    name: str,
    *,
    cache_bytes: int = CACHE_BYTES,
    block_bytes: int = BLOCK_BYTES,
    timeout_s: float | None = None,
) -> Array:
    """As far.attach()."""
    options: dict[str, Any] = {"cache_bytes": cache_bytes, "block_bytes": block_bytes, "timeout_s": timeout_s}
    return Array(await _run(functools.partial(client.attach, **options), session, name))


async def free(array: Array) -> None:
    """As far.free()."""
    await _run(client.free, array.sync)


async def stat(session: Session, *, timeout_s: float | None = None) -> dict[str, Any]:
    """As far.stat()."""
    found: dict[str, Any] = await _run(functools.partial(client.stat, timeout_s=timeout_s), session)
    return found


async def _run(work: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a function in a thread; a cancellation waits for its end."""

    def run(*, progress: Progress) -> Any:
        return work(*arguments)

    return await in_thread(run)
