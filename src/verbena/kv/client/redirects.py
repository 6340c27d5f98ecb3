"""How a client finds its way in a cluster, without I/O: which node gets which command, and what follows from
the replies MOVED, ASK, TRYAGAIN and CLUSTERDOWN. Both forms of the client drive route()."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verbena.kv.commands.replies import CommandError
from verbena.shards.slots import SLOTS, slot_of

if TYPE_CHECKING:
    from verbena.kv.client.words import Command, Word

HOME = ""  # the node that the client was opened with
PAUSE_S = 0.02
PATIENCE_S = 10.0  # how long commands are repeated if the client has no timeout
_SIGNS = ("MOVED", "ASK", "CROSSSLOT", "TRYAGAIN", "CLUSTERDOWN")  # which only nodes of a cluster reply


@dataclass(frozen=True)
class Requests:
    """Run each list of commands at its node, given by its address for sessions, in one message each. The
    answer: their replies."""

    groups: Sequence[tuple[str, list[Command]]]


@dataclass(frozen=True)
class LoadMap:
    """Load the map of the cluster from a node. No answer."""


@dataclass(frozen=True)
class Pause:
    """Wait. No answer."""

    seconds: float


Step = Requests | LoadMap | Pause


def is_from_cluster(reply: Any) -> bool:
    """Whether the reply shows that its sender is a node of a cluster, and the command was not run."""
    return isinstance(reply, CommandError) and reply.text.split(" ", 1)[0] in _SIGNS


class SlotMap:
    """The nodes of a cluster by slot, and the counters of what was redirected."""

    def __init__(self) -> None:
        self._by_slot: list[str] = [HOME] * SLOTS
        self._sessions: dict[str, str] = {}  # addresses for sessions by addresses for clients
        self._key_at = {"GET": 1, "SET": 1, "DEL": 1, "MGET": 1, "MSET": 1, "INCRBY": 1}
        self.redirects = self.retries = 0
        self.is_stale = True

    @property
    def nodes(self) -> set[str]:
        """Their addresses for sessions."""
        return set(self._sessions.values())

    def load(self, shards: Any) -> None:
        """Takes the reply to CLUSTER SHARDS."""
        for shard in map(_dict, shards):
            nodes = [_dict(node) for node in shard[b"nodes"]]
            for node in nodes:
                sessions = node[b"sessions"].decode()
                self._sessions[f"{node[b'ip'].decode()}:{node[b'port']}"] = sessions
                if node[b"role"] == b"master":
                    slots = shard[b"slots"]
                    for first, last in zip(slots[::2], slots[1::2], strict=True):
                        self._by_slot[first : last + 1] = [sessions] * (last + 1 - first)
        self.is_stale = False

    def node_of(self, unit: Sequence[Command]) -> str:
        """The node for these commands, by the key of the first that is known to have one."""
        for command in unit:
            at = self._key_at.get(_word(command[0]).upper())
            if at is not None and at < len(command):
                return self._by_slot[slot_of(_key(command[at]))]
        return HOME

    def moved(self, unit: Sequence[Command], slot: int, client_address: str) -> bool:
        """Notes where a slot is. Learns from it which word of a command is its key. False: the node is not
        known."""
        for command in unit:
            for at, word in enumerate(command[1:], 1):
                if isinstance(word, (str, bytes)) and slot_of(_key(word)) == slot:
                    self._key_at.setdefault(_word(command[0]).upper(), at)
                    break
        node = self._sessions.get(client_address)
        if node is None:
            return False
        self._by_slot[slot] = node
        return True

    def session_of(self, client_address: str) -> str | None:
        return self._sessions.get(client_address)


def by_slot(keys: Iterable[str | bytes]) -> dict[int, list[int]]:
    """The indexes of the keys by slot: a command may have keys of one slot only."""
    slots: dict[int, list[int]] = {}
    for index, key in enumerate(keys):
        slots.setdefault(slot_of(_key(key)), []).append(index)
    return slots


def route(
    slots: SlotMap, commands: Sequence[Command], ends: float, first: list[Any] | None = None
) -> Generator[Step, Any, list[Any]]:
    """Runs commands in a cluster; returns their replies in order. A transaction goes to one node. Until the
    time `ends`, commands are repeated as the replies demand; then those replies are the result. `first`: the
    replies of the node that the client was opened with, if it has run them already."""
    units = _units(commands)
    replies: list[list[Any]] = [[] for _ in units]
    asked: dict[int, str] = {}  # the node that an ASK has named, by unit
    open_units = list(range(len(units)))
    rounds = 0
    while True:
        if slots.is_stale:
            yield LoadMap()
        groups: dict[str, list[int]] = {}
        for index in open_units:
            node = HOME if first is not None else asked.get(index) or slots.node_of(units[index])
            groups.setdefault(node, []).append(index)
        if first is not None:
            answers, first = [first], None
        else:
            answers = yield Requests(
                [
                    (node, [c for i in indexes for c in _with_asking(units[i], i in asked)])
                    for node, indexes in groups.items()
                ]
            )
        again: list[int] = []
        waits = False
        for indexes, answer in zip(groups.values(), answers, strict=True):
            at = 0
            for index in indexes:
                at += index in asked
                replies[index] = answer[at : at + len(units[index])]
                at += len(units[index])
        for index in sorted(open_units):
            asked.pop(index, None)
            error = next((one for one in replies[index] if is_from_cluster(one)), None)
            if error is None or error.text.startswith("CROSSSLOT"):
                continue
            again.append(index)
            waits |= not _follow(slots, units[index], error, index, asked)
        rounds += 1
        if not again or time.monotonic() >= ends:
            return [reply for unit in replies for reply in unit]
        if waits or rounds > 4:
            slots.is_stale = True
            yield Pause(min(PAUSE_S, max(0.0, ends - time.monotonic())))
        open_units = again


def _follow(
    slots: SlotMap, unit: Sequence[Command], error: CommandError, index: int, asked: dict[int, str]
) -> bool:
    """Notes what a reply says about the way of a unit. False: it must wait."""
    kind, *rest = error.text.split()
    if kind == "MOVED" and len(rest) >= 2:
        slots.redirects += 1
        if not slots.moved(unit, int(rest[0]), rest[1]):
            slots.is_stale = True
        return True
    if kind == "ASK" and len(rest) >= 2 and len(unit) == 1:
        node = slots.session_of(rest[1])
        if node is not None:
            slots.redirects += 1
            asked[index] = node
            return True
    slots.retries += 1
    return False


def _units(commands: Sequence[Command]) -> list[list[Command]]:
    """Commands that belong together: from MULTI to EXEC, else each alone."""
    units: list[list[Command]] = []
    inside = False
    for command in commands:
        name = _word(command[0]).upper()
        if inside:
            units[-1].append(command)
        else:
            units.append([command])
        inside = name == "MULTI" or (inside and name not in ("EXEC", "DISCARD"))
    return units


def _with_asking(unit: list[Command], asks: bool) -> list[Command]:
    return [["ASKING"], *unit] if asks else unit


def _word(word: Word) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)


def _key(word: Word) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def _dict(reply: Any) -> dict[bytes, Any]:
    """A map, which RESP2 sends as a flat list."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
