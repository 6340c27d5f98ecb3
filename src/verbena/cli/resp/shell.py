"""The prompt of `verbena cli`, with history; completion and hints come from the server's COMMAND DOCS."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from verbena.cli.resp import text as kv_text
from verbena.kv.client.resp_connection import ErrorReply, PushReply, RespConnection

HISTORY = "~/.verbena_cli_history"
_SECRET = frozenset({"AUTH", "HELLO", "ACL"})  # lines that may contain passwords are not saved
_STREAMS = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "MONITOR"})


class BadQuotes(ValueError):
    """The quotes in a line do not match."""


def split(line: str) -> list[bytes]:
    """Splits a line as redis-cli does: "…" with escapes, '…' without. Raises BadQuotes."""
    words, at, data = [], 0, line.encode("utf-8", "surrogateescape")
    while at < len(data):
        if data[at : at + 1].isspace():
            at += 1
            continue
        word, at = _word(data, at)
        words.append(word)
    return words


_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def _word(data: bytes, at: int) -> tuple[bytes, int]:
    quote = data[at : at + 1] if data[at : at + 1] in (b'"', b"'") else b""
    at += len(quote)
    out = bytearray()
    while at < len(data):
        char = data[at : at + 1]
        if quote and char == quote:
            if at + 1 < len(data) and not data[at + 1 : at + 2].isspace():
                raise BadQuotes
            return bytes(out), at + 1
        if not quote and char.isspace():
            return bytes(out), at
        if quote == b'"' and char == b"\\" and at + 1 < len(data):
            at += 1
            char = data[at : at + 1]
            with contextlib.suppress(ValueError):
                if char == b"x" and at + 2 < len(data):
                    out.append(int(data[at + 1 : at + 3], 16))
                    at += 3
                    continue
            out += _ESCAPES.get(char, char)
        elif quote == b"'" and data[at : at + 2] == b"\\'":
            at += 1
            out += b"'"
        else:
            out += char
        at += 1
    if quote:
        raise BadQuotes
    return bytes(out), at


class Commands:
    """Names and summaries from COMMAND DOCS; empty if the server does not support it."""

    def __init__(self, wire: RespConnection) -> None:
        self.summaries: dict[str, str] = {}
        reply = wire.call("COMMAND", "DOCS")
        if isinstance(reply, (list, dict)):
            self._add(_pairs(reply))

    def _add(self, docs: dict[bytes, Any]) -> None:
        for name, doc in docs.items():
            fields = _pairs(doc)
            text = name.decode("utf-8", "replace").upper().replace("|", " ")
            self.summaries[text] = fields.get(b"summary", b"").decode("utf-8", "replace")
            self._add(_pairs(fields.get(b"subcommands", {})))

    def completions(self, line: str) -> list[str]:
        """Returns the commands that begin with `line`, in lower case if it is."""
        found = [name for name in sorted(self.summaries) if name.startswith(line.upper())]
        return [name.lower() for name in found] if line.islower() else found

    def hint(self, words: list[bytes]) -> str:
        """Returns the summary of a command, or ""."""
        names = [word.decode("utf-8", "replace").upper() for word in words[:2]]
        return self.summaries.get(" ".join(names)) or self.summaries.get(names[0], "")


def _pairs(reply: Any) -> dict[Any, Any]:
    if isinstance(reply, dict):
        return dict(reply)
    return dict(zip(reply[::2], reply[1::2], strict=False))


def run(wire: RespConnection, show: Callable[[Any], None], reconnect: Callable[[], RespConnection]) -> int:
    """Runs the prompt until the input ends or `exit`; reconnects when the connection is lost."""
    commands = Commands(wire)
    history = _prepare(commands)
    database, queued = 0, False
    try:
        while True:
            suffix = f"[{database}]" if database else ""
            try:
                line = input(f"{wire.where}{suffix}{'(TX)' if queued else ''}> ").strip()
            except KeyboardInterrupt:
                print()
                continue
            except EOFError:
                print()
                return 0
            try:
                words = split(line)
            except BadQuotes:
                print("Invalid argument(s)")
                continue
            if not words:
                continue
            name = words[0].decode("utf-8", "replace").upper()
            if name in ("EXIT", "QUIT"):
                return 0
            if name in ("HELP", "?"):
                _help(commands, words[1:])
                continue
            try:
                reply = wire.call(*words)
                show(kv_text.prepare_reply(words, reply))
                if name in _STREAMS and not isinstance(reply, ErrorReply):
                    _listen(wire, show)
            except (EOFError, OSError):
                print("the server closed the connection; connecting again")
                wire, database, queued = reconnect(), 0, False
                continue
            if name == "SELECT" and reply == "OK":
                database = int(words[1])
            if name == "MULTI" and reply == "OK":
                queued = True
            if name in ("EXEC", "DISCARD", "RESET") or isinstance(reply, ErrorReply):
                queued = queued and name not in ("EXEC", "DISCARD", "RESET")
            if isinstance(reply, ErrorReply) and (hint := commands.hint(words)):
                print(f"{name}: {hint}")
            while _has_push(wire):
                show(wire.read())
    finally:
        _save_history(history)


def _has_push(wire: RespConnection) -> bool:
    """Whether an unsolicited push message is waiting."""
    wire.socket.setblocking(False)
    try:
        return wire.file.peek(1)[:1] == b">"
    except (BlockingIOError, OSError):
        return False
    finally:
        wire.socket.setblocking(True)


def _listen(wire: RespConnection, show: Callable[[Any], None]) -> None:
    print("Reading messages... (press Ctrl-C to stop)")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            message = wire.read()
            show(list(message) if isinstance(message, PushReply) else message)
    raise EOFError  # reconnect: later messages would be taken for replies


def _help(commands: Commands, words: list[bytes]) -> None:
    prefix = b" ".join(words).decode("utf-8", "replace").upper()
    found = [name for name in sorted(commands.summaries) if name.startswith(prefix)]
    for name in found:
        print(f"  {name:<24} {commands.summaries[name]}")
    if not found:
        print(f"no command begins with {prefix}")


def _prepare(commands: Commands) -> str:
    """Sets up line editing if readline is available; returns the path of the history file, or ""."""
    try:
        import readline
    except ImportError:
        return ""
    path = os.path.expanduser(os.environ.get("VERBENA_CLI_HISTORY", HISTORY))
    with contextlib.suppress(OSError):
        readline.read_history_file(path)

    def complete(text: str, state: int) -> str | None:
        line = readline.get_line_buffer()[: readline.get_endidx()].lstrip()
        start = len(line) - len(text)
        found = [name[start:] for name in commands.completions(line)]
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
    return path


def _save_history(path: str) -> None:
    if not path:
        return
    import readline

    for number in range(readline.get_current_history_length(), 0, -1):
        line = readline.get_history_item(number) or ""
        if line.split(" ")[0].upper() in _SECRET:
            readline.remove_history_item(number - 1)
    with contextlib.suppress(OSError):
        readline.set_history_length(1000)
        readline.write_history_file(path)
        os.chmod(path, 0o600)
