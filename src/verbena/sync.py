"""The blocking form of sessions, for threads without an event loop: connect(), listen(), Session, Listener.
The operations have the names and parameters of the asyncio form. May depend on verbena.transport only."""

from verbena.transport.blocking.listener import Listener
from verbena.transport.blocking.opening import connect, listen
from verbena.transport.blocking.session import Session

__all__ = ["Listener", "Session", "connect", "listen"]
