"""The stores that a blocking client talks to: the one that it was opened with and, in a cluster, the
others."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from verbena import _native, sync
from verbena.errors import VerbenaError, setup_error
from verbena.kv.client.redirects import HOME, Pause, Requests, SlotMap, Step
from verbena.kv.client.words import FOREVER

if TYPE_CHECKING:
    from verbena.kv.client.connecting import Access
    from verbena.kv.client.words import Word


class SyncNode:
    """A store, by a stream of a session."""

    def __init__(self, session: sync.Session, greeting: Sequence[Sequence[Word]], *, owns: bool) -> None:
        self.session = session
        self._owns = owns
        try:
            self.stream = _native.kv.Stream(session._native, session._map, greeting)
        except BaseException:
            self._close_session()
            raise

    def close(self) -> None:
        self.stream.close()
        self._close_session()

    def _close_session(self) -> None:
        if self._owns:
            self.session.close()


def open_session(access: Access, address: str) -> sync.Session:
    return sync.connect(
        address, secret=access.secret, wire=access.wire, tls=access.tls, timeout_s=access.timeout_s
    )


class SyncNodes:
    """Performs the steps of route(). Sessions with other nodes are opened when they are needed."""

    def __init__(self, home: SyncNode, access: Access, greeting: Sequence[Sequence[Word]]) -> None:
        self._home = home
        self._access = access
        self._greeting = greeting
        self._others: dict[str, SyncNode] = {}
        self._lock = threading.Lock()
        self.slots = SlotMap()

    def perform(self, steps: Generator[Step, Any, list[Any]], ends: float) -> list[Any]:
        """Drives route() to its end."""
        answer: Any = None
        try:
            while True:
                answer = self._perform(steps.send(answer), ends)
        except StopIteration as end:
            replies: list[Any] = end.value
            return replies

    def close(self) -> None:
        others, self._others = self._others, {}
        for node in others.values():
            with contextlib.suppress(VerbenaError):
                node.close()

    def _perform(self, step: Step, ends: float) -> Any:
        if isinstance(step, Requests):
            return [self._run(address, commands, ends) for address, commands in step.groups]
        if isinstance(step, Pause):
            time.sleep(step.seconds)
        else:
            self._load_map(ends)
        return None

    def _run(self, address: str, commands: Sequence[Any], ends: float) -> list[Any]:
        try:
            return self._node(address).stream.run(commands, seconds_left(ends))
        except VerbenaError as error:
            if address != HOME:  # it may have been replaced: the next command asks the others
                self.slots.is_stale = True
                if isinstance(error, ConnectionError):
                    self._drop(address)
            raise

    def _load_map(self, ends: float) -> None:
        failure: VerbenaError | None = None
        for address in [HOME, *self.slots.nodes]:
            try:
                (reply,) = self._node(address).stream.run([("CLUSTER", "SHARDS")], seconds_left(ends))
            except VerbenaError as error:
                failure = error
                continue
            if isinstance(reply, Exception):
                raise reply
            return self.slots.load(reply)
        assert failure is not None
        raise failure

    def _node(self, address: str) -> SyncNode:
        if address == HOME:
            return self._home
        with self._lock:
            node = self._others.get(address)
        if node is not None:
            return node
        made = SyncNode(open_session(self._access, address), self._greeting, owns=True)
        try:
            made.stream.greet(FOREVER if self._access.timeout_s is None else self._access.timeout_s)
        except BaseException:
            made.close()
            raise
        with self._lock:
            node = self._others.setdefault(address, made)
        if node is not made:
            made.close()
        return node

    def _drop(self, address: str) -> None:
        with self._lock:
            node = self._others.pop(address, None)
        if node is not None:
            with contextlib.suppress(VerbenaError):
                node.close()


def seconds_left(ends: float) -> float:
    """Until `ends`; raises TimedOutError if that has passed. For native code, inf: no limit."""
    left = ends - time.monotonic()
    if left <= 0:
        raise setup_error("call_timeout", operation="talk to the store", detail="no answer in time")
    return left
