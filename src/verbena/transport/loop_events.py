"""One event loop's side of a node: futures of what it awaits, requests that it serves, and driving.
A loop that drives spins for `busy_poll_us` after the last work by calling itself soon, so that other tasks
run in between; then it arms and sleeps on the node's descriptor. When spinning has been in vain several times
in a row, it sleeps at once, until something comes so soon that spinning would have found it. Without
adaptive polling it never sleeps."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from verbena import _native
from verbena.errors import ClosedError
from verbena.transport.outcomes import EventKind

if TYPE_CHECKING:
    from verbena.transport.node import Node

Finished = tuple[int, int, bytes]  # outcome, status, payload
NativeEvent = tuple[int, int, int, int, int, int, int, bytes]

_FINISHED = int(EventKind.FINISHED)
_MOST_MISSES = 8


class LoopEvents:
    """Made and used on its loop only, but for close()."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop, *, drives: bool) -> None:
        self.queue = _native.transport.EventQueue()
        self.loop = loop
        self._node = node
        self._native = node._native
        self._tokens = itertools.count(1)
        self._futures: dict[int, asyncio.Future[Finished]] = {}
        self._on_request: Callable[[NativeEvent], None] = node._on_request
        self._spin_s = node.settings.busy_poll_us / 1e6 if node.settings.adaptive_polling else math.inf
        self._drives = drives
        self._spinning = False
        self._spin_until = 0.0
        self._found = False  # since the last kick
        self._misses = 0  # spins in a row that found nothing
        self._slept_at = 0.0
        self._closed = False
        self._fds = [self.queue.fileno()]
        loop.add_reader(self.queue.fileno(), self._deliver)
        if drives:
            self._fds.append(self._native.fileno())
            loop.add_reader(self._native.fileno(), self._on_event)
            self.kick()

    def expect(self) -> tuple[int, asyncio.Future[Finished]]:
        """A token for something to be started, and the future of its end."""
        token = next(self._tokens)
        future: asyncio.Future[Finished] = self.loop.create_future()
        self._futures[token] = future
        return token, future

    def forget(self, token: int) -> None:
        self._futures.pop(token, None)

    def kick(self) -> None:
        """Something is expected: looks for it at once, and for a while."""
        if self._drives and not self._closed:
            self._spin_until = time.monotonic() + (self._spin_s if self._misses < _MOST_MISSES else 0.0)
            if not self._spinning:
                self._spinning = True
                self._found = False
                self.loop.call_soon(self._spin)

    def _on_event(self) -> None:
        if time.monotonic() - self._slept_at < self._spin_s:
            self._misses = 0
        self.kick()

    def _spin(self) -> None:
        with contextlib.suppress(ClosedError):  # another thread closes the node meanwhile
            self._look()

    def _look(self) -> None:
        if self._closed:
            return
        if self._native.drive():
            self._deliver()
            self._found = True
            self._spin_until = time.monotonic() + self._spin_s
        elif time.monotonic() >= self._spin_until:
            found = self._native.rest()
            self._deliver()
            if not found:
                self._spinning = False
                self._misses = 0 if self._found else self._misses + 1
                self._slept_at = time.monotonic()
                return
        self.loop.call_soon(self._spin)

    def _deliver(self) -> None:
        for event in self.queue.take():
            if event[0] == _FINISHED:
                future = self._futures.pop(event[3], None)
                if future is not None and not future.done():
                    future.set_result((event[4], event[5], event[7]))
            else:
                self._on_request(event)

    def close(self) -> None:
        """From any thread, once nothing arrives any more."""
        if not self._closed:
            self._closed = True
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self._detach)

    def _detach(self) -> None:
        self._deliver()
        for descriptor in self._fds:
            self.loop.remove_reader(descriptor)
