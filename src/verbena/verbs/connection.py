"""Managed connections: the connection manager takes two queue pairs to RTS."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from verbena import _native, errors
from verbena._forks import OfProcess, own_repr
from verbena._native import ConnectionState
from verbena.verbs.readiness import Readiness
from verbena.verbs.state_events import StateEvents

if TYPE_CHECKING:
    from verbena.verbs.attributes import DeviceAttributes
    from verbena.verbs.queue_pair import QueuePair

MAX_RD_ATOMIC = 16  # of an RDMA device; more is not faster
ENDED_STATES = frozenset({ConnectionState.REJECTED, ConnectionState.FAILED, ConnectionState.DISCONNECTED})


def reads_in_flight(attributes: DeviceAttributes) -> int:
    """Returns how many READs and atomics a queue pair may have outstanding. A software wire needs many to
    fill its stream with short READs; on an RDMA device each one costs the responder memory."""
    most = attributes.max_rd_atomic
    return min(most, MAX_RD_ATOMIC) if attributes.provider == "ibv" else most


def connect_params(
    attributes: DeviceAttributes, private_data: bytes, timeout_s: float, given: dict[str, int]
) -> _native.ConnectParams:
    """Returns the native parameters: the defaults, replaced by those `given`. TypeError for an unknown
    one."""
    depth = reads_in_flight(attributes)
    values = {"responder_resources": depth, "initiator_depth": depth, "retry_count": 7, "rnr_retry": 7}
    if unknown := set(given) - set(values):
        raise TypeError(f"unknown connection parameters: {', '.join(sorted(unknown))}")
    return _native.ConnectParams(
        private_data=private_data, timeout_ms=max(1, round(timeout_s * 1000)), **{**values, **given}
    )


class Connection(OfProcess):
    """One end of a connection. disconnect(), or the end of the `with` block, moves both queue pairs to
    ERR."""

    __slots__ = ("__weakref__", "_address", "_events", "_native", "_operation")

    def __init__(self, qp: QueuePair, native: _native.Connection, operation: str, address: str) -> None:
        self._native = native
        self._operation = operation
        self._address = address
        self._events: dict[StateEvents, int] = {}  # tokens
        qp._belongs_to(self, address)

    @property
    def state(self) -> ConnectionState:
        return self._native.state

    @property
    def peer(self) -> str:
        return self._native.peer

    @property
    def private_data(self) -> bytes:
        """The private data of the peer's accept or reject."""
        return self._native.private_data

    @property
    def failure(self) -> errors.VerbenaError | None:
        """The error that ended the connection; None while it lasts, and after an orderly end by either side.
        Includes errors that no request reports, such as a WRITE that the peer refused after its
        completion."""
        code = self._native.error_code
        if self.state not in ENDED_STATES or not code:
            return None
        return errors.setup_error(code, operation=self._operation, peer=self._address)

    def disconnect(self) -> None:
        """Ends the connection: both queue pairs move to ERR, and their pending requests are flushed."""
        self._native.disconnect()

    async def wait_disconnected(self) -> None:
        """Waits until the connection has ended, by either side or by a failure."""
        while self._poll_state() not in ENDED_STATES:
            await self._changed()

    async def _established(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        try:
            while self._poll_state() is ConnectionState.CONNECTING:
                await self._changed(self._time_left(deadline, timeout_s))
        except BaseException:
            self.disconnect()
            raise
        self._raise_unless_established()

    def _established_blocking(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        readiness = Readiness(self._native.fileno())
        try:
            while self._poll_state() is ConnectionState.CONNECTING:
                readiness.wait_blocking(self._time_left(deadline, timeout_s))
        except BaseException:
            self.disconnect()
            raise
        self._raise_unless_established()

    async def _changed(self, timeout_s: float | None = None) -> None:
        """Waits for a change of the state, for `timeout_s` at most. May return early: check the state."""
        events = StateEvents.of_running_loop()
        token = self._events.get(events)
        if token is None:
            self._events[events] = events.add(self._native)
            return  # a change may have come before
        if token:
            await events.wait(token, timeout_s)
        else:
            await Readiness(self._native.fileno()).wait(timeout_s)

    def _poll_state(self) -> ConnectionState:
        self._native.acknowledge()  # first: a later change causes another event
        return self._native.state

    def _time_left(self, deadline: float, timeout_s: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            detail = ": ".join(filter(None, (f"no answer within {timeout_s} s", self._native.error_detail)))
            raise errors.setup_error(
                "connect_timeout", operation=self._operation, peer=self._address, detail=detail
            )
        return left

    def _raise_unless_established(self) -> None:
        state = self.state
        # DISCONNECTED: the connection was established, and a fast peer has ended it already.
        if state in (ConnectionState.ESTABLISHED, ConnectionState.DISCONNECTED):
            return
        code = "rejected" if state is ConnectionState.REJECTED else self._native.error_code or "peer_died"
        data = self.private_data if state is ConnectionState.REJECTED else b""
        raise errors.setup_error(
            code,
            operation=self._operation,
            peer=self._address,
            detail=self._native.error_detail,
            private_data=data,
        )

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    @own_repr
    def __repr__(self) -> str:
        return f"<Connection to {self._address!r} {self.state.name}>"
