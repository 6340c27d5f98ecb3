"""Scripts for several connections, and what each connection receives: replies and pushes, in order."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kv.redis_peer import Peer

VERSION = re.compile(rb"[0-9]+\.[0-9]+\.[0-9]+")
ANSWERS = (b"subscribe", b"psubscribe", b"unsubscribe", b"pong")


class Cast:
    """Connections by name; one whose name ends in 2 uses RESP2. A line of a script is

    a: GET x            a command, and its reply
    a: GET x | SET x 1  several at once
    a> BLPOP x 0        a command whose reply comes later
    a<                  the reply
    begun a             waits until the server has begun a's last command, whose name differs
                        from that of the last answered one
    wait 0.1
    gone b              the server has closed b

    `{b}` stands for the id of connection b."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._peers: dict[str, Peer] = {}
        self._numbers: dict[str, int] = {}
        self._said: dict[str, str] = {}
        self._answered: dict[str, str] = {}
        self.heard: dict[str, list[Any]] = {}

    def play(self, script: str | Iterable[str]) -> dict[str, list[Any]]:
        """Runs the script and returns what every connection received."""
        for line in script.strip().splitlines() if isinstance(script, str) else script:
            name, _, rest = (part.strip() for part in line.strip().partition(" "))
            if name == "wait":
                time.sleep(float(rest))
            elif name == "gone":
                self._peers.pop(rest).close()
            elif name == "begun":
                self._wait_for(rest)
            elif name.endswith("<"):
                self._answer(name[:-1])
            else:
                self._say(name[:-1], rest, waits=name.endswith(":"))
        for name in self._peers:
            self._say(name, "PING end", waits=True)
        heard, self.heard = self.heard, {name: [] for name in self.heard}
        return heard

    def _say(self, name: str, commands: str, *, waits: bool) -> None:
        peer = self._peer(name)
        for other in dict.fromkeys(part.split("}")[0] for part in commands.split("{")[1:]):
            self._peer(other)
        said = [command.format(**self._numbers).split() for command in commands.split("|")]
        self._said[name] = said[-1][0].lower()
        peer.send_all([[word.replace("''", "") for word in words] for words in said])
        if waits:
            for _ in said:
                self._answer(name)
            self._answered[name] = self._said[name]

    def _wait_for(self, name: str) -> None:
        said = self._said[name]
        assert said != self._answered.get(name), "CLIENT LIST does not tell them apart"
        with contextlib.closing(Peer(self._path, 2)) as watcher:
            until = time.monotonic() + 20
            while True:
                _, line = watcher.run("CLIENT", "LIST", "ID", self._numbers[name])
                if f" cmd={said} ".encode() in line:
                    return
                assert time.monotonic() < until, line
                time.sleep(0.002)

    def _peer(self, name: str) -> Peer:
        if name not in self._peers:
            peer = self._peers[name] = Peer(self._path, 2 if name.endswith("2") else 3)
            self._numbers[name] = peer.run("CLIENT", "ID")[1]
            self.heard[name] = []
        return self._peers[name]

    def _answer(self, name: str) -> None:
        while True:
            value = self._peers[name].read()
            self.heard[name].append(self._plain(value))
            if not is_push(value):
                return

    def _plain(self, value: Any) -> Any:
        """Removes what differs between runs: client ids, versions, and the order of sets."""
        kind, content = value
        if isinstance(content, list):
            inner = [self._plain(one) for one in content]
            return (kind, sorted(inner) if kind == "~" else inner)
        if kind == "$" and VERSION.fullmatch(content or b""):
            return (kind, "version")
        for name, number in self._numbers.items():
            if kind == ":" and content == number and number > 2:
                return (kind, name)
        return value

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()


def is_push(value: Any) -> bool:
    kind, content = value
    if kind not in ">*" or not content:
        return False
    first = content[0][1]
    return first == b"message" if kind == "*" else first not in ANSWERS
