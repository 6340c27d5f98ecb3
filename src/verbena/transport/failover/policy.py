"""The failover policy: decides after a link breaks which wire to dial and when, and when the session fails.
A pure state machine: each event, with the time `now`, returns one action. It never dials, waits or reads
a clock. The rules are in the comment below."""

# - A lost wire is dialled again at once, then up to `connection_retries` times, `retry_delay_ms` apart. Then
#   it rests, and the best wire that does not rest is next.
# - As long as another wire has not been tried in this outage, a wire is dialled for at most `turn_s`, also if
#   the dial has neither failed nor succeeded: a network that loses everything must not delay the fallback.
# - A rest lasts 1 s, doubled each time up to 60 s, and in an outage at most a quarter of the time limit. It
#   is 1 s again after a link has held for `flap_s`.
# - While all wires rest, the peer is probed. Then they are dialled again in turn until `resume_timeout_s`.
# - A wire that breaks within `flap_s` of connecting, twice in a row, rests too; if no other wire is ready, it
#   is dialled after `retry_delay_ms` instead.
# - While a worse wire is in use, better ones are dialled in the background after their rest.
# - Errors that the program caused (OWN_ERRORS) do not count against a wire.
# - When the peer's process has ended, the session fails: between links at once, otherwise when the link
#   breaks, which is after everything that it carried was received, and at the latest after `drain_s`.

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FIRST_REST_S = 1.0
MAX_REST_S = 60.0
FLAP_S = 5.0
TURN_S = 1.5  # how docs/guide/sessions.md derives it: a fallback within 5 s of the loss
DRAIN_S = 0.05  # to receive what a dead peer has sent; a node whose loop is busy polls every 20 ms
HISTORY = 64

# Statuses that the request caused itself: the wire works.
OWN_ERRORS = frozenset(
    {
        "drill",  # broken on purpose by Node.drill()
        "LOC_ACCESS_ERR",
        "LOC_LEN_ERR",
        "LOC_PROT_ERR",
        "LOC_QP_OP_ERR",
        "MW_BIND_ERR",
        "REM_ACCESS_ERR",
        "REM_INV_REQ_ERR",
        "REM_OP_ERR",
    }
)
# Reasons for which dialling the same wire again cannot succeed.
PERMANENT_ERRORS = frozenset(
    {"no_device", "port_down", "provider_missing", "session_unknown", "unsupported_provider"}
)


class LinkState(enum.Enum):
    """The state of a session's link."""

    UNAVAILABLE = "unavailable"  # every wire was tried, failed and rests
    DISCONNECTED = "disconnected"  # between links
    CONNECTED = "connected"
    FAILED = "failed"


@dataclass(frozen=True)
class Dial:
    """Dial the wire until `until`, then report connected() or dial_failed(); connect_timeout at `until`.
    `background`: the current link stays in use until the new one replaces it."""

    wire: str
    until: float
    background: bool = False


@dataclass(frozen=True)
class Probe:
    """Request the peer's boot epoch by a handshake, then report probed(); call tick() at `until`."""

    until: float


@dataclass(frozen=True)
class Wait:
    """Report the next event, and call tick() at `until`, which may be infinite."""

    until: float


@dataclass(frozen=True)
class GiveUp:
    """The session has failed or was closed; `reason` is an error code. Cancel dials and probes."""

    reason: str


Action = Dial | Probe | Wait | GiveUp


@dataclass(frozen=True)
class HistoryEntry:
    """One entry of the history."""

    at: float
    wire: str
    what: str
    reason: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.wire, self.what, f"({self.reason})" if self.reason else "")))


@dataclass
class _Wire:
    name: str
    rest_s: float
    ready_at: float = -math.inf
    quick_breaks: int = 0  # consecutive breaks within `flap_s` of connecting
    pause_s: float = 0.0  # before the first dial of the next outage
    # In this outage:
    turns: int = 0
    unknown: bool = False  # the last dial ended with session_unknown


