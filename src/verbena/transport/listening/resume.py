"""Ends an accepted session whose client does not return after a lost link, or whose process has ended."""

from __future__ import annotations

import asyncio

from verbena.errors import setup_error
from verbena.transport import control
from verbena.transport.failover.peer_exit import ExitWatch
from verbena.transport.failover.policy import DRAIN_S
from verbena.transport.handshake.agreement import Agreement
from verbena.transport.handshake.link_token import AttemptGuard
from verbena.transport.session import Session


class ResumeSupervisor:
    """Supervises an accepted session: the client dials, and the session fails if it has no link for
    `resume_timeout_s`, or the client's process has ended. Then a link that is in use has DRAIN_S to deliver
    what it carries. Runs on the control thread."""

    def __init__(self, session: Session, agreement: Agreement) -> None:
        self.attempts = AttemptGuard()
        self._session = session
        self._resume_timeout_s = agreement.resume_timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._has_died = False
        self._exit_watch = ExitWatch(agreement.peer_process, agreement.peer_boot_epoch, self._on_peer_exit)
        self._start()

    def link_lost(self, wire: str, reason: str) -> None:
        self._start()

    def linked(self) -> None:
        if not self._has_died:
            self._stop_timer()

    def close(self) -> None:
        self._stop_timer()
        self._exit_watch.close()

    def _start(self) -> None:
        if self._has_died:
            self._give_up("peer_died", f"{self._session.peer_name} ended without closing the session")
            return
        self._stop_timer()
        loop = asyncio.get_running_loop()
        detail = f"the peer did not come back within {self._resume_timeout_s:g} s"
        self._timer = loop.call_later(self._resume_timeout_s, self._give_up, "resume_timeout", detail)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_peer_exit(self) -> None:
        self._has_died = True
        self._stop_timer()
        if self._session._link is None:
            self._start()
        else:
            self._timer = asyncio.get_running_loop().call_later(DRAIN_S, self._start)

    def _give_up(self, code: str, detail: str) -> None:
        self.close()
        error = setup_error(code, operation="keep the session", peer=self._session.peer, detail=detail)
        control.spawn(self._session._fail(error))
