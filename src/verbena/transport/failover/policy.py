"""When a link breaks: which wire to dial, when, and when to give up.
A pure state machine, events and `now` in, one action out: it never dials, waits or reads a clock.

A lost wire is dialled again at once, then `connection_retries` times, `retry_delay_ms` apart; then it rests,
and the best wire that does not rest is next. Rests last 1 s, then twice as long each time, 60 s at most, and
begin anew once a link has held. While all wires rest the peer is probed; then they are dialled again, in
turn, until `resume_timeout_s` is over. A wire that breaks soon after connecting, twice in a row, rests too,
or waits for `retry_delay_ms` if there is no other. On a lesser wire the better ones are dialled in the
background when they have rested. The program's own errors cost a wire nothing."""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FIRST_REST_S = 1.0
LONGEST_REST_S = 60.0
FLAP_S = 5.0
HISTORY = 64

# Statuses that a request brings upon itself: the wire did its work.
OWN_ERRORS = frozenset(
    {
        "drill",  # broken on purpose
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
# Reasons that dialling the same wire again cannot cure.
HOPELESS = frozenset(
    {"no_device", "port_down", "provider_missing", "session_unknown", "unsupported_provider"}
)


class LinkState(enum.Enum):
    """Where a session stands."""

    UNAVAILABLE = "unavailable"  # every wire was tried in vain, and rests
    DISCONNECTED = "disconnected"  # between links
    CONNECTED = "connected"
    FAILED = "failed"


@dataclass(frozen=True)
class Dial:
    """Dial the wire, and report connected() or dial_failed(); tick() at `until`. In the background: without
    haste, and the present link goes on until the new one has taken over."""

    wire: str
    until: float
    background: bool = False


@dataclass(frozen=True)
class Probe:
    """Ask the peer for its boot epoch by a hello, and report probed(); tick() at `until`."""

    until: float


@dataclass(frozen=True)
class Wait:
    """Nothing to do but to report what happens, and tick() at `until`, which may be infinite."""

    until: float


@dataclass(frozen=True)
class GiveUp:
    """The session has failed, or was closed: `reason` is an error code. Stop what is under way."""

    reason: str


Action = Dial | Probe | Wait | GiveUp


@dataclass(frozen=True)
class Happening:
    """A line of the history."""

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
    quick_breaks: int = 0  # in a row
    pause_s: float = 0.0  # before it is dialled again at once
    # In this outage:
    turns: int = 0
    unknown: bool = False  # the peer said there that it does not know the session


class Failover:
    """One session's policy, at the end that dials. `wires` are best first; one `demanded` is never replaced.
    `jitter` gives numbers from 0 to 1, and spreads rests so that many clients do not dial at once.

    Call start() once, then report every event; each call returns the one thing to do now."""

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
        longest_rest_s: float = LONGEST_REST_S,
        flap_s: float = FLAP_S,
    ) -> None:
        self._wires = [_Wire(name, first_rest_s) for name in wires if demanded in (None, name)]
        self._peer_boot_epoch = peer_boot_epoch
        self._retries, self._retry_delay_s = connection_retries, retry_delay_ms / 1000
        self._resume_timeout_s, self._jitter = resume_timeout_s, jitter
        self._first_rest_s, self._longest_rest_s, self._flap_s = first_rest_s, longest_rest_s, flap_s

        self.state = LinkState.DISCONNECTED if self._wires else LinkState.UNAVAILABLE
        self.wire: str | None = None  # that carries the session now
        self.history: deque[Happening] = deque(maxlen=HISTORY)
        self._gave_up: GiveUp | None = None
        self._connected_at = -math.inf
        self._dialling: _Wire | None = None
        self._probing = False
        # Of this outage:
        self._since, self._limit_s, self._deadline = -math.inf, resume_timeout_s, math.inf
        self._turn: _Wire | None = None  # the wire that is dialled until its retries are used up
        self._turn_since, self._failures, self._not_before = 0.0, 0, -math.inf
        self._probed = False  # since the last dial

    def start(self, now: float, *, timeout_s: float | None = None) -> Action:
        """Begin with the best wire. `timeout_s` limits the first connection; else resume_timeout_s does."""
        if not self._wires:
            return self._give_up("no_common_wire", now)
        limit_s = self._resume_timeout_s if timeout_s is None else timeout_s
        return self._begin_outage(self._wires[0], now, limit_s)

    def connected(self, wire: str, now: float) -> Action:
        """The dial of `wire` succeeded, and it carries the session now."""
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
        """The dial of `wire` failed, with an error code. After session_unknown the peer is probed."""
        if self._gave_up:
            return self._gave_up
        dialled = self._end_dial(wire)
        self._note(now, wire, "dial failed", reason)
        dialled.unknown = reason == "session_unknown"
        if dialled is self._turn and reason not in HOPELESS and self._may_retry(now):
            self._failures += 1
            self._not_before = now + self._retry_delay_s
        else:
            self._rest(dialled, now)
        connected = self.state is LinkState.CONNECTED
        if dialled.unknown and not connected and now < self._deadline:
            return self._probe()
        return self._next(now)

    def link_lost(self, wire: str, reason: str, now: float) -> Action:
        """The link on `wire` broke, by a status or an error code. Late news of a former link is ignored."""
        if self._gave_up:
            return self._gave_up
        if wire != self.wire:
            return self._next(now)
        self._note(now, wire, "broke", reason)
        lost, self.wire = self._find(wire), None
        if reason not in OWN_ERRORS:
            self._judge(lost, now)
        return self._begin_outage(lost, now, self._resume_timeout_s)

    def probed(self, boot_epoch: int | None, now: float) -> Action:
        """The probe's answer; None if there was none."""
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

    def tick(self, now: float) -> Action:
        """Time has passed."""
        return self._gave_up or self._next(now)

    def close(self, now: float) -> Action:
        """The program closes the session."""
        return self._gave_up or self._give_up("closed", now)

    def story(self) -> str:
        """What was tried in this outage, why it failed and when, in one line for an error's detail."""
        lines: list[str] = []
        times = 0
        recent = [happening for happening in self.history if happening.at >= self._since]
        for index, happening in enumerate(recent):
            times += 1
            if index + 1 < len(recent) and str(recent[index + 1]) == str(happening):
                continue
            often = f" ×{times}" if times > 1 else ""
            lines.append(f"{happening}{often} at {max(0.0, happening.at - self._since):.1f} s")
            times = 0
        return "; ".join(["…"] * (len(lines) > 12) + lines[-12:])

    def __repr__(self) -> str:
        names = ", ".join(wire.name for wire in self._wires)
        return f"Failover({self.state.value}, wire={self.wire!r}, wires=[{names}], {self.story()!r})"

    # What to do

    def _next(self, now: float) -> Action:
        if self.state is LinkState.CONNECTED:
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
            return self._dial(self._turn, self._deadline)
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

    # What is known of the wires

    def _begin_outage(self, first: _Wire, now: float, limit_s: float) -> Action:
        self.state = LinkState.DISCONNECTED
        self._since, self._limit_s, self._deadline = now, limit_s, now + limit_s
        self._probed = False
        for wire in self._wires:
            wire.turns, wire.unknown = 0, False
            # A long rest was meant for when there is another link: now each must have its chance in time.
            wire.ready_at = min(wire.ready_at, now + limit_s / 4)
        self._begin_turn(self._ready([first], now), now)
        if self._turn:
            self._not_before = now + min(first.pause_s, limit_s / 4)
        first.pause_s = 0.0
        return self._next(now)

    def _begin_turn(self, wire: _Wire | None, now: float) -> None:
        self._turn, self._turn_since = wire, now
        self._failures, self._not_before = 0, -math.inf

    def _may_retry(self, now: float) -> bool:
        # Nor may a wire use up the others' share of the time, by long pauses or by slow dials.
        share_s = self._limit_s / len(self._wires)
        return self._failures < self._retries and now + self._retry_delay_s < self._turn_since + share_s

    def _judge(self, lost: _Wire, now: float) -> None:
        if now - self._connected_at >= self._flap_s:
            lost.rest_s, lost.quick_breaks = self._first_rest_s, 0
            return
        lost.quick_breaks += 1
        if lost.quick_breaks > 1:
            others = [wire for wire in self._wires if wire is not lost]
            if self._ready(others, now):
                self._rest(lost, now)
            else:  # alone it is better than nothing, but not in a tight loop
                lost.pause_s = self._retry_delay_s

    def _rest(self, wire: _Wire, now: float) -> None:
        rest_s = self._spread(wire.rest_s)
        if self.state is not LinkState.CONNECTED:
            rest_s = min(rest_s, self._limit_s / 4)
        wire.turns += 1
        wire.ready_at = now + rest_s
        wire.rest_s = min(2 * wire.rest_s, self._longest_rest_s)
        if wire is self._turn:
            self._turn = None

    def _spread(self, rest_s: float) -> float:
        return min(rest_s * (0.75 + 0.5 * self._jitter()), self._longest_rest_s)

    def _ready(self, wires: Sequence[_Wire], now: float) -> _Wire | None:
        # By turns: where dials fail slowly, the first wires have rested before the last has been tried.
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
        self.history.append(Happening(at, wire, what, reason))
