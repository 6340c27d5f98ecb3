"""Forks of this process. Objects with threads, sockets or shared memory stay with the process that opened
them: in a forked child close() does nothing, and every other use raises `forked`. Native objects know it
themselves (src/native/bind/handle.h). Depends on nothing; errors are imported when they are raised."""

from __future__ import annotations

import functools
import os
import select
import socket
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from selectors import EpollSelector

    from typing_extensions import Self

T = TypeVar("T")


class _Process:
    def __init__(self) -> None:
        self.forks = 0  # of this process and its ancestors


process = _Process()

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_keeping: weakref.WeakSet[object] = weakref.WeakSet()
_kept: list[object] = []
_renewed: list[tuple[weakref.ref[Any], Callable[[Any], object]]] = []


class OfProcess:
    """The base of public objects that a forked child may not use."""

    __slots__ = ("_made_in",)

    _made_in: int

    def __new__(cls, *arguments: object, **options: object) -> Self:
        made = super().__new__(cls)
        made._made_in = process.forks
        return made

    @property
    def _inherited(self) -> bool:
        """Whether this process is a forked child of the one that made the object."""
        return self._made_in != process.forks

    def _check_process(self, operation: str) -> None:
        """Raises `forked` in a child: call it before anything that waits or takes a lock."""
        if self._made_in != process.forks:
            from verbena.errors import setup_error

            raise setup_error("forked", operation=operation, detail=type(self).__name__)


def own_repr(describe: Callable[[Any], str]) -> Callable[[Any], str]:
    """A decorator of __repr__ methods that ask the native object, which a child may not do."""

    @functools.wraps(describe)
    def __repr__(self: Any) -> str:
        return f"<{type(self).__name__} of the parent process>" if self._inherited else describe(self)

    return __repr__


def close_in_child(opened: socket.socket) -> None:
    """Makes a forked child close its copy: it must neither hold the port nor keep the connection open."""
    _sockets.add(opened)


def keep_in_child(owner: object) -> None:
    """Makes a forked child keep the object and what it refers to: destructors would wait for threads that
    stayed with the parent."""
    _keeping.add(owner)


def keep(*parts: object) -> None:
    """Call it in a child: these objects are never destroyed. Coroutines that the parent runs would otherwise
    run their `finally` blocks in the child too."""
    _kept.extend(parts)


def renew_in_child(owner: T, renew: Callable[[T], object]) -> None:
    """Calls `renew` with the object in every forked child: for locks that another thread may hold at the
    fork, and for caches of inherited objects."""
    _renewed[:] = [row for row in _renewed if row[0]() is not None]
    _renewed.append((weakref.ref(owner), renew))


def disconnect_selector(selector: EpollSelector) -> None:
    """Call it in a child: its changes to an inherited selector would otherwise change the parent's, since
    both share the kernel's list."""
    with select.epoll() as empty:
        os.dup2(empty.fileno(), selector.fileno(), inheritable=False)


def _begin_child() -> None:
    process.forks += 1
    for opened in list(_sockets):
        opened.close()
    _sockets.clear()
    _kept.extend(_keeping)
    for reference, renew in _renewed:
        if (owner := reference()) is not None:
            renew(owner)


os.register_at_fork(after_in_child=_begin_child)
