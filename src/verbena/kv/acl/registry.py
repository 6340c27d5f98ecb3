"""All users, the log of refused commands, and the ACL file."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verbena.kv.acl.selector import RuleError
from verbena.kv.acl.user import User, hash_password
from verbena.kv.commands.replies import CommandError

if TYPE_CHECKING:
    from verbena.kv.commands.declare import Command
    from verbena.kv.server.clients import Client

_SAME_WITHIN_MS = 60_000  # equal refusals within this time share one entry


@dataclass
class LogEntry:
    """One line of ACL LOG."""

    number: int
    reason: str  # auth, command, key or channel
    context: str  # toplevel or multi
    what: bytes
    user: str
    client: str
    created_ms: int
    updated_ms: int
    count: int = field(default=1)


class Acl:
    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.file = ""
        self.max_log_entries = 128
        self.log: deque[LogEntry] = deque()
        self.new_users_all_channels = False  # acl-pubsub-default
        self.refused = {"auth": 0, "command": 0, "key": 0, "channel": 0}
        self._numbers = 0
        self.set_user("default", [b"on", b"nopass", b"~*", b"&*", b"+@all"])

    @property
    def default(self) -> User:
        return self.users["default"]

    @property
    def is_open(self) -> bool:
        """Whether no access rights are set up: there is no ACL file, no user has a password, and the default
        user needs none."""
        has_password = any(user.passwords for user in self.users.values())
        return not self.file and not has_password and self.default.needs_no_password

    def set_user(self, name: str, rules: list[bytes]) -> User:
        """Creates or changes a user. RuleError: a rule is wrong; nothing has changed."""
        user = self.users.get(name)
        if user is None:
            first = [b"allchannels"] if self.new_users_all_channels else []
            user = User(name).with_rules([*first, *rules])
            self.users[name] = user
        else:
            user.copy_from(user.with_rules(rules))
        return user

    def set_password(self, password: str) -> None:
        """requirepass: the default user's only password; "": none is needed."""
        rules = [b"resetpass", b">" + os.fsencode(password)] if password else [b"nopass"]
        self.set_user("default", rules)

    def authenticate(self, name: str, password: bytes) -> User | None:
        user = self.users.get(name)
        if user is None:
            hash_password(password)  # takes as long as for an existing user
            return None
        accepted = user.accepts(password)
        return user if accepted and user.enabled else None

    # Refusals

    def check(self, client: Client, command: Command, argv: list[bytes], now_ms: int) -> CommandError | None:
        """Returns the error for a command that the client's user may not run."""
        refused = client.user.check(command, argv)
        if refused is None:
            return None
        reason, what = refused
        self.note(client, reason, what, now_ms)
        return CommandError(f"NOPERM {_words(client.user, reason, what, for_client=True)}")

    def note(
        self,
        client: Client | None,
        reason: str,
        what: bytes,
        now_ms: int,
        user: str | None = None,
        client_text: str = "",
    ) -> None:
        """Adds a refusal to the log. `client_text` describes a peer that is no client yet (None)."""
        from verbena.kv.server.client_info import describe

        self.refused[reason] += 1
        context = "multi" if client is not None and client.queue is not None else "toplevel"
        if user is None:
            user = (client.user if client is not None else self.default).name
        for entry in self.log:
            alike = (entry.reason, entry.context, entry.what, entry.user) == (reason, context, what, user)
            if alike and now_ms - entry.updated_ms <= _SAME_WITHIN_MS:
                entry.count += 1
                entry.updated_ms = now_ms
                self.log.remove(entry)
                self.log.appendleft(entry)
                return
        text = describe(client, now_ms) if client is not None else client_text
        self.log.appendleft(LogEntry(self._numbers, reason, context, what, user, text, now_ms, now_ms))
        self._numbers += 1
        while len(self.log) > self.max_log_entries:
            self.log.pop()

    def dry_run(self, user: User, command: Command, argv: list[bytes]) -> str | bytes:
        refused = user.check(command, argv)
        return "OK" if refused is None else _words(user, *refused, for_client=False).encode()

    # The file

    def save(self) -> None:
        """Replaces the file atomically. OSError: it failed."""
        folder = os.path.dirname(os.path.abspath(self.file))
        text = "".join(f"{user.describe()}\n" for user in self.users.values())
        with tempfile.NamedTemporaryFile("wb", dir=folder, prefix=".acl-", delete=False) as out:
            try:
                out.write(text.encode("utf-8", "surrogateescape"))
                out.flush()
                os.fsync(out.fileno())
                os.replace(out.name, self.file)
            except BaseException:
                os.unlink(out.name)
                raise

    def load(self) -> None:
        """Reads the file. RuleError: a line is wrong; nothing has changed."""
        with open(self.file, "rb") as source:
            lines = source.read().splitlines()
        found: dict[str, User] = {}
        mistakes: list[str] = []
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith(b"#"):
                continue
            where = f"{self.file}:{number}: "
            if words[0] != b"user" or len(words) < 2:
                mistakes.append(f"{where}should start with user keyword followed by the username.")
                continue
            name = words[1].decode("utf-8", "surrogateescape")
            if name in found:
                mistakes.append(f"{where}WARNING: user '{name}' is duplicated.")
                continue
            try:
                found[name] = User(name).with_rules(words[2:])
            except RuleError as mistake:
                mistakes.append(f"{where}{mistake}.")
        if mistakes:
            raise RuleError(
                " ".join(mistakes) + " WARNING: ACL errors detected, no change to the previously active ACL "
                "rules was performed"
            )
        if "default" not in found:
            found["default"] = User("default").with_rules([b"on", b"nopass", b"~*", b"&*", b"+@all"])
        for name, user in found.items():
            if name in self.users:
                self.users[name].copy_from(user)
                found[name] = self.users[name]
        self.users = found


def _words(user: User, reason: str, what: bytes, *, for_client: bool) -> str:
    text = what.decode("utf-8", "replace")
    if for_client and reason != "command":
        return f"No permissions to access a {reason}"  # the name is in ACL LOG, for users that may read it
    name = f"User {user.name}"
    if reason == "command":
        return f"{name} has no permissions to run the '{text}' command"
    return f"{name} has no permissions to access the '{text}' {reason}"
