"""The asyncio client of the store: commands are messages. One-sided reads on one host run on the event loop
itself, since they take only microseconds; over a network they run on a thread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from verbena import _native, transport
from verbena._closing import AsyncClosing
from verbena._native.kv import CLOSE_METHOD, LAYOUT_METHOD, RECEIVE_METHOD, REQUEST_METHOD
from verbena.errors import VerbenaError, setup_error
from verbena.kv.commands.replies import CommandError, RejectedCommand

if TYPE_CHECKING:
    from verbena.kv.client.sync_client import Word

_native.kv.use_command_error(RejectedCommand)
_ABSENT = _native.kv.ABSENT
_numbers = itertools.count(1 << 31)


async def send_resp(session: transport.Session, stream: bytes, data: bytes) -> bytes:
    """Sends RESP bytes to a stream, in several messages if needed; the reply bytes that have arrived by
    then."""
    most = session.max_message_bytes - len(stream)
    received = [
        await session.call(REQUEST_METHOD, stream + data[at : at + most]) for at in range(0, len(data), most)
    ]
    return b"".join(received)


class AsyncClient(AsyncClosing):
    """`await AsyncClient.connect("127.0.0.1:7471")`; an async context manager. Else as verbena.kv.Client."""

    def __init__(self, session: transport.Session, *, own_session: bool = False, database: int = 0) -> None:
        self.session = session
        self.one_sided_gets = 0
        self.message_gets = 0
        self._own_session = own_session
        self._database = database
        self._stream = next(_numbers).to_bytes(4, "little")
        self._reader: _native.kv.OneSidedReader | None = None
        self._unread = b""
        self._is_partly_sent = False  # a command was sent in part: the next one would be read as its rest
        self._lock = asyncio.Lock()

    @classmethod
    async def connect(
        cls,
        address: str = "127.0.0.1:7471",
        *,
        secret: bytes | str = b"",
        username: str = "",
        password: str = "",
        database: int = 0,
        wire: str | None = None,
        one_sided: bool = True,
    ) -> AsyncClient:
        session = await transport.connect(address, secret=secret, wire=wire)
        client = cls(session, own_session=True, database=database)
        try:
            if password:
                await client.execute("AUTH", *([username] if username else []), password)
            await client.execute("SELECT", database) if database else await client.execute("PING")
            if one_sided:
                await client._fetch_layout()
        except BaseException:
            await client.close()
            raise
        return client

    async def execute(self, *arguments: Word) -> Any:
        """Runs one command; its reply. CommandError: an error reply."""
        (reply,) = await self.run([arguments])
        if isinstance(reply, CommandError):
            raise reply
        return reply

    async def run(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """Runs several commands in one message; their replies in order, errors included."""
        payload = b"".join(map(_native.kv.encode_command, commands))
        replies: list[Any] = []
        async with self._lock:
            if self._is_partly_sent:
                detail = "a long command was interrupted half-way"
                raise setup_error("closed", operation="talk to the store", detail=detail)
            self._is_partly_sent = len(self._stream) + len(payload) > self.session.max_message_bytes
            received = await send_resp(self.session, self._stream, payload)
            self._is_partly_sent = False
            self._unread += received
            while True:
                some, used = _native.kv.decode(self._unread, len(commands) - len(replies))
                self._unread = self._unread[used:]
                replies += some
                if len(replies) == len(commands):
                    return replies
                self._unread += await self.session.call(RECEIVE_METHOD, self._stream)

    async def get(self, key: str | bytes) -> bytes | None:
        name = key.encode() if isinstance(key, str) else key
        if self._reader is not None and self.session.wire == "shm":
            value = self._reader.get(name)
            if value is not None:
                self.one_sided_gets += 1
                return None if value is _ABSENT else value  # type: ignore[return-value]
        elif self._reader is not None:
            # On a thread: a read over the network would hold up the event loop.
            value = await asyncio.to_thread(self._reader.get, name)
            if value is not None:
                self.one_sided_gets += 1
                return None if value is _ABSENT else value  # type: ignore[return-value]
        self.message_gets += 1
        return await self.execute("GET", name)  # type: ignore[no-any-return]

    async def mget(self, keys: Iterable[str | bytes]) -> list[bytes | None]:
        names = [key.encode() if isinstance(key, str) else key for key in keys]
        return await self.execute("MGET", *names) if names else []

    async def set(self, key: str | bytes, value: Word, *options: Word) -> bool:
        """`options` of SET: "EX", 10, "NX" …; False: not stored because of NX or XX."""
        return await self.execute("SET", key, value, *options) is not None

    async def mset(self, values: Mapping[str | bytes, Word]) -> None:
        await self.execute("MSET", *(word for pair in values.items() for word in pair))

    async def delete(self, *keys: str | bytes) -> int:
        return int(await self.execute("DEL", *keys))

    async def close(self) -> None:
        if not self.session.closed:
            with contextlib.suppress(VerbenaError):  # the session ends anyway
                await self.session.call(CLOSE_METHOD, self._stream, timeout_s=1.0)
        self._reader = None
        if self._own_session:
            await self.session.close()

    async def _fetch_layout(self) -> None:
        layout = await self.session.call(LAYOUT_METHOD, self._stream)
        reader = self._reader or _native.kv.OneSidedReader(self.session._native, self._database)
        self._reader = reader if layout and reader.load(layout) else None
