"""Breaking links on purpose in a running system, and watching how its sessions get over it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verbena.transport.failover.policy import LinkState
from verbena.transport.observe import log

if TYPE_CHECKING:
    from verbena.transport.node import Node
    from verbena.transport.session import Session

LONGEST_REST_S = 3600.0
# After the rest a better wire is dialled again when its back-off ends: 1 s, then twice as long each time.
BACK_S = 30.0


@dataclass(frozen=True)
class Drilled:
    """How one session fared. Times count from the break."""

    session: str
    peer: str
    peer_name: str
    before: str
    after: str | None = None  # the wire on which it went on
    resumed_s: float | None = None  # None: it did not
    back_s: float | None = None  # when it was on the former wire, or a better one, again
    links: int = 0  # made since
    state: str = ""
    reason: str = ""

    @property
    def ok(self) -> bool:
        """It went on, and is back where it was."""
        return self.resumed_s is not None and self.back_s is not None

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "ok": self.ok}


@dataclass
class _Watched:
    session: Session
    before: str
    number: int  # of the link that is broken
    order: tuple[str, ...]
    broken_at: float = 0.0
    after: str | None = None
    resumed_s: float | None = None
    back_s: float | None = None
    links: int = 0
    changed: Callable[[], object] = field(default=lambda: None)

    def on_state(self, state: LinkState) -> None:
        """On the control thread."""
        link, at = self.session._link, time.monotonic() - self.broken_at
        # By its number: a peer that is quick dials anew before this end has noticed the loss.
        if state is LinkState.CONNECTED and link is not None and link.number != self.number:
            wire = link.wire.name
            self.links += 1
            if self.resumed_s is None:
                self.after, self.resumed_s = wire, at
            good = self.order.index(wire) <= self.order.index(self.before)
            self.back_s = at if good and self.back_s is None else self.back_s if good else None
        self.changed()

    @property
    def over(self) -> bool:
        ended = self.session.closed or self.session.state is LinkState.FAILED
        return ended or (self.back_s is not None and self.session.state is LinkState.CONNECTED)

    def result(self) -> Drilled:
        session = self.session
        return Drilled(
            session=f"{session.id:x}",
            peer=session.peer,
            peer_name=session.peer_name,
            before=self.before,
            after=self.after,
            resumed_s=self.resumed_s,
            back_s=self.back_s,
            links=self.links,
            state="closed" if session.closed else session.state.value,
            reason=session.reason,
        )


async def drill(
    node: Node, sessions: Iterable[Session], *, wire: str | None, rest_s: float, wait_s: float | None = None
) -> list[Drilled]:
    """Breaks the links of those sessions that are on `wire` (None: whatever each is on). For `rest_s` the
    node does not use the wires again. Returns when all are back where they were, or after `wait_s`."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    order = node.settings.wires
    watched = [
        _Watched(
            session,
            link.wire.name,
            link.number,
            order,
            changed=lambda: loop.call_soon_threadsafe(changed.set),
        )
        for session in sessions
        if (link := session._link) is not None and wire in (None, link.wire.name)
    ]
    names = sorted({one.before for one in watched})
    if not watched:
        return []
    log.event("drill", node=node.name, wires=" ".join(names), sessions=len(watched), rest_s=rest_s)
    for name in names if rest_s else ():
        node._rest_wire(name, rest_s)
    for one in watched:
        one.session._watchers.add(one.on_state)
        one.broken_at = time.monotonic()
        one.session.break_link()
    patience_s = wait_s if wait_s is not None else rest_s + node.settings.resume_timeout_s + BACK_S
    deadline = time.monotonic() + patience_s
    try:
        while not all(one.over for one in watched) and time.monotonic() < deadline:
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), min(0.5, max(0.0, deadline - time.monotonic())))
            except (asyncio.TimeoutError, TimeoutError):
                continue
    finally:
        for one in watched:
            one.session._watchers.discard(one.on_state)
    return [one.result() for one in watched]


async def drill_for(
    node: Node, asker: Session, *, wire: str | None, rest_s: float, only: str | None
) -> list[Drilled]:
    """For a peer, if it may. Its own session is spared, unless it is named."""
    if not node.settings.allow_drill:
        raise PermissionError(
            f"node {node.name} does not allow drills: set allow_drill = true in [session] there"
        )
    if not (node.settings.secret or asker.peer_identity):
        raise PermissionError(f"node {node.name} does not know who asks: give it a secret, or certificates")
    if wire is not None and wire not in node.wires.names:
        raise ValueError(f"node {node.name} has no wire {wire}: it has {', '.join(node.wires.names)}")
    chosen = [session for session in node.sessions if session is not asker and only is None]
    if only is not None:
        chosen = [session for session in node.sessions if f"{session.id:x}" == only]
        if not chosen:
            raise ValueError(f"node {node.name} has no session {only}")
    return await drill(node, chosen, wire=wire, rest_s=rest_s)
