"""The nodes of sessions for which the program gave none: one for each event loop, and one for the threads of
verbena.sync, by their settings. A node is made for its first session and closed with its last one.
Everything here runs on the control thread, so that it needs no lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Hashable
from dataclasses import dataclass

from verbena import _threads
from verbena.errors import VerbenaError
from verbena.transport import control
from verbena.transport.node import Node
from verbena.transport.settings import Settings

_Key = tuple[asyncio.AbstractEventLoop | None, Hashable]


@dataclass(eq=False)
class _Shared:
    """A node with the number of its users. It may still be in the making."""

    key: _Key
    making: asyncio.Task[Node]
    users: int = 0

    @property
    def is_usable(self) -> bool:
        if not self.making.done():
            return True
        failed = self.making.cancelled() or self.making.exception() is not None
        return not (failed or self.making.result()._closed)

    async def close(self) -> None:
        with contextlib.suppress(VerbenaError):  # it could not be made: its users have got the error
            node = await asyncio.shield(self.making)
            if not node._closing.has_begun:  # a node that closes waits for its sessions
                await node._close()


class Lease:
    """The use of a shared node by one session."""

    def __init__(self, shared: _Shared) -> None:
        self._shared: _Shared | None = shared
        shared.users += 1

    @property
    def node(self) -> Node:
        assert self._shared is not None  # not released
        return self._shared.making.result()

    async def release(self) -> None:
        """Returns the node; its last user closes it. Idempotent."""
        shared, self._shared = self._shared, None
        if shared is None:
            return
        shared.users -= 1
        if shared.users == 0:
            _forget(shared)
            await shared.close()


_shared: dict[_Key, _Shared] = {}


async def make_node(settings: Settings, *, by_loop: bool) -> Node:
    """Makes a node in a thread. If that is cancelled, closes the node when it has been made."""
    making = control.spawn(_threads.workers.run(Node, settings, by_loop=by_loop))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        with contextlib.suppress(VerbenaError):
            await (await making)._close()
        raise


async def borrow(settings: Settings, loop: asyncio.AbstractEventLoop | None) -> Lease:
    """Returns a use of the node of an event loop, or of threads (None). Raises the errors of Node()."""
    _close_abandoned()
    key = (loop, settings.key())
    shared = _shared.get(key)
    if shared is None or not shared.is_usable:
        making = control.spawn(make_node(settings, by_loop=loop is not None))
        shared = _shared[key] = _Shared(key, making)
    lease = Lease(shared)
    try:
        await asyncio.shield(shared.making)
    except BaseException:
        await lease.release()
        raise
    return lease


def _close_abandoned() -> None:
    """Closes the nodes of event loops that were closed before their sessions."""
    for shared in list(_shared.values()):
        loop = shared.key[0]
        if loop is not None and loop.is_closed():
            _forget(shared)
            control.spawn(shared.close())


def _forget(shared: _Shared) -> None:
    if _shared.get(shared.key) is shared:
        del _shared[shared.key]


os.register_at_fork(after_in_child=_shared.clear)
