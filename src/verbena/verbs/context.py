"""Contexts: open devices, which create protection domains, completion queues and connections."""

from __future__ import annotations

from functools import cached_property

from verbena import _native
from verbena._forks import own_repr
from verbena.verbs.attributes import DeviceAttributes
from verbena.verbs.completion_queue import CompletionQueue
from verbena.verbs.connection import Connection, connect_params
from verbena.verbs.gid import Gid
from verbena.verbs.listener import Listener
from verbena.verbs.protection_domain import ProtectionDomain
from verbena.verbs.queue_pair import QueuePair
from verbena.verbs.resource import Resource


class Context(Resource):
    """An open device. close() closes everything that was created from it.
    It belongs to the process that opened it: after a fork the child must open its own."""

    def __init__(self, native: _native.Context) -> None:
        super().__init__()
        self._native = native

    @cached_property
    def attributes(self) -> DeviceAttributes:
        """The limits and properties of the device, read at first use."""
        return DeviceAttributes.from_native(self._native.query())

    @property
    def gid(self) -> Gid:
        """The first valid GID of port 1."""
        return self.attributes.gid

    @property
    def counts(self) -> dict[str, int]:
        """The counters that the wire keeps itself, by name; empty if it keeps none."""
        return dict(self._native.counts())

    @property
    def removed(self) -> bool:
        """Whether the kernel has removed the device. Its requests were flushed, its connections have ended,
        and new objects are refused (`no_device`): close this context, and open the device when it is back."""
        return self._native.removed

    def alloc_pd(self) -> ProtectionDomain:
        """Creates a protection domain. Regions and queue pairs work together only within one domain."""
        return self._adopt(ProtectionDomain(self, self._native.alloc_pd()))

    def create_cq(self, depth: int = 256) -> CompletionQueue:
        """Creates a completion queue that holds at least `depth` completions."""
        return self._adopt(CompletionQueue(self, self._native.create_cq(depth)))

    def set_memory_node(self, node: int) -> str:
        """Makes later allocations prefer this NUMA node (-1: none). Returns an empty text, or the reason why
        that is not possible."""
        return self._native.set_memory_node(node)

    def listen(self, address: str = "", *, backlog: int = 128) -> Listener:
        """Listens at an address in the format of the wire; "" selects one, see `listener.address`.
        AddressError if the address is in use or not valid."""
        return self._adopt(Listener(self, self._native.listen(address, backlog)))

    def _listen_to_sockets(self, *, backlog: int = 128) -> Listener | None:
        """A listener without a port, for the connections that its _take_over() gets; None if the connections
        of the wire are not TCP connections."""
        native = self._native.listen_to_sockets(backlog)
        return None if native is None else self._adopt(Listener(self, native))

    def _close_own_port(self) -> None:
        """Closes the port at which the device waits for peers that know its GID and the number of a queue
        pair. Afterwards only connect() and listeners make connections."""
        self._native.close_own_port()

    async def connect(
        self,
        qp: QueuePair,
        address: str,
        *,
        private_data: bytes = b"",
        timeout_s: float = 5.0,
        **params: int,
    ) -> Connection:
        """Moves a queue pair from RESET or INIT to RTS with the listener at `address`. `params`:
        responder_resources, initiator_depth, retry_count, rnr_retry. InfiniBand and RoCE carry 56 bytes of
        private data, without zeros at its end. RejectedError (with the peer's private_data), AddressError or
        TimedOutError if it fails."""
        connection = self._begin_connect(qp, address, private_data, timeout_s, params)
        await connection._established(timeout_s)
        return connection

    def connect_blocking(
        self,
        qp: QueuePair,
        address: str,
        *,
        private_data: bytes = b"",
        timeout_s: float = 5.0,
        **params: int,
    ) -> Connection:
        """connect() for threads."""
        connection = self._begin_connect(qp, address, private_data, timeout_s, params)
        connection._established_blocking(timeout_s)
        return connection

    def _begin_connect(
        self, qp: QueuePair, address: str, private_data: bytes, timeout_s: float, params: dict[str, int]
    ) -> Connection:
        wanted = connect_params(self.attributes, private_data, timeout_s, params)
        return Connection(qp, self._native.connect(qp._native, address, wanted), "connect", address)

    def _close_native(self) -> None:
        self._native.close()

    @own_repr
    def __repr__(self) -> str:
        return f"<Context {'closed' if self.closed else self.attributes.name}>"
