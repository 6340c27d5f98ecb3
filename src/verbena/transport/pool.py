"""A pool of sessions by address, with one limit on their number.
A session has one borrower at a time. The pool belongs to the event loop that uses it first."""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from verbena import _native
from verbena._closing import AsyncClosing
from verbena.config import Config, load
from verbena.errors import VerbenaError, setup_error
from verbena.transport.codecs.codec import Codec
from verbena.transport.failover.policy import LinkState
from verbena.transport.limiter import FairLimiter
from verbena.transport.opening import connect
from verbena.transport.session import Handler, Session
from verbena.transport.settings import Settings

_METHOD_ECHO = _native.transport.METHOD_ECHO
_PING = b"are you there"


@dataclass
class _Idle:
    """A session in the pool that is not lent."""

    session: Session
    since: float
    expiry: asyncio.TimerHandle | None


@dataclass
class _Counters:
    opened: int = 0
    reused: int = 0
    evicted: int = 0  # healthy, closed to make room or after idle_timeout_s
    failed: int = 0  # found broken, and replaced when next wanted


@dataclass(frozen=True)
class PoolStats:
    """A pool's counters since it was made, and what it holds now."""

    opened: int
    reused: int
    evicted: int
    failed: int
    connections: int
    lent: int
    idle: int
    waiting: int
    idle_by_address: Mapping[str, int] = field(default_factory=dict)


