"""The asyncio client of the store: commands are messages. One-sided reads on one host run on the event loop
itself, since they take only microseconds; over a network they run on a thread."""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from verbena import _native, transport
from verbena._closing import AsyncClosing
from verbena.errors import setup_error
from verbena.kv.client import redirects, words
from verbena.kv.client.async_nodes import AsyncNode, AsyncNodes, open_session
from verbena.kv.client.connecting import Access, check_timeout
from verbena.kv.client.operations import documented
from verbena.kv.client.pipeline import AsyncPipeline
from verbena.kv.client.stats import Stats
from verbena.kv.commands.replies import CommandError
from verbena.transport.memory.buffers import contiguous_bytes
from verbena.transport.offload import in_thread

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

    from verbena.kv.client.words import Command, Word

_ABSENT = _native.kv.ABSENT
_OPERATION = "talk to the store"

T = TypeVar("T")


@documented
class AsyncClient(AsyncClosing):
    """As verbena.kv.Client, for asyncio: `async with kv.AsyncClient("127.0.0.1:7471") as store`, or
    `store = await kv.AsyncClient(…)`. If neither was done, the first command opens it. Tasks of one event
    loop may share it; their commands run one after the other."""

    def __init__(
        self,
        address: str | transport.Session = "127.0.0.1:7471",
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
        self._timeout_s = math.inf if (limit := check_timeout(timeout_s)) is None else limit
        self._access = Access(secret, tls, wire, limit)
        self._greeting = words.greeting(user, password, database)
        self._address = address
        self._database = database
        self._wants_one_sided = one_sided
        self._one_sided = self._by_message = 0
        self._reader: _native.kv.OneSidedReader | None = None
        self._node: AsyncNode | None = None
        self._nodes: AsyncNodes | None = None
        self._in_cluster = False
        self._closed = False
        self._opening = asyncio.Lock()

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        """Opens the client, and checks that a store answers."""
        try:
            await self._open()
            await self.execute("PING")
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def session(self) -> transport.Session:
        return self._opened().session

    @property
    def stream(self) -> int:
        """The number of its stream in the session."""
        return self._opened().stream

    # Operations: documented in operations.py

    async def get(self, key: str | bytes) -> bytes | None:
        name = key.encode() if isinstance(key, str) else key
        if self._node is None:
            await self._open()
        reader = self._reader
        if reader is not None:
            value = await self._read(lambda: reader.get(name))
            if value is not None:
                self._one_sided += 1
                return None if value is _ABSENT else value  # type: ignore[return-value]
        return await self._get_by_message(name)

    async def get_into(self, key: str | bytes, buffer: Buffer) -> int | None:
        name = words.name_of(key)
        view = contiguous_bytes(buffer, "get_into", writable=True)
        if self._node is None:
            await self._open()
        reader = self._reader
        if reader is not None:
            length = await self._read(lambda: reader.get_into(name, view))
            if length is not None:
                self._one_sided += 1
                if not isinstance(length, int):
                    return None
                words.check_length(length, view.nbytes)
                return length
        value = await self._get_by_message(name)
        if value is None:
            return None
        words.check_length(len(value), view.nbytes)
        view[: len(value)] = value
        return len(value)

    async def mget(self, keys: Iterable[str | bytes]) -> list[bytes | None]:
        names = keys if isinstance(keys, (list, tuple)) else list(keys)
        if not names:
            return []
        if self._node is None:
            await self._open()
        reader = self._reader
        if reader is None:
            return await self._mget_by_message(names)
        values, missing = await self._read(lambda: reader.get_many(names))
        self._one_sided += len(values) - len(missing)
        if missing:
            await self._fetch_layout()
            found = await self._mget_by_message([names[i] for i in missing])
            for index, value in zip(missing, found, strict=True):
                values[index] = value
        return values

    async def set(
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
        options = words.set_options(ex, px, nx, xx, keepttl)
        return words.was_stored(await self.execute("SET", key, value, *options))

    async def mset(self, values: Mapping[str | bytes, Word]) -> None:
        await self._split("MSET", list(values), list(values.values()))

    async def delete(self, *keys: str | bytes) -> int:
        return sum(count for _, count in await self._split("DEL", keys))

    async def incr(self, key: str | bytes, amount: int = 1) -> int:
        return int(await self.execute("INCRBY", key, amount))

    async def execute(self, *words: Word, timeout_s: float | None = None) -> Any:
        (reply,) = await self.run([words], timeout_s=timeout_s)
        if isinstance(reply, CommandError):
            raise reply
        return reply

    async def run(self, commands: Sequence[Command], *, timeout_s: float | None = None) -> list[Any]:
        self._check_process(_OPERATION)
        if not commands:
            return []
        limit = self._timeout_s if timeout_s is None else timeout_s
        return await self._within(limit, self._run(commands, limit))

    def pipeline(self, *, transaction: bool = False) -> AsyncPipeline:
        return AsyncPipeline(self, transaction=transaction)

    def stats(self) -> Stats:
        slots = self._nodes.slots if self._nodes is not None else redirects.SlotMap()
        session = self._node.session if self._node is not None else None
        return Stats(
            one_sided=self._one_sided,
            by_message=self._by_message,
            redirects=slots.redirects,
            retries=slots.retries,
            wire=session.wire if session is not None else None,
            reason=session.reason if session is not None else "the client was not opened",
        )

    # Lifetime

    async def close(self) -> None:
        if self._inherited:
            return
        self._closed = True
        self._reader = None
        if self._nodes is not None:
            await self._nodes.close()
        if self._node is not None:
            await self._node.close()

    def __repr__(self) -> str:
        if self._node is None:
            return f"<kv.AsyncClient of {self._address}: not opened>"
        how = "one-sided" if self._reader is not None else "by message"
        return f"<kv.AsyncClient of {self._node.session!r}: reads {how}>"

    # Inside

    async def _open(self) -> None:
        self._check_process(_OPERATION)
        async with self._opening:
            if self._closed:
                raise setup_error("closed", operation=_OPERATION, detail="the client was closed")
            if self._node is None:
                await self._within(self._timeout_s, self._open_node())

    async def _open_node(self) -> None:
        owns = isinstance(self._address, str)
        session = (
            await open_session(self._access, self._address)
            if isinstance(self._address, str)
            else self._address
        )
        node = AsyncNode(session, self._greeting, owns=owns)
        try:
            await node.greet(math.inf)
            self._node = node
            if self._wants_one_sided:
                await self._fetch_layout()
        except BaseException:
            self._node = None
            await node.close()
            raise
        self._nodes = AsyncNodes(node, self._access, self._greeting)

    def _opened(self) -> AsyncNode:
        if self._node is None:
            raise setup_error("closed", operation="use a client", detail="await it first: it is not open yet")
        return self._node

    async def _within(self, limit: float, work: Coroutine[Any, Any, T]) -> T:
        """Awaits it; TimedOutError after `limit` seconds."""
        if limit == math.inf:
            return await work
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait([task], timeout=limit)
            if done:
                return task.result()
        finally:
            task.cancel()
        await asyncio.wait([task])
        raise setup_error("call_timeout", operation=_OPERATION, detail=f"no answer within {limit} s")

    async def _read(self, read: Callable[[], T]) -> T:
        """Runs a one-sided read; on a thread over a network, where it would hold up the event loop."""
        if self._opened().session.wire == "shm":
            return read()
        return await in_thread(lambda *, progress: read())  # noqa: PLW0108

    async def _get_by_message(self, name: bytes) -> bytes | None:
        if self._reader is not None and self._reader.denied:
            await self._fetch_layout()
        self._by_message += 1
        value = await self.execute("GET", name)
        if self._wants_one_sided and self._by_message & 63 == 0:
            await self._fetch_layout()  # the store may have allocated memory, or lent it to this user
        return value  # type: ignore[no-any-return]

    async def _mget_by_message(self, names: Sequence[str | bytes]) -> list[bytes | None]:
        self._by_message += len(names)
        values: list[bytes | None] = [None] * len(names)
        for indexes, found in await self._split("MGET", names):
            for index, value in zip(indexes, found, strict=True):
                values[index] = value
        return values

    async def _split(
        self, command: str, keys: Sequence[str | bytes], values: Sequence[Word] | None = None
    ) -> list[tuple[Sequence[int], Any]]:
        """Runs a command of several keys; in a cluster, once for each slot. Returns the indexes of the keys
        and the reply of each."""
        everything = range(len(keys))
        if not self._in_cluster:
            if self._node is None:
                await self._open()
            whole = words.of_keys(command, everything, keys, values)
            ends = time.monotonic() + self._timeout_s
            (reply,) = await self._within(self._timeout_s, self._opened().run([whole], ends))
            if not redirects.is_from_cluster(reply):
                words.raise_first([reply])
                return [(everything, reply)]
            self._in_cluster = True
        parts = list(redirects.by_slot(keys).values())
        replies = await self.run([words.of_keys(command, part, keys, values) for part in parts])
        words.raise_first(replies)
        return list(zip(parts, replies, strict=True))

    async def _run(self, commands: Sequence[Command], limit: float) -> list[Any]:
        if self._node is None:
            await self._open()
        ends = time.monotonic() + limit
        first: list[Any] | None = None
        if not self._in_cluster:
            first = await self._opened().run(commands, ends)
            if not any(map(redirects.is_from_cluster, first)):
                return first
            self._in_cluster = True
        assert self._nodes is not None
        until = ends if limit != math.inf else time.monotonic() + redirects.PATIENCE_S
        return await self._nodes.perform(redirects.route(self._nodes.slots, commands, until, first), ends)

    async def _fetch_layout(self) -> None:
        """Requests the layout of the server's memory. Empty: it cannot be read, and every GET is a
        message."""
        node = self._opened()
        layout = await node.layout(time.monotonic() + self._timeout_s)
        timeout_s = words.FOREVER if self._timeout_s == math.inf else self._timeout_s
        reader = self._reader or _native.kv.OneSidedReader(node.session._native, self._database, timeout_s)
        self._reader = reader if layout and reader.load(layout) else None
