"""Base classes of objects that a `with` statement closes, and that stay with the process that made them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from verbena._forks import OfProcess

if TYPE_CHECKING:
    from typing_extensions import Self


class Closing(OfProcess):
    """Closed at the end of a `with` block."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClosing(OfProcess):
    """Closed at the end of an `async with` block."""

    __slots__ = ()

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
