"""One event loop's side of a node: futures of what it awaits, requests that it serves, and driving.
A loop that drives spins for `busy_poll_us` after the last work; then it arms and sleeps on the node's
descriptor. It spins by calling itself soon, so that other tasks run in between, and inside native code
while there are none. When spinning has been in vain several times in a row, it sleeps at once, until
something comes so soon that spinning would have found it. Without adaptive polling it never sleeps."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from typing import TYPE_CHECKING

from verbena import _native
from verbena.errors import ClosedError
from verbena.transport.serving import Workers

if TYPE_CHECKING:
    from verbena.transport.node import Node

# The answer; or outcome, status and detail of what failed; or None: it took too long.
Finished = bytes | tuple[int, int, bytes] | None

_MOST_MISSES = 8
_IDLE_TURN_S = 20e-6  # a loop that is back so soon has nothing else to do
_NATIVE_SPIN_US = 20  # and can do without its turns for so long


class LoopEvents:
    """Made and used on its loop only, but for close()."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop, *, drives: bool) -> None:
        self.queue = _native.transport.EventQueue()
        self.loop = loop
        self.workers = Workers(loop)
        self._native = node._native
        self._tokens = itertools.count(1)
        self._futures: dict[int, asyncio.Future[Finished]] = {}
        self._on_request = node._on_request
        self._spin_s = node.settings.busy_poll_us / 1e6 if node.settings.adaptive_polling else math.inf
        self._drives = drives
        self._spinning = False
        self._spin_until = 0.0
        self._looked_at = 0.0
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
        self._spin_until = 0.0  # that is, from the next look on
        if not self._spinning and self._drives and not self._closed:
            self._spinning = True
            self._found = False
            self.queue.set_quiet(True)
            self.loop.call_soon(self._spin)

    def _on_event(self) -> None:
        with contextlib.suppress(ClosedError):
            self._native.acknowledge()  # else the loop would come here at every turn until it rests
        if time.monotonic() - self._slept_at < self._spin_s:
            self._misses = 0
        self.kick()

    def _spin(self) -> None:
        with contextlib.suppress(ClosedError):  # another thread closes the node meanwhile
            self._look()

    def _look(self) -> None:
        if self._closed:
            return
        is_idle = time.monotonic() - self._looked_at < _IDLE_TURN_S
        spin_us = _NATIVE_SPIN_US if is_idle and self._spin_s else 0
        found = self._native.drive(spin_us, self.queue, len(self._futures) // 2)
        self._deliver()  # maybe of another thread's finding
        if found:
            self._found = True
            self._spin_until = 0.0
        self._looked_at = now = time.monotonic()
        if self._spin_until == 0.0:
            spins = found or self._misses < _MOST_MISSES
            self._spin_until = now + (self._spin_s if spins else 0.0)
        elif now >= self._spin_until:
            found = self._native.arm_and_poll()
            self._deliver()
            if not found:
                self._spinning = False
                self._misses = 0 if self._found else self._misses + 1
                self._slept_at = time.monotonic()
                self.queue.set_quiet(False)
                return
        self.loop.call_soon(self._spin)

    def _deliver(self) -> None:
        self.queue.deliver(self._futures, self._on_request)

    def close(self) -> None:
        """From any thread, once nothing arrives any more."""
        if not self._closed:
            self._closed = True
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self._detach)

    def _detach(self) -> None:
        self._deliver()
        self.workers.close()
        for descriptor in self._fds:
            self.loop.remove_reader(descriptor)
