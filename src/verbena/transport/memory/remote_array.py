"""A peer's array: a remote region with element type and shape."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from verbena.errors import setup_error
from verbena.transport.memory.form import Form
from verbena.transport.memory.region import RemoteRegion

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer


class RemoteArray(RemoteRegion):
    """Returned by session.region() for a published array. remote[10:20] is a part of its rows and remote[7]
    one row or element, which must lie inside; len() counts rows. Every operation that takes a RemoteRegion
    takes it."""

    def __init__(self, addr: int, length: int, key: int, epoch: int, offset: int = 0, *, form: Form) -> None:
        super().__init__(addr, length, key, epoch, offset)
        self._form = form

    @property
    def dtype(self) -> Any:
        """The numpy dtype."""
        return self._form.numpy_type()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._form.shape

    @property
    def ndim(self) -> int:
        return len(self._form.shape)

    @property
    def nbytes(self) -> int:
        return self.length

    def asarray(self, data: Buffer) -> NDArray[Any]:
        """Returns bytes that read() returned as an array of this dtype and shape, without a copy."""
        return self._form.array_on(data)

    def __len__(self) -> int:
        return self._rows()

    def __getitem__(self, part: slice | int) -> RemoteArray:
        rows = self._rows()
        rest = self.shape[1:]
        if isinstance(part, slice):
            if part.step not in (None, 1):
                raise setup_error("invalid_argument", operation="slice", detail="rows without a step")
            start, stop = _bound(part.start, 0, rows), _bound(part.stop, rows, rows)
            shape = (stop - start, *rest)
        else:
            start = _bound(operator.index(part), 0, rows)
            stop, shape = start + 1, rest
        if not 0 <= start <= stop <= rows:
            detail = f"rows {start} to {stop} of {rows}"
            raise setup_error("out_of_range", operation="slice", detail=detail)
        width = self.length // rows if rows else 0
        return RemoteArray(
            self.addr + start * width,
            (stop - start) * width,
            self.key,
            self.epoch,
            self.offset + start * width,
            form=Form(self._form.dtype, shape),
        )

    def __iter__(self) -> Iterator[RemoteArray]:
        return (self[row] for row in range(self._rows()))

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError("a RemoteArray is in another process: read it with session.pull()")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.addr, self.length, self.key, self.epoch, self.offset, self._form)

    def __repr__(self) -> str:
        return f"<RemoteArray {self._form}>"

    def _rows(self) -> int:
        if not self.shape:
            raise TypeError("an array of no dimensions has no rows")
        return self.shape[0]


def _bound(value: int | None, default: int, rows: int) -> int:
    if value is None:
        return default
    return value + rows if value < 0 else value


def _restore(addr: int, length: int, key: int, epoch: int, offset: int, form: Form) -> RemoteArray:
    return RemoteArray(addr, length, key, epoch, offset, form=form)
