"""What a move needs from its node. The cluster passes these in; nothing here imports the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from verbena import _native
from verbena.errors import VerbenaError
from verbena.shards.cluster_map import ClusterMap, Member
from verbena.shards.envelope import Envelope, Kind
from verbena.shards.migration import Limits
from verbena.shards.stores import Stored
from verbena.transport import Node, Session


class MapAccess(Protocol):
    """The cluster map: the copy that this node acts on, and the store behind it."""

    @property
    def map(self) -> ClusterMap: ...

    @property
    def revision(self) -> int: ...

    async def load(self) -> Stored:
        """Reads the store without acting on the result."""

    async def refresh(self) -> ClusterMap:
        """Reads the store and acts on the result."""

    async def change(self, function: Callable[[ClusterMap], ClusterMap]) -> ClusterMap:
        """Changes the map by compare-and-swap, retrying on conflict, and acts on it."""

    async def swap(self, proposed: Stored, *, begin_within_s: float) -> ClusterMap:
        """Writes a prepared map. BusyError: the revision has changed. TimedOutError (map_not_asked): the
        request was not sent within `begin_within_s`."""


class SlotFence(Protocol):
    """Holds back commands on slots that are changing owner."""

    def fence(self, slots: Iterable[int]) -> int:
        """Commands on these slots wait from now on. Returns the log's position."""

    def open(self, slots: Iterable[int]) -> None:
        """Ends fence(); waiting commands run."""

    def suspend(self, slots: Iterable[int]) -> None:
        """Answers CLUSTERDOWN for these slots, whose owner is unknown."""

    def resume(self) -> None:
        """Ends suspend(): the map decides again."""


class Sessions(Protocol):
    """Sessions with other members, and requests over them."""

    observer: Callable[[str, bytes], None] | None

    @property
    def node(self) -> Node: ...

    async def session(self, to: Member, *, fast: bool) -> Session: ...

    def envelope(self, kind: Kind, to: Member, payload: bytes = b"", **fields: object) -> Envelope: ...

    async def request(
        self, to: Member, message: Envelope, *, fast: bool = False, timeout_s: float | None = None
    ) -> Envelope: ...

    async def send(self, session: Session, data: bytes, *, timeout_s: float | None = None) -> Envelope: ...

    def read_answer(self, session: Session, kind: Kind, answered: bytes) -> Envelope: ...


@dataclass(frozen=True)
class MoveSettings:
    limits: Limits
    rdma: bool = True  # base copies may go over RDMA
    max_send_size: int = 4 << 20
    num_memory_regions: int = 16


@dataclass(frozen=True)
class MoveContext:
    """The collaborators of every move of one node."""

    member: str  # this node's id
    engine: _native.kv.Engine
    begin_copy: Callable[[Iterable[int]], _native.kv.BaseCopy]
    make_applier: Callable[[Iterable[int]], _native.kv.LogApplier]
    map: MapAccess
    fence: SlotFence
    sessions: Sessions
    copy_sessions: Callable[[], Sessions]  # those over RDMA, once they are open
    is_yielding: Callable[[], bool]  # True: a replica is about to replace this node
    settings: MoveSettings


def reason(error: BaseException) -> str:
    """Returns why something failed, in a few words; never empty."""
    detail = error.detail if isinstance(error, VerbenaError) else ""
    return str(detail or error) or type(error).__name__
