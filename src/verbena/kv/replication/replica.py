"""A replica as its primary sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verbena import _native, transport

if TYPE_CHECKING:
    from verbena.kv.server.clients import Client


@dataclass(eq=False)
class Replica:
    """A replica that follows this server."""

    sender: _native.kv.ReplicationSender
    session: transport.Session
    host: str
    port: int
    position_region: transport.Region | None  # local memory into which the replica writes its position
    client: Client | None  # the stream whose user may follow; None: the session is a member's

    def close(self) -> None:
        """Waits for the sender's thread."""
        self.sender.close()
        if self.position_region is not None:
            self.position_region.close()

    @property
    def name(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def is_linked(self) -> bool:
        """Whether the session has a link. False: the replica's process has died or the network is down; the
        session may still reconnect."""
        return self.session.state is transport.SessionState.CONNECTED

    def state(self, counters: dict[str, Any]) -> str:
        if not self.is_linked:
            return "disconnected"
        return "send_bulk" if counters["copying"] else "online"
