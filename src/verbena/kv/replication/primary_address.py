"""Finds the address for sessions of a primary, given its address for clients."""

from __future__ import annotations

import asyncio

from verbena.errors import VerbenaError, setup_error
from verbena.transport.address import HostPort

_MAX_BYTES = 1 << 20
_TIMEOUT_S = 5.0
FIELD = "sessions_port"  # of INFO replication
_NO_PASSWORD = "Set replication.primary_password, or name the primary's port for sessions in REPLICAOF."


async def session_address(host: str, port: int, *, user: str, password: str) -> str:
    """Reads it with REPLCONF. If the peer does not speak RESP, the port is taken as the one for sessions."""
    try:
        found = await asyncio.wait_for(_sessions_port(host, port, user, password), _TIMEOUT_S)
    except VerbenaError:
        raise  # some are also OSErrors
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
                raise failed(host, port, _text(line))
        writer.write(_pack("REPLCONF", "SESSIONS-PORT"))
        line = await reader.readline()
    except (ValueError, ConnectionResetError):
        return port
    finally:
        writer.close()
    if line.startswith(b"-NOAUTH"):
        raise failed(host, port, f"{_text(line)} {_NO_PASSWORD}")
    if line.startswith(b"-"):
        raise failed(host, port, _text(line))
    if not line.startswith((b":", b"+")):
        return port
    if line.startswith(b":") and line[1:].strip().isdigit() and int(line[1:]):
        return int(line[1:])
    raise failed(host, port, "it accepts no sessions (kv.sessions), or is not a Verbena server")


def _text(line: bytes) -> str:
    return line[1:].decode("utf-8", "replace").strip()


def _pack(*arguments: str) -> bytes:
    raw = [argument.encode() for argument in arguments]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in raw)


def failed(host: str, port: int, why: str) -> VerbenaError:
    return setup_error("unreachable", operation="follow a primary", detail=f"{host}:{port}: {why}")
