"""What both forms of a session share to read published regions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from verbena.errors import DeniedError, setup_error
from verbena.transport.memory.region import RemoteRegion
from verbena.transport.memory.remote_array import RemoteArray

if TYPE_CHECKING:
    from verbena import _native

_LOOK_UPS = 16  # of one pull(), whose name gets new memory all the time


class Pull:
    """One pull(): decides what is read, and whether to try again. `remote` is None if the name must be looked
    up: always, since a READ of memory that the name no longer has would cost the link."""

    def __init__(self, source: str | RemoteRegion, into: Any, timeout_s: float | None) -> None:
        self.name = source if isinstance(source, str) else ""
        self.remote = source if isinstance(source, RemoteRegion) else None
        self._into = into
        self._left = _LOOK_UPS
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    @property
    def timeout_s(self) -> float | None:
        """What is left of the time."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def target(self, native: _native.transport.Session) -> Any:
        """The buffer to be filled; None: bytes are to be read. StateError if `into` has another form."""
        remote, into = self.remote, self._into
        form = remote._form if isinstance(remote, RemoteArray) else None
        if into is None:
            return form.empty() if form else None
        assert remote is not None
        shape, dtype = getattr(into, "shape", None), getattr(into, "dtype", None)
        if form is not None and shape is not None and dtype is not None:
            if tuple(shape) != form.shape or dtype != form.numpy_type():
                raise _mismatch(f"into is {dtype} of shape {tuple(shape)}, the region {form}")
        elif (length := native.buffer_length(into, "pull", True)) != remote.length:
            raise _mismatch(f"into has {length} bytes, the region {remote.length}")
        return into

    def tries_again(self, error: DeniedError) -> bool:
        """After a failed read: whether the name may have got other memory after it was looked up."""
        if not self.name or error.code != "region_denied":
            return False
        self.remote = None
        self._left -= 1
        return self._left > 0


def _mismatch(detail: str) -> Exception:
    return setup_error("invalid_argument", operation="pull", detail=detail)
