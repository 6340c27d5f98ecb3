"""Parsers of redis-py and valkey-py that read from a native buffer, so that a long value is copied once: from
the memory into which it was received to the bytes object. Everything else is the library's own."""

from __future__ import annotations

import functools
import importlib
from typing import Any


@functools.cache
def native_parser(library: str, wanted: type[Any], protocol: int) -> type[Any]:
    """Returns the library's parser in Python for this protocol that reads from its socket's native buffer.
    `wanted`: a class derived from one of the parsers in Python, or another parser, which cannot use that
    buffer and is replaced."""
    parsers: Any = importlib.import_module(f"{library}._parsers")
    ours = (parsers._RESP2Parser, parsers._RESP3Parser)
    base: Any = wanted if issubclass(wanted, ours) else ours[protocol == 3]

    class NativeParser(base):  # type: ignore[misc]
        def on_connect(self, connection: Any) -> None:
            super().on_connect(connection)
            self._buffer = connection._sock.buffer

    class PushParser(NativeParser):
        push_request = False  # set by the connection: valkey-py does not pass it on if libvalkey is installed

        def read_response(self, **options: Any) -> Any:
            options.setdefault("push_request", self.push_request)
            return super().read_response(**options)

    return PushParser if issubclass(base, ours[1]) else NativeParser


@functools.cache
def native_async_parser(library: str, wanted: type[Any], protocol: int) -> type[Any]:
    """As native_parser(), for asyncio connections whose reader is a ReplyReader."""
    parsers: Any = importlib.import_module(f"{library}._parsers")
    ours = (parsers._AsyncRESP2Parser, parsers._AsyncRESP3Parser)
    base: Any = wanted if issubclass(wanted, ours) else ours[protocol == 3]

    class NativeAsyncParser(base):  # type: ignore[misc]
        async def read_response(self, **options: Any) -> Any:
            received = self._stream.buffer
            start = received.get_pos()
            try:
                response = await super().read_response(**options)
            except BaseException:
                received.rewind(start)  # it is read again when the rest has arrived
                raise
            received.purge()
            return response

        async def _read(self, length: int) -> bytes:
            found: bytes = await self._stream.take(length)
            return found

        async def _readline(self) -> bytes:
            line: bytes = await self._stream.take_line()
            return line

    class PushAsyncParser(NativeAsyncParser):
        push_request = False  # as in PushParser

        async def read_response(self, **options: Any) -> Any:
            options.setdefault("push_request", self.push_request)
            return await super().read_response(**options)

    return PushAsyncParser if issubclass(base, ours[1]) else NativeAsyncParser
