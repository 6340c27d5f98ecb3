"""Queue pairs: one end of a reliable connection. State changes and posts; operations.py has the rest."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from verbena import _native
from verbena._forks import own_repr
from verbena._native import QpState, RecvWorkRequest, SendWorkRequest
from verbena.verbs.access import Access
from verbena.verbs.attributes import QpAttributes, QpLimits
from verbena.verbs.connection import reads_in_flight
from verbena.verbs.endpoint import Endpoint
from verbena.verbs.gid import Gid
from verbena.verbs.operations import AsyncOperations
from verbena.verbs.resource import Resource
from verbena.verbs.sync import SyncOperations

if TYPE_CHECKING:
    from verbena.verbs.completion_queue import CompletionQueue
    from verbena.verbs.connection import Connection
    from verbena.verbs.protection_domain import ProtectionDomain
    from verbena.verbs.shared_receive_queue import SharedReceiveQueue

REMOTE_ACCESS = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


class QueuePair(AsyncOperations, Resource):
    """A send and a receive queue. asyncio operations are its methods, blocking ones the methods of `sync`."""

    __slots__ = ("_connection", "_native", "_psn", "pd", "recv_cq", "send_cq", "srq", "sync")

    def __init__(
        self,
        pd: ProtectionDomain,
        native: _native.QueuePair,
        *,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        srq: SharedReceiveQueue | None,
    ) -> None:
        super().__init__()
        self.pd = pd
        self.send_cq = send_cq
        self.recv_cq = recv_cq
        self.srq = srq
        self.sync = SyncOperations(native)
        self._native = native
        self._psn = secrets.randbits(24)
        self._connection: Connection | None = None

    @property
    def number(self) -> int:
        return self._native.number

    @property
    def state(self) -> QpState:
        return self._native.state

    @property
    def limits(self) -> QpLimits:
        """The actual limits, which may be higher than requested."""
        return QpLimits.from_native(self._native.limits)

    @property
    def attributes(self) -> QpAttributes:
        """The current state and the attributes that modify() or a connection has set."""
        return QpAttributes.from_native(self._native.attributes)

    @property
    def capabilities(self) -> dict[str, str]:
        """The features of the connection to the current peer, as texts by name."""
        return dict(self._native.capabilities)

    @property
    def connection(self) -> Connection | None:
        """The managed connection it belongs to, if any."""
        return self._connection

    @property
    def endpoint(self) -> Endpoint:
        """The address that the peer's connect_to() needs. Send it to the peer over any channel."""
        device = self.pd.context.attributes
        return Endpoint(device.gid, self.number, self._psn, device.ports[0].lid if device.ports else 0)

    def modify(self, state: QpState, **attributes: int | Gid | Access) -> None:
        """Moves to `state` with exactly these attributes. After a StateError nothing has changed.
        INIT: port, pkey_index, access_flags. RTR: dest_gid, dest_lid, path_mtu, dest_qp_num, rq_psn,
        max_dest_rd_atomic, min_rnr_timer; gid_index is optional (default: automatic).
        RTS: sq_psn, timeout, retry_count, rnr_retry, max_rd_atomic."""
        wanted = _native.QpAttributes()
        wanted.state = state
        for name, value in attributes.items():
            if name not in _ATTRIBUTES:
                raise TypeError(f"a queue pair has no attribute {name!r}")
            setattr(wanted, name, bytes(value) if isinstance(value, Gid) else int(value))
        self._native.modify(wanted)

    def connect_to(
        self,
        endpoint: Endpoint,
        *,
        access: Access = REMOTE_ACCESS,
        port: int = 1,
        gid_index: int | None = None,
        path_mtu: int = 1024,
        max_rd_atomic: int | None = None,
        timeout: int = 14,
        retry_count: int = 7,
        rnr_retry: int = 7,
        min_rnr_timer: int = 12,
    ) -> None:
        """Moves from RESET or INIT to RTS, connected to the peer's `endpoint`; the peer must do the same.
        Without `gid_index` the GID that reaches the peer is used. By default a request is retried seven times
        after 67 ms each, and without limit while the peer has no receive posted."""
        if max_rd_atomic is None:
            max_rd_atomic = reads_in_flight(self.pd.context.attributes)
        if self.state is not QpState.INIT:
            self.modify(QpState.INIT, port=port, pkey_index=0, access_flags=access)
        self.modify(
            QpState.RTR,
            **({} if gid_index is None else {"gid_index": gid_index}),
            dest_gid=endpoint.gid,
            dest_lid=endpoint.lid,
            path_mtu=path_mtu,
            dest_qp_num=endpoint.qp_num,
            rq_psn=endpoint.psn,
            max_dest_rd_atomic=max_rd_atomic,
            min_rnr_timer=min_rnr_timer,
        )
        self.modify(
            QpState.RTS,
            sq_psn=self._psn,
            timeout=timeout,
            retry_count=retry_count,
            rnr_retry=rnr_retry,
            max_rd_atomic=max_rd_atomic,
        )
        self._native.peer = f"{endpoint.gid}, queue pair {endpoint.qp_num}"

    def post_send(self, *requests: SendWorkRequest) -> None:
        """Posts requests in order; signalled and failed ones complete in `send_cq`. The last `max_send` keep
        their local memory alive. QueueFullError or StateError if not all were posted; `accepted` is how many
        were."""
        self._native.post_send(requests)

    def post_recv(self, *requests: RecvWorkRequest) -> None:
        """Posts receives in order; each completes in `recv_cq`. Errors as for post_send()."""
        self._native.post_recv(requests)

    def _belongs_to(self, connection: Connection, peer: str) -> None:
        self._connection = connection
        self._native.peer = peer

    def _close_native(self) -> None:
        self._native.close()

    @own_repr
    def __repr__(self) -> str:
        return f"<QueuePair {self.number} {'closed' if self.closed else self.state.name}>"


_ATTRIBUTES = frozenset(QpAttributes.__dataclass_fields__) - {"state"}
