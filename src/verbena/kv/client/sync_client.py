"""The blocking client of the store over sessions: strings are read one-sided, without the server's processor;
all other commands are messages."""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from verbena import _native, sync, transport
from verbena._closing import Closing
from verbena._native.kv import LAYOUT_METHOD
from verbena.kv.client import redirects, words
from verbena.kv.client.connecting import Access, check_timeout
from verbena.kv.client.operations import documented
from verbena.kv.client.pipeline import Pipeline
from verbena.kv.client.stats import Stats
from verbena.kv.client.sync_nodes import SyncNode, SyncNodes, open_session
from verbena.kv.commands.replies import CommandError
from verbena.transport.memory.buffers import contiguous_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.kv.client.words import Command, Word

_ABSENT = _native.kv.ABSENT


@documented
class Client(Closing):
    """A blocking client. `address`: the server's address for sessions, or a session. `timeout_s`: how long
    one call may take (None: no limit). `one_sided` False: GETs are messages.

    with Client("127.0.0.1:7471") as store:
        store.set("greeting", "hello")
        store.get("greeting")

    Keys are str or bytes, values bytes. Any thread may use it; commands of several threads run one after the
    other. In a cluster it finds the node of each key. CommandError: an error reply; TimedOutError after
    `timeout_s`; also raises the errors of a session."""

    def __init__(
        self,
        address: str | sync.Session | transport.Session = "127.0.0.1:7471",
        *,
        timeout_s: float | None = None,
        secret: bytes | str = b"",
        tls: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
        database: int = 0,
        wire: str | None = None,
        one_sided: bool = True,
    ) -> None:
        timeout_s = check_timeout(timeout_s)
        access = Access(secret, tls, wire, timeout_s)
        greeting = words.greeting(user, password, database)
        owns = isinstance(address, str)
        self.session = open_session(access, address) if isinstance(address, str) else address.sync
        self._timeout_s = words.FOREVER if timeout_s is None else timeout_s
        self._database = database
        self._wants_one_sided = one_sided
        self._one_sided = self._by_message = 0
        self._reader: _native.kv.OneSidedReader | None = None
        self._node = SyncNode(self.session, greeting, owns=owns)
        self._stream = self._node.stream
        self._nodes = SyncNodes(self._node, access, greeting)
        self._in_cluster = False
        try:
            self._stream.greet(self._timeout_s)
            self._stream.execute(("PING",), self._timeout_s)
            if one_sided:
                self._fetch_layout()
        except BaseException:
            self.close()
            raise

    @property
    def stream(self) -> int:
        """The number of its stream in the session."""
        return self._stream.number

    # Operations: documented in operations.py

    def get(self, key: str | bytes) -> bytes | None:
        name = key.encode() if isinstance(key, str) else key
        reader = self._reader
        if reader is not None:
            value = reader.get(name)
            if value is not None:
                self._one_sided += 1
                return None if value is _ABSENT else value  # type: ignore[return-value]
        return self._get_by_message(name)

    def get_into(self, key: str | bytes, buffer: Buffer) -> int | None:
        name = words.name_of(key)
        view = contiguous_bytes(buffer, "get_into", writable=True)
        if self._reader is not None:
            length = self._reader.get_into(name, view)
            if length is not None:
                self._one_sided += 1
                if not isinstance(length, int):
                    return None
                words.check_length(length, view.nbytes)
                return length
        value = self._get_by_message(name)
        if value is None:
            return None
        words.check_length(len(value), view.nbytes)
        view[: len(value)] = value
        return len(value)

    def mget(self, keys: Iterable[str | bytes]) -> list[bytes | None]:
        names = keys if isinstance(keys, (list, tuple)) else list(keys)
        if not names:
            return []
        if self._reader is None:
            return self._mget_by_message(names)
        values, missing = self._reader.get_many(names)
        self._one_sided += len(values) - len(missing)
        if missing:
            self._fetch_layout()
            found = self._mget_by_message([names[i] for i in missing])
            for index, value in zip(missing, found, strict=True):
                values[index] = value
        return values

    def set(
        self,
        key: str | bytes,
        value: Word,
        *,
        ex: int | None = None,
        px: int | None = None,
        nx: bool = False,
        xx: bool = False,
        keepttl: bool = False,
    ) -> bool:
        if ex is None and px is None and not nx and not xx and not keepttl and not self._in_cluster:
            try:
                self._stream.set(key, value, self._timeout_s)
                return True
            except CommandError as error:
                if not redirects.is_from_cluster(error):
                    raise
        return words.was_stored(self.execute("SET", key, value, *words.set_options(ex, px, nx, xx, keepttl)))

    def mset(self, values: Mapping[str | bytes, Word]) -> None:
        self._split("MSET", list(values), list(values.values()))

    def delete(self, *keys: str | bytes) -> int:
        return sum(count for _, count in self._split("DEL", keys))

    def incr(self, key: str | bytes, amount: int = 1) -> int:
        return int(self.execute("INCRBY", key, amount))

    def execute(self, *words: Word, timeout_s: float | None = None) -> Any:
        limit = self._timeout_s if timeout_s is None else timeout_s
        if not self._in_cluster:
            try:
                return self._stream.execute(words, limit)
            except CommandError as error:
                if not redirects.is_from_cluster(error):
                    raise
        (reply,) = self._route([words], limit)
        if isinstance(reply, CommandError):
            raise reply
        return reply

    def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> list[Any]:
        limit = self._timeout_s if timeout_s is None else timeout_s
        if not self._in_cluster:
            replies = self._stream.run(commands, limit)
            if not any(map(redirects.is_from_cluster, replies)):
                return replies
            return self._route(commands, limit, replies)
        return self._route(commands, limit)

    def pipeline(self, *, transaction: bool = False) -> Pipeline:
        return Pipeline(self, transaction=transaction)

    def stats(self) -> Stats:
        slots = self._nodes.slots
        return Stats(
            one_sided=self._one_sided,
            by_message=self._by_message,
            redirects=slots.redirects,
            retries=slots.retries,
            wire=self.session.wire,
            reason=self.session.reason,
        )

    # Lifetime

    def close(self) -> None:
        if self._inherited:
            return
        self._reader = None
        self._nodes.close()
        self._node.close()

    def __repr__(self) -> str:
        how = "one-sided" if self._reader is not None else "by message"
        return f"<kv.Client of {self.session!r}: reads {how}>"

    # Inside

    def _get_by_message(self, name: bytes) -> bytes | None:
        if self._reader is not None and self._reader.denied:
            self._fetch_layout()
        self._by_message += 1
        value = self.execute("GET", name)
        if self._wants_one_sided and self._by_message & 63 == 0:
            self._fetch_layout()  # the store may have allocated memory, or lent it to this user
        return value  # type: ignore[no-any-return]

    def _mget_by_message(self, names: Sequence[str | bytes]) -> list[bytes | None]:
        self._by_message += len(names)
        values: list[bytes | None] = [None] * len(names)
        for indexes, found in self._split("MGET", names):
            for index, value in zip(indexes, found, strict=True):
                values[index] = value
        return values

    def _split(
        self, command: str, keys: Sequence[str | bytes], values: Sequence[Word] | None = None
    ) -> list[tuple[Sequence[int], Any]]:
        """Runs a command of several keys; in a cluster, once for each slot. Returns the indexes of the keys
        and the reply of each."""
        everything = range(len(keys))
        if not self._in_cluster:
            whole = words.of_keys(command, everything, keys, values)
            try:
                return [(everything, self._stream.execute(whole, self._timeout_s))]
            except CommandError as error:
                if not redirects.is_from_cluster(error):
                    raise
        parts = list(redirects.by_slot(keys).values())
        replies = self._route([words.of_keys(command, part, keys, values) for part in parts], self._timeout_s)
        words.raise_first(replies)
        return list(zip(parts, replies, strict=True))

    def _route(self, commands: Sequence[Command], limit: float, first: list[Any] | None = None) -> list[Any]:
        self._check_process("talk to the store")
        self._in_cluster = True
        ends = time.monotonic() + (limit if 0 <= limit < math.inf else redirects.PATIENCE_S)
        steps = redirects.route(self._nodes.slots, commands, ends, first)
        return self._nodes.perform(steps, ends if 0 <= limit < math.inf else math.inf)

    def _fetch_layout(self) -> None:
        """Requests the layout of the server's memory. Empty: it cannot be read, and every GET is a
        message."""
        number = self._stream.number.to_bytes(4, "little")
        limit = None if self._timeout_s < 0 else self._timeout_s
        layout = self.session.call(LAYOUT_METHOD, number, timeout_s=limit)
        reader = self._reader or _native.kv.OneSidedReader(
            self.session._native, self._database, self._timeout_s
        )
        self._reader = reader if layout and reader.load(layout) else None
