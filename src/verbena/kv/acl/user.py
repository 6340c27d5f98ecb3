"""A user: its passwords, whether it is enabled, and its rules."""

from __future__ import annotations

import hashlib
import hmac
import re

from verbena.kv.acl.selector import RuleError, Selector
from verbena.kv.commands.declare import Command, find

_HASH = re.compile(rb"[0-9a-f]{64}")
BAD_HASH = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"


def hash_password(password: bytes) -> str:
    return hashlib.sha256(password).hexdigest()


class User:
    """A new user is disabled and has no passwords and no permissions, as with ACL SETUSER."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.enabled = False
        self.nopass = False
        self.sanitizes = True
        self.passwords: list[str] = []  # hashes
        self.root = Selector()
        self.selectors: list[Selector] = []
        self.may_do_all = False  # no check is needed

    @property
    def needs_no_password(self) -> bool:
        return self.enabled and self.nopass

    def with_rules(self, rules: list[bytes]) -> User:
        """Returns a copy changed by these rules. RuleError: a rule is wrong; the text begins with it."""
        result = User(self.name)
        result.enabled, result.nopass, result.sanitizes = self.enabled, self.nopass, self.sanitizes
        result.passwords = list(self.passwords)
        result.root, result.selectors = self.root.copy(), [selector.copy() for selector in self.selectors]
        for rule in join_selectors(rules):
            try:
                result._apply(rule)
            except RuleError as mistake:
                raise RuleError(
                    f"Error in ACL SETUSER modifier '{rule.decode('utf-8', 'replace')}': {mistake}"
                ) from None
        result.may_do_all = result.root.allows_everything
        return result

    def copy_from(self, other: User) -> None:
        """Takes over another user's state, so that it applies to connected clients at once."""
        self.__dict__.update(other.__dict__)

    def _apply(self, rule: bytes) -> None:
        word = rule.lower()
        if word in (b"on", b"off"):
            self.enabled = word == b"on"
        elif word == b"nopass":
            self.nopass, self.passwords = True, []
        elif word == b"resetpass":
            self.nopass, self.passwords = False, []
        elif word in (b"sanitize-payload", b"skip-sanitize-payload"):
            self.sanitizes = word == b"sanitize-payload"
        elif word == b"reset":
            name = self.name
            self.copy_from(User(name))
        elif word == b"clearselectors":
            self.selectors = []
        elif rule[:1] in (b">", b"#"):
            self._add_password(rule)
        elif rule[:1] in (b"<", b"!"):
            self._remove_password(rule)
        elif rule[:1] == b"(":
            selector = Selector()
            for inner in rule[1:-1].split():
                selector.apply(inner)
            self.selectors.append(selector)
        else:
            self.root.apply(rule)

    def _add_password(self, rule: bytes) -> None:
        if rule[:1] == b"#" and not _HASH.fullmatch(rule[1:]):
            raise RuleError(BAD_HASH)
        digest = rule[1:].decode() if rule[:1] == b"#" else hash_password(rule[1:])
        self.nopass = False
        if digest not in self.passwords:
            self.passwords.append(digest)

    def _remove_password(self, rule: bytes) -> None:
        if rule[:1] == b"!" and not _HASH.fullmatch(rule[1:]):
            raise RuleError(BAD_HASH)
        digest = rule[1:].decode() if rule[:1] == b"!" else hash_password(rule[1:])
        if digest not in self.passwords:
            raise RuleError("The password you are trying to remove from the user does not exist")
        self.passwords.remove(digest)

    def accepts(self, password: bytes) -> bool:
        """Returns whether a password is right; takes the same time for any wrong one."""
        if self.nopass:
            return True
        digest = hash_password(password)
        return sum(hmac.compare_digest(digest, known) for known in self.passwords) > 0

    def check(self, command: Command, argv: list[bytes]) -> tuple[str, bytes] | None:
        """Returns None if the command is allowed, else ("command" | "key" | "channel", its name)."""
        best: tuple[str, bytes] | None = None
        for selector in (self.root, *self.selectors):
            refused = _check_one(selector, command, argv)
            if refused is None:
                return None
            if best is None or _DEPTH[refused[0]] > _DEPTH[best[0]]:
                best = refused
        return best

    def reads_all_keys(self, command: Command, argv: list[bytes]) -> bool:
        """Whether a selector that allows the command also allows to read every key."""
        return self.may_do_all or any(
            selector.reads_all_keys and _check_one(selector, command, argv) is None
            for selector in (self.root, *self.selectors)
        )

    @property
    def may_read_memory(self) -> bool:
        """Whether the user may read the store's memory one-sided. It contains the names and values of all
        keys in all databases, so the user needs the rights to GET, SCAN and SELECT all of them."""
        return all(
            (command := find([name])) is not None and self.reads_all_keys(command, [name, b""])
            for name in (b"GET", b"SCAN", b"SELECT")
        )

    @property
    def flags(self) -> list[str]:
        found = ["on" if self.enabled else "off"]
        found += ["nopass"] if self.nopass else []
        found += [] if self.sanitizes else ["skip-sanitize-payload"]
        return found

    def describe(self) -> str:
        """Returns a line of ACL LIST and of the ACL file."""
        words = ["user", self.name, *self.flags, *(f"#{digest}" for digest in self.passwords)]
        words.append(self.root.describe())
        words += [f"({selector.describe()})" for selector in self.selectors]
        return " ".join(words)


# Of several selectors, the error of the one that passed most checks is reported.
_DEPTH = {"command": 0, "key": 1, "channel": 2}
_CHANNELS = {
    "PUBLISH": (1, 2), "SPUBLISH": (1, 2), "SUBSCRIBE": (1, None), "SSUBSCRIBE": (1, None),
    "PSUBSCRIBE": (1, None),
}  # fmt: skip


def _check_one(selector: Selector, command: Command, argv: list[bytes]) -> tuple[str, bytes] | None:
    if "no_auth" not in command.flags and selector.refuses_command(command, argv):
        return "command", command.name.lower().replace(" ", "|").encode()
    if (key := selector.refused_key(command, argv)) is not None:
        return "key", key
    if command.name in _CHANNELS and not selector.all_channels:
        first, last = _CHANNELS[command.name]
        for channel in argv[first:last]:
            if not selector.allows_channel(channel, is_pattern=command.name == "PSUBSCRIBE"):
                return "channel", channel
    return None


def join_selectors(rules: list[bytes]) -> list[bytes]:
    """Joins selectors that are spread over several arguments."""
    out: list[bytes] = []
    inside: list[bytes] = []
    for rule in rules:
        if not inside and rule[:1] != b"(":
            out.append(rule)
            continue
        inside.append(rule)
        if rule[-1:] == b")":
            out.append(b" ".join(inside))
            inside = []
    if inside:
        start = inside[0].decode("utf-8", "replace")
        raise RuleError(f"Unmatched parenthesis in acl selector starting at '{start}'.")
    return out
