"""A queue pair: one end of a reliable connection. Set-up and raw posts; the rest is in operations.py."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from verbena import _native
from verbena._native import QpState, RecvWorkRequest, SendWorkRequest
from verbena.verbs.access import Access
from verbena.verbs.attributes import QpAttributes, QpLimits
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
MOST_RD_ATOMIC = 16  # outstanding READs and atomics; more gains nothing and costs the responder memory


class QueuePair(AsyncOperations, Resource):
    """A send and a receive queue. Awaited operations are its own methods, blocking ones those of `sync`."""

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
        """What it was made for."""
        return QpLimits.from_native(self._native.limits)

    @property
    def attributes(self) -> QpAttributes:
        """What its transitions have set."""
        return QpAttributes.from_native(self._native.attributes)

    @property
    def capabilities(self) -> dict[str, str]:
        """What this connection can do with this peer, in words."""
        return dict(self._native.capabilities)

    @property
    def connection(self) -> Connection | None:
        """The managed connection it belongs to, if any."""
        return self._connection

    @property
    def endpoint(self) -> Endpoint:
        """What the peer's connect_to() needs; give it to the peer by any means."""
        device = self.pd.context.attributes
        return Endpoint(device.gid, self.number, self._psn, device.ports[0].lid if device.ports else 0)

    def modify(self, state: QpState, **attributes: int | Gid | Access) -> None:
        """Walks one edge of the state diagram with exactly what is given.
        INIT: port, pkey_index, access_flags.
        RTR: dest_gid, dest_lid, path_mtu, dest_qp_num, rq_psn, max_dest_rd_atomic, min_rnr_timer;
        gid_index if it is not to be chosen.
        RTS: sq_psn, timeout, retry_count, rnr_retry, max_rd_atomic. A StateError has changed nothing."""
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
        """Takes it from RESET (or INIT) to RTS towards a peer's `endpoint`; the peer does the same with ours.
        Without `gid_index` the entry of the port's table that reaches the peer is taken. The defaults wait
        67 ms per try, seven times, and for ever for the peer's receives."""
        if max_rd_atomic is None:
            max_rd_atomic = min(self.pd.context.attributes.max_rd_atomic, MOST_RD_ATOMIC)
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
        """Posts requests in order; each reports to `send_cq` if signalled or failed. Local memory is kept
        for the last `max_send` of them. QueueFullError and StateError tell in `accepted` how many went in."""
        self._native.post_send(requests)

    def post_recv(self, *requests: RecvWorkRequest) -> None:
        """Posts receives in order; each reports to `recv_cq`. Errors as for post_send()."""
        self._native.post_recv(requests)

    def _belongs_to(self, connection: Connection, peer: str) -> None:
        self._connection = connection
        self._native.peer = peer

    def _close_native(self) -> None:
        self._native.close()

    def __repr__(self) -> str:
        return f"<QueuePair {self.number} {'closed' if self.closed else self.state.name}>"


_ATTRIBUTES = frozenset(QpAttributes.__dataclass_fields__) - {"state"}
