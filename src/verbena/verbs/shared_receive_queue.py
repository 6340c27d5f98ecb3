"""Receive queues that several queue pairs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verbena import _native
from verbena._native import RecvWorkRequest
from verbena.verbs.resource import Resource

if TYPE_CHECKING:
    from verbena.verbs.protection_domain import ProtectionDomain


class SharedReceiveQueue(Resource):
    """A message for any of its queue pairs consumes the oldest receive."""

    __slots__ = ("_native", "pd")

    def __init__(self, pd: ProtectionDomain, native: _native.SharedReceiveQueue) -> None:
        super().__init__()
        self.pd = pd
        self._native = native

    def post_recv(self, *requests: RecvWorkRequest) -> None:
        """Posts receives in order. QueueFullError if there is no room for all; `accepted` is the number
        posted."""
        self._native.post_recv(requests)

    def _close_native(self) -> None:
        self._native.close()