class Failover:
    """The policy of one session, on the dialling side. `wires` are best first; with `demanded` only that wire
    is used. `jitter` returns numbers from 0 to 1 that vary rests, so that clients do not dial in step.
    Call start() once, then report every event; each call returns the action to take."""

    def __init__(
        self,
        wires: Sequence[str],
        *,
        peer_boot_epoch: int,
        connection_retries: int,
        retry_delay_ms: float,
        resume_timeout_s: float,
        jitter: Callable[[], float],
        demanded: str | None = None,
        first_rest_s: float = FIRST_REST_S,
        max_rest_s: float = MAX_REST_S,
        flap_s: float = FLAP_S,
        turn_s: float = TURN_S,
        drain_s: float = DRAIN_S,
    ) -> None:
        self._wires = [_Wire(name, first_rest_s) for name in wires if demanded in (None, name)]
        self._peer_boot_epoch = peer_boot_epoch
        self._retries, self._retry_delay_s = connection_retries, retry_delay_ms / 1000
        self._resume_timeout_s, self._jitter = resume_timeout_s, jitter
        self._first_rest_s, self._max_rest_s, self._flap_s = first_rest_s, max_rest_s, flap_s
        self._turn_s, self._drain_s = turn_s, drain_s

        self.state = LinkState.DISCONNECTED if self._wires else LinkState.UNAVAILABLE
        self.wire: str | None = None  # of the current link
        self.history: deque[HistoryEntry] = deque(maxlen=HISTORY)
        self._gave_up: GiveUp | None = None
        self._connected_at = -math.inf
        self._drained_at: float | None = None  # set when the peer's process has ended
        self._dialling: _Wire | None = None
        self._probing = False
        # Of this outage:
        self._since, self._limit_s, self._deadline = -math.inf, resume_timeout_s, math.inf
        self._turn: _Wire | None = None  # the wire that is dialled until its retries are used up
        self._turn_since, self._failures, self._not_before = 0.0, 0, -math.inf
        self._probed = False  # whether the peer was probed since the last dial

    def start(self, now: float, *, timeout_s: float | None = None) -> Action:
        """Starts with the best wire. `timeout_s` limits the first connection (None: resume_timeout_s).
        GiveUp if there is no wire."""
        if not self._wires:
            return self._give_up("no_common_wire", now)
        limit_s = self._resume_timeout_s if timeout_s is None else timeout_s
        return self._begin_outage(self._wires[0], now, limit_s)

    def connected(self, wire: str, now: float) -> Action:
        """Reports that the dial of `wire` succeeded and its link is in use. ValueError if it was not
        dialled."""
        if self._gave_up:
            return self._gave_up
        self._end_dial(wire)
        self._note(now, wire, "connected")
        self.state, self.wire, self._connected_at = LinkState.CONNECTED, wire, now
        self._deadline, self._turn = math.inf, None
        for better in self._better():
            better.ready_at = max(better.ready_at, now + self._spread(better.rest_s))
        return self._next(now)

    def dial_failed(self, wire: str, reason: str, now: float) -> Action:
        """Reports that the dial of `wire` failed with the error code `reason`. After session_unknown the peer
        is probed. ValueError if `wire` was not dialled."""
        if self._gave_up:
            return self._gave_up
        dialled = self._end_dial(wire)
        self._note(now, wire, "dial failed", reason)
        dialled.unknown = reason == "session_unknown"
        if dialled is self._turn and reason not in PERMANENT_ERRORS and self._may_retry(now):
            self._failures += 1
            self._not_before = now + self._retry_delay_s
        else:
            self._rest(dialled, now)
        connected = self.state is LinkState.CONNECTED
        if dialled.unknown and not connected and now < self._deadline:
            return self._probe()
        return self._next(now)

    def link_lost(self, wire: str, reason: str, now: float) -> Action:
        """Reports that the link on `wire` broke; `reason` is a status or an error code. Ignored if `wire` is
        not that of the current link."""
        if self._gave_up:
            return self._gave_up
        if wire != self.wire:
            return self._next(now)
        self._note(now, wire, "broke", reason)
        lost, self.wire = self._find(wire), None
        if reason not in OWN_ERRORS:
            self._count_break(lost, now)
        return self._begin_outage(lost, now, self._resume_timeout_s)

    def probed(self, boot_epoch: int | None, now: float) -> Action:
        """Reports the peer's boot epoch, or None without a response. GiveUp if the peer has restarted or
        every wire ended with session_unknown. ValueError if no probe was requested."""
        if self._gave_up:
            return self._gave_up
        if not self._probing:
            raise ValueError("no probe is under way")
        self._probing, self._probed = False, True
        self._note(now, "", "the peer runs" if boot_epoch is not None else "the peer did not answer a probe")
        if boot_epoch not in (None, self._peer_boot_epoch):
            return self._give_up("peer_restarted", now)
        if boot_epoch is not None and all(wire.unknown for wire in self._wires):
            return self._give_up("session_unknown", now)
        return self._next(now)

    def peer_died(self, now: float) -> Action:
        """Reports that the peer's process has ended. GiveUp, at once unless a link is in use."""
        if self._gave_up:
            return self._gave_up
        if self._drained_at is None:
            self._note(now, "", "the peer's process ended")
            self._drained_at = now + self._drain_s
        return self._next(now)

    def tick(self, now: float) -> Action:
        """Reports that the time of the last action has come."""
        return self._gave_up or self._next(now)

    def close(self, now: float) -> Action:
        """Reports that the program closes the session."""
        return self._gave_up or self._give_up("closed", now)

    def describe_history(self) -> str:
        """Returns the events of this outage with reasons and times, in one line for an error's detail.
        Repeated events are counted; only the last 12 are shown."""
        lines: list[str] = []
        times = 0
        recent = [entry for entry in self.history if entry.at >= self._since]
        for index, entry in enumerate(recent):
            times += 1
            if index + 1 < len(recent) and str(recent[index + 1]) == str(entry):
                continue
            repeats = f" ×{times}" if times > 1 else ""
            lines.append(f"{entry}{repeats} at {max(0.0, entry.at - self._since):.1f} s")
            times = 0
        return "; ".join(["…"] * (len(lines) > 12) + lines[-12:])

    def __repr__(self) -> str:
        names = ", ".join(wire.name for wire in self._wires)
        return (
            f"Failover({self.state.value}, wire={self.wire!r}, wires=[{names}], {self.describe_history()!r})"
        )

    # Actions

    def _next(self, now: float) -> Action:
        connected = self.state is LinkState.CONNECTED
        if self._drained_at is not None:
            if connected and now < self._drained_at:
                return Wait(self._drained_at)
            return self._give_up("peer_died", now)
        if connected:
            return self._next_better(now)
        if now >= self._deadline:
            return self._give_up("resume_timeout", now)
        if self._dialling or self._probing:
            return Wait(self._deadline)
        if self._turn is None:
            self._begin_turn(self._ready(self._wires, now), now)
        if self._turn is not None:
            if now < self._not_before:
                return Wait(min(self._not_before, self._deadline))
            return self._dial(self._turn, min(self._deadline, self._turn_end()))
        self.state = LinkState.UNAVAILABLE
        if not self._probed:
            return self._probe()
        return Wait(min(self._deadline, *(wire.ready_at for wire in self._wires)))

    def _next_better(self, now: float) -> Action:
        if self._dialling:
            return Wait(math.inf)
        better = self._better()
        if ready := self._ready(better, now):
            return self._dial(ready, math.inf, background=True)
        return Wait(min((wire.ready_at for wire in better), default=math.inf))

    def _dial(self, wire: _Wire, until: float, *, background: bool = False) -> Dial:
        self._dialling, self._probed = wire, False
        return Dial(wire.name, until, background)

    def _probe(self) -> Probe:
        self._probing = True
        return Probe(self._deadline)

    def _give_up(self, reason: str, now: float) -> GiveUp:
        self._note(now, "", "gave up", reason)
        self.state, self.wire = LinkState.FAILED, None
        self._dialling, self._probing = None, False
        self._gave_up = GiveUp(reason)
        return self._gave_up

    # State of the wires

    def _begin_outage(self, first: _Wire, now: float, limit_s: float) -> Action:
        self.state = LinkState.DISCONNECTED
        self._since, self._limit_s, self._deadline = now, limit_s, now + limit_s
        self._probed = False
        for wire in self._wires:
            wire.turns, wire.unknown = 0, False
            # Long rests assume that another link works; in an outage every wire must be tried in time.
            wire.ready_at = min(wire.ready_at, now + limit_s / 4)
        self._begin_turn(self._ready([first], now), now)
        if self._turn:
            self._turn_since = self._not_before = now + min(first.pause_s, limit_s / 4)
        first.pause_s = 0.0
        return self._next(now)

    def _begin_turn(self, wire: _Wire | None, now: float) -> None:
        self._turn, self._turn_since = wire, now
        self._failures, self._not_before = 0, -math.inf

    def _may_retry(self, now: float) -> bool:
        # The time limit is shared by all wires, also if delays are long or dials slow.
        end = min(self._turn_since + self._limit_s / len(self._wires), self._turn_end())
        return self._failures < self._retries and now + self._retry_delay_s < end

    def _turn_end(self) -> float:
        """When the next wire is to be dialled although this one may still succeed."""
        others = (wire for wire in self._wires if wire is not self._turn and not wire.turns)
        end = self._turn_since + self._turn_s
        return end if any(wire.ready_at <= end for wire in others) else math.inf

    def _count_break(self, lost: _Wire, now: float) -> None:
        if now - self._connected_at >= self._flap_s:
            lost.rest_s, lost.quick_breaks = self._first_rest_s, 0
            return
        lost.quick_breaks += 1
        if lost.quick_breaks > 1:
            others = [wire for wire in self._wires if wire is not lost]
            if self._ready(others, now):
                self._rest(lost, now)
            else:  # the only usable wire: dial it, but not in a tight loop
                lost.pause_s = self._retry_delay_s

    def _rest(self, wire: _Wire, now: float) -> None:
        rest_s = self._spread(wire.rest_s)
        if self.state is not LinkState.CONNECTED:
            rest_s = min(rest_s, self._limit_s / 4)
        wire.turns += 1
        wire.ready_at = now + rest_s
        wire.rest_s = min(2 * wire.rest_s, self._max_rest_s)
        if wire is self._turn:
            self._turn = None

    def _spread(self, rest_s: float) -> float:
        return min(rest_s * (0.75 + 0.5 * self._jitter()), self._max_rest_s)

    def _ready(self, wires: Sequence[_Wire], now: float) -> _Wire | None:
        # Fewest turns first: if dials fail slowly, the first wires are ready again before the last is tried.
        rested = (wire for wire in wires if wire.ready_at <= now)
        return min(rested, key=lambda wire: wire.turns, default=None)

    def _better(self) -> list[_Wire]:
        names = [wire.name for wire in self._wires]
        return self._wires[: names.index(self.wire)] if self.wire else []

    def _find(self, name: str) -> _Wire:
        return next(wire for wire in self._wires if wire.name == name)

    def _end_dial(self, name: str) -> _Wire:
        if self._dialling is None or self._dialling.name != name:
            raise ValueError(f"no dial of {name!r} is under way")
        dialled, self._dialling = self._dialling, None
        return dialled

    def _note(self, at: float, wire: str, what: str, reason: str = "") -> None:
        self.history.append(HistoryEntry(at, wire, what, reason))
