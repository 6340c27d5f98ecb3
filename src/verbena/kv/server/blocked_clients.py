"""Clients that wait for a key (blocking pops), for replicas or for the disk; first come, first served."""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from verbena.kv.commands.replies import CommandError, Reply
from verbena.kv.server.call import Call

if TYPE_CHECKING:
    from verbena import _native
    from verbena.kv.server.execution import Execution

Retry = Callable[[Call], "Reply | None"]
# The names under which WAIT and WAITAOF wait, like keys that belong to no slot.
REPLICAS, DISK = b"\0wait", b"\0waitaof"


class _BlockedClient:
    __slots__ = ("call", "deadline_ms", "empty", "keys", "late", "retry")

    def __init__(self, call: Call, keys: list[bytes], retry: Retry, deadline_ms: int, empty: Reply) -> None:
        self.call = call
        self.keys = keys
        self.retry = retry
        self.deadline_ms = deadline_ms
        self.empty = empty
        self.late: Callable[[], Reply] | None = None  # makes the reply after the time-out, instead of `empty`


class Blocking:
    """`by_key`: (database, key) → the clients that wait for it, in order."""

    def __init__(self, engine: _native.kv.Engine, execution: Execution) -> None:
        self._engine = engine
        self._execution = execution
        self.by_key: dict[tuple[int, bytes], OrderedDict[int, _BlockedClient]] = {}
        self._blocked: dict[int, _BlockedClient] = {}  # by client
        self._ready: list[tuple[int, bytes]] = []
        self._deadlines: list[tuple[int, int, int]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._blocked)

    @property
    def with_deadline(self) -> int:
        """The number of clients that wait with a time-out."""
        return sum(blocked.deadline_ms != 0 for blocked in self._blocked.values())

    def block(
        self,
        call: Call,
        keys: list[bytes],
        retry: Retry,
        timeout_s: float,
        empty: Reply,
        *,
        late: Callable[[], Reply] | None = None,
    ) -> Reply:
        """Blocks the client until one of the keys changes and `retry` returns a reply. After `timeout_s` (0:
        no time-out) it gets `empty`, or the result of `late`. Within a transaction it gets `empty` at
        once."""
        from verbena.kv.commands.replies import NO_REPLY

        if self._execution.in_transaction:
            return empty
        client = call.client
        deadline = call.now_ms + max(1, int(timeout_s * 1000)) if timeout_s else 0
        blocked = _BlockedClient(call, list(dict.fromkeys(keys)), retry, deadline, empty)
        blocked.late = late
        self._blocked[client.id] = blocked
        for key in blocked.keys:
            self.by_key.setdefault((call.db.index, key), OrderedDict())[client.id] = blocked
        if deadline:
            heapq.heappush(self._deadlines, (deadline, next(self._order), client.id))
            self._engine.set_timer(self._deadlines[0][0])
        client.native.blocked = True
        return NO_REPLY

    def signal(self, database: int, key: bytes) -> None:
        """A key has changed: serve() will retry the clients that wait for it."""
        if (database, key) in self.by_key:
            self._ready.append((database, key))

    def signal_all(self, databases: Collection[int]) -> None:
        """All keys of these databases may have changed."""
        self._ready.extend(place for place in self.by_key if place[0] in databases)

    def serve(self) -> None:
        """After a command: retries the clients whose keys have changed."""
        author = self._engine.current_client
        while self._ready:
            place = self._ready.pop(0)
            for blocked in list(self.by_key.get(place, {}).values()):
                call = blocked.call
                self._execution.command = None
                call.now_ms = self._engine.now_ms
                self._engine.current_client = call.client.id
                try:
                    answer = blocked.retry(call)
                except CommandError as error:
                    answer = error
                if answer is not None:
                    self._finish(call.client.id, answer)
                self._engine.current_client = author

    def expire(self, now_ms: int) -> None:
        """Ends the waits that have timed out."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            deadline, _, client = heapq.heappop(self._deadlines)
            blocked = self._blocked.get(client)
            if blocked is not None and blocked.deadline_ms == deadline:
                self._finish(client, blocked.late() if blocked.late is not None else blocked.empty)
        self._engine.set_timer(self._deadlines[0][0] if self._deadlines else 0)

    def unblock(self, client: int, *, error: str = "") -> bool:
        """CLIENT UNBLOCK: ends a wait as after a time-out, or with an error. False: the client does not
        wait."""
        blocked = self._blocked.get(client)
        if blocked is None:
            return False
        self._finish(client, CommandError(error) if error else blocked.empty)
        return True

    def unblock_all(self, error: str) -> None:
        """Ends all waits for keys and for replicas with an error."""
        for client in [client for client, blocked in self._blocked.items() if blocked.keys]:
            self.unblock(client, error=error)

    def answer(self, client: int, reply: Reply) -> None:
        """Ends a wait with this reply; nothing happens if the client has disconnected."""
        if client in self._blocked:
            self._finish(client, reply)

    def waiting(self) -> list[tuple[int, list[bytes]]]:
        """Returns the clients that wait for keys, with these keys."""
        found = [
            (client, [key for key in blocked.keys if key not in (REPLICAS, DISK)])
            for client, blocked in self._blocked.items()
        ]
        return [(client, keys) for client, keys in found if keys]

    def forget(self, client: int) -> None:
        blocked = self._blocked.pop(client, None)
        if blocked is None:
            return
        for key in blocked.keys:
            place = (blocked.call.db.index, key)
            waiting = self.by_key.get(place)
            if waiting is not None:
                waiting.pop(client, None)
                if not waiting:
                    del self.by_key[place]

    def _finish(self, client: int, answer: Reply) -> None:
        native = self._blocked[client].call.client.native
        self.forget(client)
        native.reply(answer)
        native.unblock()
