"""Formats of replies in `verbena cli`: formatted, raw, CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from verbena.kv.client.resp_connection import ErrorReply
from verbena.kv.server.monitor import quoted

# Commands with multi-line text replies, printed unchanged as in redis-cli.
_TEXTS = {b"INFO", b"CLUSTER INFO", b"CLUSTER NODES", b"CLIENT LIST", b"CLIENT INFO", b"LATENCY DOCTOR",
          b"MEMORY DOCTOR"}  # fmt: skip


def prepare_reply(words: Sequence[bytes], reply: Any) -> Any:
    """Prepares a reply for the functions below: multi-line text becomes `str`."""
    names = {words[0].upper(), b" ".join(words[:2]).upper()}
    return reply.decode(errors="replace") if isinstance(reply, bytes) and names & _TEXTS else reply


def formatted(reply: Any, indent: int = 0) -> str:
    """Formats with types and numbers, as redis-cli does on a terminal."""
    if isinstance(reply, ErrorReply):
        return f"(error) {reply}"
    if reply is None:
        return "(nil)"
    if isinstance(reply, bool):
        return "(true)" if reply else "(false)"
    if isinstance(reply, int):
        return f"(integer) {reply}"
    if isinstance(reply, float):
        return f"(double) {reply:g}"
    if isinstance(reply, bytes):
        return quoted(reply)
    if isinstance(reply, str):
        return reply
    if isinstance(reply, dict):
        rows = [f"{formatted(_value(key))} => {formatted(value, 3)}" for key, value in reply.items()]
        return _numbered(rows, "# ", indent) if rows else "(empty hash)"
    rows = [formatted(item, indent + len(f"{len(reply)}) ")) for item in reply]
    return _numbered(rows, ") ", indent) if rows else "(empty array)"


def _numbered(rows: list[str], mark: str, indent: int) -> str:
    width = len(str(len(rows)))
    lines = [f"{number:>{width}}{mark}{row}" for number, row in enumerate(rows, 1)]
    return f"\n{' ' * indent}".join(lines)


def _value(key: Any) -> Any:
    return list(key) if isinstance(key, tuple) else key


def raw(reply: Any) -> bytes:
    """Formats without decoration, one item per line."""
    if reply is None:
        return b""
    if isinstance(reply, bytes):
        return reply
    if isinstance(reply, bool):
        return b"true" if reply else b"false"
    if isinstance(reply, dict):
        return b"\n".join(raw(_value(item)) for pair in reply.items() for item in pair)
    if isinstance(reply, list):
        return b"\n".join(raw(item) for item in reply)
    text = f"{reply:g}" if isinstance(reply, float) else str(reply)
    return text.encode("utf-8", "surrogateescape")


def csv(reply: Any) -> str:
    if isinstance(reply, ErrorReply):
        return f'ERROR,"{reply}"'
    if reply is None:
        return "NULL"
    if isinstance(reply, bytes):
        return quoted(reply)
    if isinstance(reply, dict):
        return ",".join(csv(_value(item)) for pair in reply.items() for item in pair)
    if isinstance(reply, list):
        return ",".join(csv(item) for item in reply)
    if isinstance(reply, str):
        return f'"{reply}"'
    return f"{reply}"


def as_json(reply: Any) -> str:
    return json.dumps(_plain(reply), ensure_ascii=False)


def _plain(reply: Any) -> Any:
    if isinstance(reply, ErrorReply):
        return {"error": str(reply)}
    if isinstance(reply, bytes):
        return reply.decode("utf-8", "backslashreplace")
    if isinstance(reply, dict):
        return {str(_plain(_value(key))): _plain(value) for key, value in reply.items()}
    if isinstance(reply, list):
        return [_plain(item) for item in reply]
    return reply
