"""Checks the slots of a command before Python runs it, with the engine's table of owners, which the engine
also uses for native commands."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from verbena.kv.commands.declare import Command, find
from verbena.kv.commands.replies import NO_REPLY, CommandError, Reply
from verbena.kv.server.held_commands import HeldCommands
from verbena.shards.cluster_map import ClusterMap
from verbena.shards.slots import SLOTS

if TYPE_CHECKING:
    from verbena import _native
    from verbena.kv.server.blocked_clients import Blocking
    from verbena.kv.server.clients import Client

_NO_OWNER = 0xFFFF
_KEEP_ASKING_FLAG = frozenset({"ASKING", "MULTI"})


class SlotGuard:
    """Redirects commands on other nodes' slots, and holds back those on slots that are changing owner.
    `run(client, argv)` runs a command that waited; `reject` counts a command that is refused."""

    def __init__(
        self,
        member: str,
        *,
        engine: _native.kv.Engine,
        blocking: Blocking,
        run: Callable[[int, list[bytes]], None],
        reject: Callable[[Client, Command, CommandError], CommandError],
    ) -> None:
        self._member = member
        self._engine = engine
        self._blocking = blocking
        self._reject = reject
        self._held = HeldCommands(run)
        self._indexes = {member: 0}  # of members in the engine's table; an index is never reused
        self._addresses = [""]
        self._map = ClusterMap()
        self._suspended: set[int] = set()
        self.open_slots: dict[int, tuple[str, str]] = {}  # SETSLOT: ("migrating" | "importing", other member)
        engine.join_cluster()

    def check(self, client: Client, command: Command, argv: list[bytes]) -> Reply | None:
        """Returns None if the command may run here, else its reply, or NO_REPLY if it waits."""
        if command.name == "EXEC":
            rows = [(find(queued), queued) for queued in client.queue or ()]
            keys = [key for row, queued in rows if row is not None for key in keys_of(row, queued)]
            writes = any(row is not None and row.is_write for row, _ in rows)
        else:
            keys, writes = keys_of(command, argv), command.is_write
        verdict = self._engine.check_slot(client.id, keys, writes) if keys else None
        if verdict == "":
            self._held.hold(client, argv)
            return NO_REPLY
        if command.name not in _KEEP_ASKING_FLAG:
            client.native.asking = False
        if verdict is None:
            return None
        if command.name == "EXEC" and client.queue is not None:
            client.forget_transaction()
            self._engine.unwatch(client.id)
            client.update_dispatch()
        return self._reject(client, command, CommandError(verdict))

    def update(self, map: ClusterMap) -> None:
        """Writes the map's owners into the engine's table. Waiting commands are checked again."""
        for id, member in map.members.items():
            if id not in self._indexes:
                self._indexes[id] = len(self._addresses)
                self._addresses.append(member.address)
            elif id != self._member:
                self._addresses[self._indexes[id]] = member.address
        self._map = map
        owners = array("H", [_NO_OWNER]) * SLOTS
        for slots, id in map.owners:
            owners[slots.first : slots.last + 1] = array("H", [self._indexes[id]]) * len(slots)
        for slot in self._suspended:
            owners[slot] = _NO_OWNER
        primary = map.replicas.get(self._member)
        self._engine.set_owners(
            owners.tobytes(),
            self._addresses,
            primary=_NO_OWNER if primary is None else self._indexes[primary],
        )
        for slot, (how, _) in list(self.open_slots.items()):
            if (map.owner_of(slot) == self._member) is (how == "importing"):
                self.close_slot(
                    slot
                )  # its owner has changed: left open, it would redirect requests for later keys
        self.release()
        self._engine.post(self._redirect_blocked)

    def fence(self, slots: Iterable[int]) -> int:
        """Makes commands on these slots wait from now on. Returns the log's position."""
        return self._engine.fence(slots, True)

    def open(self, slots: Iterable[int]) -> None:
        """Ends fence(); waiting commands are checked again."""
        self._engine.fence(slots, False)
        self.release()

    def suspend(self, slots: Iterable[int]) -> None:
        """Makes commands on these slots fail with CLUSTERDOWN: their owner is unknown, and the pause budget
        is spent."""
        self._suspended = set(slots)
        self.update(self._map)
        self.open(self._suspended)

    def resume(self) -> None:
        """Ends suspend(): the map decides again."""
        if self._suspended:
            self._suspended = set()
            self.update(self._map)

    def release(self) -> None:
        """Checks all waiting commands again."""
        self._engine.release_held()
        self._engine.post(self._held.run_all)

    def open_slot(self, slot: int, how: str, other: str) -> None:
        """Executes CLUSTER SETSLOT: the slot is "migrating" to the member `other`, or "importing" from it."""
        self.open_slots[slot] = how, other
        to = self._indexes[other] if how == "migrating" else 0
        self._engine.set_slot(slot, migrating_to=to, importing=how == "importing")

    def close_slot(self, slot: int) -> None:
        self.open_slots.pop(slot, None)
        self._engine.set_slot(slot, migrating_to=0, importing=False)

    def forget(self, client: int) -> None:
        self._held.forget(client)

    # On the engine's thread, between commands

    def _redirect_blocked(self) -> None:
        """Redirects clients that block on a key which another node owns now."""
        for number, keys in self._blocking.waiting():
            verdict = self._engine.check_slot(number, keys, True)
            if verdict:
                self._blocking.unblock(number, error=verdict)


def keys_of(command: Command, argv: list[bytes]) -> list[bytes]:
    return [argv[at] for at in command.key_positions(argv) if 0 < at < len(argv)]
