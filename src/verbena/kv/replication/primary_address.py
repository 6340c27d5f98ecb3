"""Finds the address for sessions of a primary, given its address for clients."""

from __future__ import annotations

import asyncio

from verbena.errors import VerbenaError, setup_error
from verbena.transport.address import HostPort

_MAX_BYTES = 1 << 20
_TIMEOUT_S = 5.0
FIELD = "sessions_port"  # of INFO replication


async def session_address(host: str, port: int, *, user: str, password: str) -> str:
    """Reads it from INFO replication. If the peer does not speak RESP, the port is taken as the one for
    sessions."""
    try:
        found = await asyncio.wait_for(_sessions_port(host, port, user, password), _TIMEOUT_S)
    except asyncio.TimeoutError as error:
        raise failed(host, port, "it does not answer") from error
    except OSError as error:
        raise failed(host, port, error.strerror or str(error)) from error
    return str(HostPort(host, found))


async def _sessions_port(host: str, port: int, user: str, password: str) -> int:
    reader, writer = await asyncio.open_connection(host, port, limit=_MAX_BYTES)
    try:
        if password:
            writer.write(_pack("AUTH", *([user] if user else []), password))
            line = await reader.readline()
            if line.startswith(b"-"):
                raise failed(host, port, line[1:].decode("utf-8", "replace").strip())
        writer.write(_pack("INFO", "replication"))
        line = await reader.readline()
        if line.startswith(b"-"):
            raise failed(host, port, line[1:].decode("utf-8", "replace").strip())
        if not line.startswith(b"$"):
            return port
        length = int(line[1:])
        if not 0 < length < _MAX_BYTES:
            return port
        text = (await reader.readexactly(length)).decode("utf-8", "replace")
    except (ValueError, asyncio.IncompleteReadError, ConnectionResetError):
        return port
    finally:
        writer.close()
    for row in text.splitlines():
        name, _, value = row.partition(":")
        if name == FIELD and value.isdecimal():
            return int(value)
    raise failed(host, port, "it accepts no sessions (kv.sessions), or is not a Verbena server")


def _pack(*arguments: str) -> bytes:
    raw = [argument.encode() for argument in arguments]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw)


def failed(host: str, port: int, why: str) -> VerbenaError:
    return setup_error("unreachable", operation="follow a primary", detail=f"{host}:{port}: {why}")