class Pool(AsyncClosing):
    """`max_connections` and `idle_timeout_s` (0: never) are as configured unless given. A session that was
    idle for `check_after_s` must answer a ping within `check_timeout_s` before it is lent. The other
    arguments are those of connect(). A context manager."""

    def __init__(
        self,
        *,
        max_connections: int | None = None,
        idle_timeout_s: float | None = None,
        check_after_s: float = 5.0,
        check_timeout_s: float = 2.0,
        secret: bytes | str = b"",
        wire: str | None = None,
        handlers: Mapping[str, Handler] | None = None,
        tls: ssl.SSLContext | None = None,
        config: Config | Settings | None = None,
        codec: str | Codec = "bytes",
    ) -> None:
        self._config = config or load()
        if max_connections is None:
            settings = self._config if isinstance(self._config, Settings) else self._config.network.rdma
            max_connections = settings.max_connections
        if idle_timeout_s is None:
            known = not isinstance(self._config, Settings)
            idle_timeout_s = self._config.session.idle_timeout_s if known else 300  # type: ignore[union-attr]
        if max_connections < 1:
            detail = f"max_connections is {max_connections}, and must be 1 at least"
            raise setup_error("invalid_argument", operation="make a pool", detail=detail)
        self.max_connections = max_connections
        self.idle_timeout_s = idle_timeout_s
        self._check_after_s, self._check_timeout_s = check_after_s, check_timeout_s
        self._secret, self._wire, self._handlers, self._tls = secret, wire, handlers, tls
        self._codec = codec
        self._limiter = FairLimiter(max_connections)
        self._idle: dict[str, deque[_Idle]] = {}
        self._connections = 0  # lent, idle, being opened or being closed
        self._lent: set[Session] = set()
        self._counters = _Counters()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @contextlib.asynccontextmanager
    async def session(self, address: str, *, timeout_s: float | None = None) -> AsyncIterator[Session]:
        """Lends a session with the node at `address` for the length of the block. While max_connections are
        lent it waits, first come first served. TimedOutError if it has no session after `timeout_s`. Errors
        as connect(). Close it inside the block to have it replaced."""
        self._check_open()
        deadline = math.inf if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        if not await self._limiter.acquire(timeout_s):
            detail = f"all {self.max_connections} sessions stayed lent for {timeout_s:g} s"
            raise setup_error("pool_timeout", operation="borrow a session", peer=address, detail=detail)
        try:
            self._check_open()
            session = await self._reuse(address, deadline) or await self._open(address, deadline)
            self._lent.add(session)
            try:
                yield session
            finally:
                self._lent.discard(session)
                self._take_back(address, session)
        finally:
            self._limiter.release()

    def stats(self) -> PoolStats:
        """Counters and present numbers."""
        by_address = {address: len(waiting) for address, waiting in self._idle.items() if waiting}
        return PoolStats(
            **vars(self._counters),
            connections=self._connections,
            lent=len(self._lent),
            idle=sum(by_address.values()),
            waiting=self._limiter.waiting,
            idle_by_address=by_address,
        )

    async def close(self) -> None:
        """Closes every session, including lent ones; waiting borrowers get ClosedError. Idempotent."""
        if self._closed or self._inherited:
            return
        self._closed = True
        self._limiter.wake_all()
        for waiting in self._idle.values():
            while waiting:
                self._drop(waiting.popleft())
        closes = [session.close() for session in self._lent]
        await asyncio.gather(*closes, *self._tasks, return_exceptions=True)
        self._connections = len(self._lent)

    def __repr__(self) -> str:
        now = self.stats()
        state = "closed" if self._closed else f"{now.lent} lent, {now.idle} idle, {now.waiting} waiting"
        return f"<Pool of {self.max_connections}: {state}>"

    # Inside

    def _check_open(self) -> None:
        self._check_process("borrow a session")
        if self._closed:
            raise setup_error("closed", operation="borrow a session", detail="the pool is closed")

    async def _reuse(self, address: str, deadline: float) -> Session | None:
        """Returns the most recently used healthy idle session; unhealthy ones are closed."""
        waiting = self._idle.get(address)
        while waiting:
            idle = waiting.pop()
            if idle.expiry is not None:
                idle.expiry.cancel()
            try:
                healthy = await self._is_healthy(idle, deadline)
            except BaseException:
                self._drop(idle)
                raise
            if healthy:
                self._counters.reused += 1
                return idle.session
            self._counters.failed += 1
            self._drop(idle)
        return None

    async def _is_healthy(self, idle: _Idle, deadline: float) -> bool:
        session = idle.session
        if session.closed or session.state is not LinkState.CONNECTED:
            return False
        if asyncio.get_running_loop().time() - idle.since < self._check_after_s:
            return True
        timeout_s = min(self._check_timeout_s, _time_left(deadline))
        try:
            answer = await session._await(
                "ping", session._native.start_call, (_METHOD_ECHO, _PING), timeout_s
            )
        except VerbenaError:
            return False
        return answer == _PING

    async def _open(self, address: str, deadline: float) -> Session:
        while self._connections >= self.max_connections:
            await self._make_room()
        self._connections += 1
        try:
            session = await connect(
                address,
                wire=self._wire,
                handlers=self._handlers,
                tls=self._tls,
                secret=self._secret,
                config=self._config,
                timeout_s=None if deadline == math.inf else _time_left(deadline),
                codec=self._codec,
            )
        except BaseException:
            self._connections -= 1
            raise
        self._counters.opened += 1
        return session

    async def _make_room(self) -> None:
        """Closes the session that has been idle longest, or waits for one that is being closed. There is one
        or the other, since a borrower without a session holds a place of the limiter."""
        oldest = min(
            (waiting for waiting in self._idle.values() if waiting),
            key=lambda waiting: waiting[0].since,
            default=None,
        )
        if oldest is not None:
            self._counters.evicted += 1
            self._drop(oldest.popleft())
        if self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0)
        self._check_open()

    def _take_back(self, address: str, session: Session) -> None:
        loop = asyncio.get_running_loop()
        idle = _Idle(session, loop.time(), None)
        # One that is between two wires may be well again by the time it is wanted.
        over = session.closed or session.state is LinkState.FAILED
        if self._closed or over:
            if not self._closed:
                self._counters.failed += 1
            self._drop(idle)
            return
        if self.idle_timeout_s:
            idle.expiry = loop.call_later(self.idle_timeout_s, self._expire, address, idle)
        self._idle.setdefault(address, deque()).append(idle)

    def _expire(self, address: str, idle: _Idle) -> None:
        self._idle[address].remove(idle)
        self._counters.evicted += 1
        self._drop(idle)

    def _drop(self, idle: _Idle) -> None:
        if idle.expiry is not None:
            idle.expiry.cancel()
        self._start(self._shut(idle.session))

    async def _shut(self, session: Session) -> None:
        try:
            await session.close()
        finally:
            self._connections -= 1

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _time_left(deadline: float) -> float:
    return max(0.0, deadline - asyncio.get_running_loop().time())
