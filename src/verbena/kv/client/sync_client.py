"""The blocking client of the store over sessions: strings are read one-sided, without the server's processor;
all other commands are messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from verbena import _native, transport
from verbena._closing import Closing
from verbena._native.kv import LAYOUT_METHOD
from verbena.kv.commands.replies import RejectedCommand

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Buffer

    Word: TypeAlias = "str | bytes | int | float | Buffer"

_native.kv.use_command_error(RejectedCommand)
_ABSENT = _native.kv.ABSENT
_numbers = itertools.count(1)


class Client(Closing):
    """A blocking client. `address`: the server's address for sessions. `one_sided` False: GETs are messages.

    with Client("127.0.0.1:7471") as store:
        store.set("greeting", "hello")
        store.get("greeting")

    Keys are str or bytes, values bytes. CommandError: an error reply, also for keys of another node of a
    cluster, since redirections are not followed. Also raises the errors of a session."""

    def __init__(
        self,
        address: str | transport.Session = "127.0.0.1:7471",
        *,
        secret: bytes | str = b"",
        username: str = "",
        password: str = "",
        database: int = 0,
        wire: str | None = None,
        one_sided: bool = True,
    ) -> None:
        self._own_session = isinstance(address, str)
        self.session = (
            transport.connect_blocking(address, secret=secret, wire=wire)
            if isinstance(address, str)
            else address
        )
        self.one_sided_gets = 0
        self.message_gets = 0
        self._database = database
        self._reader: _native.kv.OneSidedReader | None = None
        try:
            self._stream = _native.kv.Stream(self.session._native, next(_numbers))
        except BaseException:
            self._close_session()
            raise
        self.execute: Callable[..., Any] = self._stream.execute
        try:
            if password:
                self.execute("AUTH", *([username] if username else []), password)
            if database:
                self.execute("SELECT", database)
            else:
                self.execute("PING")
            if one_sided:
                self._fetch_layout()
        except BaseException:
            self.close()
            raise

    # Strings

    def get(self, key: str | bytes) -> bytes | None:
        """Returns the string at a key, read from the server's memory if possible, else by message."""
        name = key.encode() if isinstance(key, str) else key
        reader = self._reader
        if reader is not None:
            value = reader.get(name)
            if value is not None:
                self.one_sided_gets += 1
                return None if value is _ABSENT else value  # type: ignore[return-value]
        return self._get_by_message(name)

    def get_into(self, key: str | bytes, buffer: Buffer) -> int | None:
        """Reads the string at a key straight into a writable buffer, such as a numpy array; its length, or
        None if there is no such key. ValueError if the buffer is too short."""
        name = key.encode() if isinstance(key, str) else key
        view = memoryview(buffer).cast("B")
        if self._reader is not None:
            length = self._reader.get_into(name, view)
            if length is not None:
                self.one_sided_gets += 1
                if isinstance(length, int) and length > view.nbytes:
                    raise ValueError(f"the value has {length} bytes, the buffer {view.nbytes}")
                return length if isinstance(length, int) else None
        value = self._get_by_message(name)
        if value is None:
            return None
        if len(value) > view.nbytes:
            raise ValueError(f"the value has {len(value)} bytes, the buffer {view.nbytes}")
        view[: len(value)] = value
        return len(value)

    def mget(self, keys: Iterable[str | bytes]) -> list[bytes | None]:
        """Returns the strings at several keys, in few round trips."""
        names = keys if isinstance(keys, (list, tuple)) else list(keys)
        if not names:
            return []
        if self._reader is None:
            return self.execute("MGET", *names)  # type: ignore[no-any-return]
        values, missing = self._reader.get_many(names)
        self.one_sided_gets += len(values) - len(missing)
        if missing:
            self._fetch_layout()
            self.message_gets += len(missing)
            for index, value in zip(missing, self.execute("MGET", *(names[i] for i in missing)), strict=True):
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
        """Stores a string; False: not stored because of `nx` or `xx`."""
        if ex is None and px is None and not nx and not xx and not keepttl:
            self._stream.set(key, value)
            return True
        options: list[Word] = []
        if ex is not None:
            options += ["EX", ex]
        if px is not None:
            options += ["PX", px]
        options += [word for word, wanted in (("NX", nx), ("XX", xx), ("KEEPTTL", keepttl)) if wanted]
        return self.execute("SET", key, value, *options) is not None

    def mset(self, values: Mapping[str | bytes, Word]) -> None:
        self.execute("MSET", *(word for pair in values.items() for word in pair))

    def delete(self, *keys: str | bytes) -> int:
        return int(self.execute("DEL", *keys))

    def incr(self, key: str | bytes, amount: int = 1) -> int:
        return int(self.execute("INCRBY", key, amount))

    def run(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """Runs several commands in one message; their replies in order, errors included."""
        return self._stream.run(commands)

    # Lifetime

    def close(self) -> None:
        self._stream.close()
        self._reader = None
        self._close_session()

    def _close_session(self) -> None:
        if self._own_session:
            self.session.close_blocking()

    def __repr__(self) -> str:
        how = "one-sided" if self._reader is not None else "by message"
        return f"<kv.Client of {self.session!r}: reads {how}>"

    def _get_by_message(self, name: bytes) -> bytes | None:
        self.message_gets += 1
        value = self.execute("GET", name)
        if self._reader is not None and self.message_gets & 63 == 0:
            self._fetch_layout()  # the store may have allocated further memory
        return value  # type: ignore[no-any-return]

    def _fetch_layout(self) -> None:
        """Requests the layout of the server's memory. Empty: it cannot be read, and every GET is a
        message."""
        number = self._stream.number.to_bytes(4, "little")
        layout = self.session.sync.call(LAYOUT_METHOD, number)
        reader = self._reader or _native.kv.OneSidedReader(self.session._native, self._database)
        self._reader = reader if layout and reader.load(layout) else None
