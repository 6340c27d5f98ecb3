"""The subset of an HTTP/1.1 client that etcd's JSON gateway needs: POST a JSON object, read one or a stream,
over TCP or TLS, with the token of a login."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from verbena.errors import VerbenaError, setup_error
from verbena.shards.stores import EtcdLogin
from verbena.transport.handshake.tls import handshake_error

_MAX_LINE_BYTES = 1 << 16
_MAX_BODY_BYTES = 64 << 20
_BROKEN = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)


_UNAUTHENTICATED = 401


def _abort(writer: asyncio.StreamWriter) -> None:
    """Closes a connection at once: with TLS, close() would wait for the peer."""
    writer.transport.abort()


class JsonClient:
    """Posts to "host:port"; connections are reused. Logs in at the first request, and again when the token
    has expired."""

    def __init__(self, address: str, *, login: EtcdLogin, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._login = login
        self._token = ""
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(
        self, path: str, body: dict[str, Any], *, timeout_s: float | None = None, once: bool = False
    ) -> dict[str, Any]:
        """Returns the server's answer. Raises AddressError, TimedOutError, or StateError with the server's
        message. `once`: the request is not repeated, even if a reused connection turns out to be closed."""
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            return await asyncio.wait_for(self._post_logged_in(path, body, once), limit)
        except VerbenaError:
            raise  # some are also OSErrors
        except asyncio.TimeoutError:
            self.close()  # idle connections to this server are of no use either
            detail = f"no answer to {path} within {limit} s"
            raise setup_error(
                "map_store_timeout", operation="use etcd", peer=self.address, detail=detail
            ) from None
        except ssl.SSLError as error:
            raise handshake_error(error, peer=self.address) from error
        except _BROKEN as error:
            raise self._error(f"{path}: {error or type(error).__name__}") from error

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the objects of a streamed answer, which has one per line."""
        try:
            reader, writer = await asyncio.wait_for(self._connect(), self.timeout_s)
        except (OSError, asyncio.TimeoutError) as error:
            raise self._error(f"{path}: {error or type(error).__name__}") from error
        try:
            writer.write(self._request(path, body))
            status, headers = await self._head(reader)
            if status == _UNAUTHENTICATED:
                self._token = ""  # the next request logs in again
            if status != 200:
                raise self._error(f"{path}: status {status}")
            pending = b""
            async for piece in self._pieces(reader, headers):
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)
        except VerbenaError:
            raise
        except _BROKEN as error:
            raise self._error(f"{path}: {error or type(error).__name__}") from error
        finally:
            _abort(writer)

    def close(self) -> None:
        for _, writer in self._idle:
            _abort(writer)
        self._idle.clear()

    async def _post_logged_in(self, path: str, body: dict[str, Any], once: bool) -> dict[str, Any]:
        if self._login.user and not self._token:
            await self._log_in()
        status, value = await self._post(path, body, once)
        if status == _UNAUTHENTICATED and self._token:  # expired: etcd has not executed the request
            await self._log_in()
            status, value = await self._post(path, body, once)
        if status != 200:
            raise self._error(f"{path}: {value.get('error') or value}")
        return value

    async def _log_in(self) -> None:
        self._token = ""
        body = {"name": self._login.user, "password": self._login.password}
        status, value = await self._post("/v3/auth/authenticate", body, False)
        if status != 200:
            detail = f"user {self._login.user!r}: {value.get('error') or value}"
            raise setup_error("credentials", operation="log in to etcd", peer=self.address, detail=detail)
        self._token = str(value["token"])

    async def _post(self, path: str, body: dict[str, Any], once: bool) -> tuple[int, dict[str, Any]]:
        """Returns the status and the JSON object of the answer."""
        while True:
            reused = bool(self._idle)
            reader, writer = self._idle.pop() if self._idle else await self._connect()
            try:
                writer.write(self._request(path, body))
                try:
                    status, headers = await self._head(reader)
                except (OSError, EOFError):
                    if reused and not once:  # the server had closed it; this request may be repeated
                        _abort(writer)
                        continue
                    raise
                data = b"".join([piece async for piece in self._pieces(reader, headers)])
            except BaseException:
                _abort(writer)
                raise
            self._idle.append((reader, writer))
            if headers.get("content-type", "").startswith("text/"):  # an error of the gateway itself
                return status, {"error": data.decode("utf-8", "replace").strip()}
            return status, dict(json.loads(data) if data.strip() else {})

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.address.rpartition(":")
        return await asyncio.open_connection(
            host.strip("[]"), int(port), limit=_MAX_LINE_BYTES, ssl=self._login.tls
        )

    def _request(self, path: str, body: dict[str, Any]) -> bytes:
        data = json.dumps(body).encode()
        token = f"Authorization: {self._token}\r\n" if self._token else ""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self.address}\r\nContent-Type: application/json\r\n"
            f"{token}Content-Length: {len(data)}\r\n\r\n"
        )
        return head.encode() + data

    @staticmethod
    async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
        line = await reader.readuntil(b"\r\n")
        parts = line.split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1."):
            raise ValueError(f"not an HTTP response: {line[:80]!r}")
        headers: dict[str, str] = {}
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(parts[1]), headers

    @staticmethod
    async def _pieces(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            length = int(headers.get("content-length", "0"))
            if not 0 <= length <= _MAX_BODY_BYTES:
                raise ValueError(f"an answer of {length} bytes")
            yield await reader.readexactly(length)
            return
        while True:
            length = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            if not 0 <= length <= _MAX_BODY_BYTES:
                raise ValueError(f"a piece of {length} bytes")
            piece = await reader.readexactly(length + 2)
            if length == 0:
                return
            yield piece[:-2]

    def _error(self, detail: str) -> VerbenaError:
        return setup_error("map_store", operation="use etcd", peer=self.address, detail=detail)
