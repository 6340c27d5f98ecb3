"""Lets only members of the cluster send messages to this node: verifies their proofs, checks each message
against the present map, and counts and logs what is refused."""

from __future__ import annotations

import logging
import time

from verbena import transport
from verbena.errors import VerbenaError, setup_error
from verbena.kv.cluster import membership
from verbena.kv.cluster.member_rights import RULES, Cause, MemberRights, RefreshLimit, RefusalLog
from verbena.kv.cluster.member_sessions import OwnMember
from verbena.shards.envelope import Envelope

log = logging.getLogger("verbena.kv.cluster")
CODE = "not_a_member"


class MemberAuthorizer:
    """`node` accepts the sessions; the refusals appear in its metrics."""

    def __init__(self, own: OwnMember, *, node: transport.Node) -> None:
        self.rights = MemberRights(own.id, own.key, lambda: own.map.map)
        self.refusals = RefusalLog()
        self._map = own.map
        self._node = node
        self._refreshes = RefreshLimit()
        self._notices = 0

    async def prove(self, request: transport.Request) -> bytes:
        """Handles the messages of a proof. DeniedError or ProtocolError: refused."""
        session, data = request.session, bytes(request.payload)
        try:
            if membership.is_member_hello(data):
                return self.rights.challenge(session, data)
            revision = await self._verify(session, data)
        except VerbenaError as error:
            if error.code in (CODE, "bad_envelope"):
                self._refuse(Cause.UNPROVED, session, error.detail or error.what)
            raise
        if revision > self._map.revision:  # the opener acts on a newer map, which may give it a new role
            await self._map.refresh()
        return b""

    async def _verify(self, session: transport.Session, proof: bytes) -> int:
        acceptor = self.rights.take_challenged(session)
        revision = self.rights.prove(session, acceptor, proof)
        if revision is None and self._refreshes.allow(acceptor.opener, time.monotonic()):
            await self._map.refresh()  # the opener may have just joined
            revision = self.rights.prove(session, acceptor, proof)
        if revision is None:
            detail = "the peer does not hold the key that the cluster map has for the member that it names"
            raise setup_error(CODE, operation="prove membership", detail=detail)
        return revision

    async def refusal_of(self, session: transport.Session, message: Envelope) -> str:
        """Returns why this session may not send this message; empty: it may. VerbenaError: the map store does
        not answer."""
        refusal = self.rights.refusal_of(session, message)
        if refusal is not None and refusal.cause is Cause.RIGHT and RULES[message.kind].by_map:
            await self._map.refresh()  # the member may act on a newer map
            refusal = self.rights.refusal_of(session, message)
        if refusal is None:
            return ""
        self._refuse(refusal.cause, session, refusal.why)
        return refusal.why

    def count_notices(self, refused: int) -> None:
        """Counts and logs the notices of base copies that native code has refused; `refused`: so far."""
        new, self._notices = refused - self._notices, refused
        if new and self.refusals.add("notice", "", time.monotonic(), new):
            log.warning("%d notices of base copies were refused: their sessions have no windows here", new)
        for _ in range(new):
            self._node._totals.refuse(CODE)

    def _refuse(self, cause: Cause, session: transport.Session, why: str) -> None:
        self._node._totals.refuse(CODE)
        host = session.peer.rpartition(":")[0]
        if self.refusals.add(cause.value, host, time.monotonic()):
            log.warning("a cluster message of %s (%s) was refused: %s", session.peer, session.principal, why)
