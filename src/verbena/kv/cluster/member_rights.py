"""What the members of a cluster may ask of this node, by the session that asks. A session is a member from
its proof on (membership.py) until it ends, the member leaves the map, or its key in the map changes. Without
I/O."""

from __future__ import annotations

import enum
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from verbena.errors import setup_error
from verbena.kv.cluster.membership import Acceptor, MemberHello, Random
from verbena.shards.cluster_map import ClusterMap
from verbena.shards.envelope import Envelope, Kind
from verbena.transport import Session

LOG_EVERY_S = 60.0
REFRESH_EVERY_S = 1.0
_MAX_REFRESHES = 8  # for unknown ids, within REFRESH_EVERY_S
_MAX_LOGGED = 1024  # peers


@dataclass(frozen=True)
class Rule:
    """The members that may send a kind of message: in words, and as a function of the map, this node's id,
    the member's id and the message. `by_map`: a newer map may allow what the present one does not."""

    senders: str
    allows: Callable[[ClusterMap, str, str, Envelope], bool]
    by_map: bool = False


def _any_member(map: ClusterMap, me: str, peer: str, message: Envelope) -> bool:
    return True


def _is_source(map: ClusterMap, me: str, peer: str, message: Envelope) -> bool:
    move = map.moves.get(message.migration.hex())
    return move is not None and (move.source, move.target) == (peer, me)


def _is_replica(map: ClusterMap, me: str, peer: str, message: Envelope) -> bool:
    return map.replicas.get(peer) == me


def _nobody(map: ClusterMap, me: str, peer: str, message: Envelope) -> bool:
    return False


_SOURCE = Rule("the source of this move, as the cluster map names it", _is_source, by_map=True)
# Every kind of message has a row.
RULES: Mapping[Kind, Rule] = {
    Kind.OFFER: _SOURCE,
    Kind.WINDOWS: _SOURCE,  # the windows are lent to the session that carries the message
    Kind.TAIL: _SOURCE,
    Kind.DIGEST: _SOURCE,
    Kind.ABORT: _SOURCE,
    Kind.OWN: Rule("a member", _any_member),  # this node reads the map; the move is no longer in it
    Kind.GOSSIP: Rule("a member", _any_member),
    Kind.YIELD: Rule("a replica of this node, as the cluster map names it", _is_replica, by_map=True),
    # By native code: the session to which the windows of the move are lent.
    Kind.NOTICE: Rule("no session by this method", _nobody),
    Kind.SEGMENT: Rule("no session: pieces are written to windows", _nobody),
}


class Cause(enum.Enum):
    """Why a message was refused, as metrics and the log name it."""

    UNPROVED = "unproved"
    SOURCE = "source"
    RIGHT = "right"


@dataclass(frozen=True)
class Refusal:
    cause: Cause
    why: str


class MemberRights:
    """The rights of the sessions that this node has accepted. `map` returns the map that it acts on."""

    def __init__(
        self, member: str, key: bytes, map: Callable[[], ClusterMap], *, random: Random = secrets.token_bytes
    ) -> None:
        self._member, self._key, self._map, self._random = member, key, map, random
        self._challenged: WeakKeyDictionary[Session, Acceptor] = WeakKeyDictionary()
        self._proved: WeakKeyDictionary[Session, tuple[str, str]] = WeakKeyDictionary()  # id, key in the map

    # Proof

    def challenge(self, session: Session, data: bytes) -> bytes:
        """Answers a hello. DeniedError or ProtocolError: it is refused."""
        acceptor = Acceptor(
            session, MemberHello.parse(data), member=self._member, key=self._key, random=self._random
        )
        known = self._proved.get(session)
        if known is not None and known[0] != acceptor.opener:
            detail = "the session has proved to be another member"
            raise setup_error("not_a_member", operation="prove membership", detail=detail)
        self._challenged[session] = acceptor
        return acceptor.challenge

    def take_challenged(self, session: Session) -> Acceptor:
        """Returns what the session's proof answers; a second proof needs a new hello. ProtocolError: there
        was no hello."""
        acceptor = self._challenged.pop(session, None)
        if acceptor is None:
            raise setup_error("bad_envelope", operation="prove membership", detail="a proof without a hello")
        return acceptor

    def prove(self, session: Session, acceptor: Acceptor, proof: bytes) -> int | None:
        """Records the member if its proof is right by the present map, and returns the revision of its map.
        None: the map does not know the member, or has another key."""
        known = self._map().members.get(acceptor.opener)
        revision = acceptor.verify(proof, bytes.fromhex(known.key) if known is not None else b"")
        if revision is not None and known is not None:
            self._proved[session] = acceptor.opener, known.key
        return revision

    # Rights

    def member_of(self, session: Session) -> str | None:
        """Returns the id of the member that the session is now; None: it is none, or no longer."""
        id, key = self._proved.get(session, ("", ""))
        known = self._map().members.get(id)
        return id if known is not None and known.key == key else None

    def is_replica(self, session: Session) -> bool:
        """Whether the session is a member that the map lists as a replica of this node. Only such a session
        may follow the log: membership alone is not enough, because a replica gets all keys, and it follows
        only after the map has made it a replica. Any thread may call it."""
        member = self.member_of(session)
        return member is not None and self._map().replicas.get(member) == self._member

    def take_ended(self) -> list[Session]:
        """Removes the sessions whose rights have ended, and returns them."""
        found = [session for session in list(self._proved) if self.member_of(session) is None]
        for session in found:
            self._proved.pop(session, None)
        return found

    def refusal_of(self, session: Session, message: Envelope) -> Refusal | None:
        """Returns why this session may not send this message; None: it may."""
        member, rule = self.member_of(session), RULES[message.kind]
        name = message.kind.name
        if member is None:
            return Refusal(
                Cause.UNPROVED, f"{name}: the session has not proved to be a member of the cluster"
            )
        if message.source.hex() != member:
            why = "the message names a source that is not the member of this session"
            return Refusal(Cause.SOURCE, f"{name}: {why}")
        if not rule.allows(self._map(), self._member, member, message):
            return Refusal(Cause.RIGHT, f"{name} is for {rule.senders}")
        return None


class RefreshLimit:
    """Bounds how often peers without a valid proof make this node read the map store. Time is passed in."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}

    def allow(self, id: str, now: float) -> bool:
        """At most once per second for one id, and a few times per second in all."""
        self._asked = {one: at for one, at in self._asked.items() if now - at < REFRESH_EVERY_S}
        if id in self._asked or len(self._asked) >= _MAX_REFRESHES:
            return False
        self._asked[id] = now
        return True


class RefusalLog:
    """Counts refused messages, and says which ones to log: one per peer and minute."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged: dict[str, float] = {}

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, cause: str, peer: str, now: float, count: int = 1) -> bool:
        """Returns whether to log it."""
        self.counts[cause] += count
        if now - self._logged.get(peer, -LOG_EVERY_S) < LOG_EVERY_S:
            return False
        self._logged = {one: at for one, at in self._logged.items() if now - at < LOG_EVERY_S}
        if len(self._logged) >= _MAX_LOGGED:
            return False
        self._logged[peer] = now
        return True
