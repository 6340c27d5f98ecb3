"""The base class of verbs objects: close() is idempotent and closes children first."""

from __future__ import annotations

import itertools
import weakref
from typing import Protocol, TypeVar

from verbena._closing import Closing


class Closable(Protocol):
    def close(self) -> None: ...


ChildT = TypeVar("ChildT", bound=Closable)


class Resource(Closing):
    """A context manager with an idempotent close(). A child references its parent; the parent references its
    children weakly."""

    __slots__ = ("__weakref__", "_children", "_closed", "_numbers")

    def __init__(self) -> None:
        self._closed = False
        self._children: weakref.WeakValueDictionary[int, Closable] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()

    @property
    def closed(self) -> bool:
        """Whether close() was called, or this process is a forked child of the object's."""
        return self._closed or self._inherited

    def close(self) -> None:
        """Closes the children, newest first, then this object. Idempotent."""
        if self._closed or self._inherited:
            return
        self._closed = True
        for _, child in sorted(self._children.items(), reverse=True):
            child.close()
        self._close_native()

    def _adopt(self, child: ChildT) -> ChildT:
        self._children[next(self._numbers)] = child
        return child

    def _close_native(self) -> None:
        raise NotImplementedError
