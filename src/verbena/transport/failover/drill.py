"""Failover drills: breaks links on purpose in a running system and reports how its sessions recover."""

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

MAX_REST_S = 3600.0
# Allowance for the return to the former wire: it is dialled when its back-off ends (1 s, doubled each time).
BACK_S = 30.0


@dataclass(frozen=True)
class DrillResult:
    """The result of a drill for one session. Times count from the break."""

    session: str
    peer: str
    peer_name: str
    before: str
    after: str | None = None  # the wire of the first new link
    resumed_s: float | None = None  # time to the first new link; None: there was none
    back_s: float | None = None  # time to the former wire or a better one; None: not back
    links: int = 0  # established since
    state: str = ""
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the session resumed and is back on its former wire or a better one."""
        return self.resumed_s is not None and self.back_s is not None

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "ok": self.ok}


@dataclass
class _Observer:
    session: Session
    before: str
    number: int  # number of the broken link
    order: tuple[str, ...]
    broken_at: float = 0.0
    after: str | None = None
    resumed_s: float | None = None
    back_s: float | None = None
    links: int = 0
    changed: Callable[[], object] = field(default=lambda: None)

    def on_state(self, state: LinkState) -> None:
        """Records new links. Called on the control thread."""
        link, at = self.session._link, time.monotonic() - self.broken_at
        # Compare the number: a fast peer establishes a new link before this end detects the loss.
        if state is LinkState.CONNECTED and link is not None and link.number != self.number:
            wire = link.wire.name
            self.links += 1
            if self.resumed_s is None:
                self.after, self.resumed_s = wire, at
            good = self.order.index(wire) <= self.order.index(self.before)
            self.back_s = at if good and self.back_s is None else self.back_s if good else None
        self.changed()

    @property
    def is_finished(self) -> bool:
        ended = self.session.closed or self.session.state is LinkState.FAILED
        return ended or (self.back_s is not None and self.session.state is LinkState.CONNECTED)

    def result(self) -> DrillResult:
        session = self.session
        return DrillResult(
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
) -> list[DrillResult]:
    """Breaks the links of the `sessions` that are on `wire` (None: on any). For `rest_s` the node does not
    use these wires. Returns a result for each when all are back or have ended, or after `wait_s`."""
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    order = node.settings.wires
    observers = [
        _Observer(
            session,
            link.wire.name,
            link.number,
            order,
            changed=lambda: loop.call_soon_threadsafe(changed.set),
        )
        for session in sessions
        if (link := session._link) is not None and wire in (None, link.wire.name)
    ]
    names = sorted({observer.before for observer in observers})
    if not observers:
        return []
    log.event("drill", node=node.name, wires=" ".join(names), sessions=len(observers), rest_s=rest_s)
    for name in names if rest_s else ():
        node._rest_wire(name, rest_s)
    for observer in observers:
        observer.session._watchers.add(observer.on_state)
        observer.broken_at = time.monotonic()
        observer.session.break_link()
    timeout_s = wait_s if wait_s is not None else rest_s + node.settings.resume_timeout_s + BACK_S
    deadline = time.monotonic() + timeout_s
    try:
        while not all(observer.is_finished for observer in observers) and time.monotonic() < deadline:
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), min(0.5, max(0.0, deadline - time.monotonic())))
            except (asyncio.TimeoutError, TimeoutError):
                continue
    finally:
        for observer in observers:
            observer.session._watchers.discard(observer.on_state)
    return [observer.result() for observer in observers]


async def drill_for(
    node: Node, requester: Session, *, wire: str | None, rest_s: float, only: str | None
) -> list[DrillResult]:
    """Runs a drill that a peer requested, on all sessions but its own, or on the session `only`.
    PermissionError if drills are not allowed or the peer is not authenticated; ValueError if a name is
    unknown."""
    if not node.settings.allow_drill:
        raise PermissionError(
            f"node {node.name} does not allow drills: set allow_drill = true in [session] there"
        )
    if not (node.settings.secret or requester.peer_identity):
        raise PermissionError(
            f"node {node.name} cannot authenticate the peer: configure a secret or certificates"
        )
    if wire is not None and wire not in node.wires.names:
        raise ValueError(f"node {node.name} has no wire {wire}: it has {', '.join(node.wires.names)}")
    chosen = [session for session in node.sessions if session is not requester and only is None]
    if only is not None:
        chosen = [session for session in node.sessions if f"{session.id:x}" == only]
        if not chosen:
            raise ValueError(f"node {node.name} has no session {only}")
    return await drill(node, chosen, wire=wire, rest_s=rest_s)
