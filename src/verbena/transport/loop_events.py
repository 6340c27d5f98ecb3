"""The part of a node that belongs to one event loop: futures of operations, delivery of requests, polling.
A driving loop polls for `busy_poll_us` after the last event, then arms the node and sleeps on its descriptor.
It polls from call_soon(), so that other tasks run in between."""

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

# The reply; or (outcome, status, detail) of a failure; or None after a timeout.
Finished = bytes | tuple[int, int, bytes] | None

# After this many fruitless spins in a row the loop sleeps without spinning, until an event arrives so soon
# after falling asleep that spinning would have found it.
_MAX_MISSES = 8
_IDLE_TURN_S = 20e-6  # a loop iteration shorter than this ran no other tasks
_NATIVE_SPIN_US = 20  # then native code may poll for this long without delaying them


class LoopEvents:
    """Created and used on its loop only, except close(). `drives`: this loop polls the node.
    Without adaptive polling a driving loop never sleeps."""

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
        self._polled_at = 0.0
        self._found = False  # whether this spin has found events
        self._misses = 0  # spins in a row that found nothing
        self._slept_at = 0.0
        self._closed = False
        self._fds = [self.queue.fileno()]
        loop.add_reader(self.queue.fileno(), self._deliver)
        if drives:
            self._fds.append(self._native.fileno())
            loop.add_reader(self._native.fileno(), self._on_event)
            self.start_polling()

    def expect(self) -> tuple[int, asyncio.Future[Finished]]:
        """Returns a token for an operation to be started and the future of its result.
        Call forget() with the token if the result is no longer wanted."""
        token = next(self._tokens)
        future: asyncio.Future[Finished] = self.loop.create_future()
        self._futures[token] = future
        return token, future

    def forget(self, token: int) -> None:
        self._futures.pop(token, None)

    def start_polling(self) -> None:
        """Starts polling, or extends it, because an event is expected. Does nothing if not driving."""
        self._spin_until = 0.0  # the next _poll() sets it
        if not self._spinning and self._drives and not self._closed:
            self._spinning = True
            self._found = False
            self.queue.set_wakeups_suppressed(True)
            self.loop.call_soon(self._spin)

    def _on_event(self) -> None:
        with contextlib.suppress(ClosedError):
            self._native.acknowledge()  # otherwise this runs in every iteration until it sleeps
            if time.monotonic() - self._slept_at < self._spin_s:
                self._misses = 0
            self.start_polling()

    def _spin(self) -> None:
        with contextlib.suppress(ClosedError):  # another thread is closing the node
            self._poll()

    def _poll(self) -> None:
        if self._closed:
            return
        is_idle = time.monotonic() - self._polled_at < _IDLE_TURN_S
        spin_us = _NATIVE_SPIN_US if is_idle and self._spin_s else 0
        found = self._native.drive(spin_us, self.queue, len(self._futures) // 2)
        self._deliver()  # another thread may have queued events
        if found:
            self._found = True
            self._spin_until = 0.0
        self._polled_at = now = time.monotonic()
        if self._spin_until == 0.0:
            spins = found or self._misses < _MAX_MISSES
            self._spin_until = now + (self._spin_s if spins else 0.0)
        elif now >= self._spin_until:
            found = self._native.arm_and_poll()
            self._deliver()
            if not found:
                self._spinning = False
                self._misses = 0 if self._found else self._misses + 1
                self._slept_at = time.monotonic()
                self.queue.set_wakeups_suppressed(False)
                return
        self.loop.call_soon(self._spin)

    def _deliver(self) -> None:
        self.queue.deliver(self._futures, self._on_request)

    def close(self) -> None:
        """Delivers the remaining events on the loop and detaches from it. From any thread; call it after the
        native node is closed, so that no event follows."""
        if not self._closed:
            self._closed = True
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self._detach)

    def _detach(self) -> None:
        self._deliver()
        self.workers.close()
        for descriptor in self._fds:
            self.loop.remove_reader(descriptor)
