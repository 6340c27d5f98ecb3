"""A selector: a set of rules for commands, keys and channels. A user has one, and more in parentheses."""

from __future__ import annotations

from verbena.kv.acl.categories import members
from verbena.kv.commands.declare import CATEGORIES, COMMANDS, Command
from verbena.kv.commands.key_access import keys_of, needs
from verbena.kv.values.glob import matches


class RuleError(Exception):
    """A rule is malformed or does not apply; the text is the one that Redis has."""


UNKNOWN_COMMAND = "Unknown command or category name in ACL"
AFTER_STAR = (
    "Adding a pattern after the * pattern (or the '{0}' flag) is not valid and does not have any effect. "
    "Try 'reset{1}' to start with an empty list of patterns"
)


class Selector:
    """Rules are applied in the order in which they are given."""

    def __init__(self) -> None:
        self.all_commands = False  # and those that are declared later
        self.commands: set[str] = set()  # allowed, or refused if all_commands
        self.first_arguments: dict[str, set[bytes]] = {}
        self.rules: list[str] = ["-@all"]  # about commands, in order
        self.all_keys = self.all_channels = False
        self.keys: list[tuple[str, bytes]] = []  # "R", "W" or "RW", and the pattern
        self.channels: list[bytes] = []

    @property
    def allows_everything(self) -> bool:
        return self.all_commands and not self.commands and self.all_keys and self.all_channels

    def copy(self) -> Selector:
        result = Selector()
        result.all_commands, result.commands = self.all_commands, set(self.commands)
        result.first_arguments = {name: set(words) for name, words in self.first_arguments.items()}
        result.rules, result.keys, result.channels = list(self.rules), list(self.keys), list(self.channels)
        result.all_keys, result.all_channels = self.all_keys, self.all_channels
        return result

    # Rules

    def apply(self, rule: bytes) -> None:
        """Applies one rule. RuleError: it is malformed."""
        word = rule.lower()
        if word in (b"allkeys", b"~*"):
            self.all_keys, self.keys = True, []
        elif word == b"resetkeys":
            self.all_keys, self.keys = False, []
        elif word in (b"allchannels", b"&*"):
            self.all_channels, self.channels = True, []
        elif word == b"resetchannels":
            self.all_channels, self.channels = False, []
        elif word in (b"allcommands", b"+@all"):
            self._all(True)
        elif word in (b"nocommands", b"-@all"):
            self._all(False)
        elif rule[:1] in (b"~", b"%"):
            self._add_key(rule)
        elif rule[:1] == b"&":
            if self.all_channels:
                raise RuleError(AFTER_STAR.format("allchannels", "channels"))
            if rule[1:] not in self.channels:
                self.channels.append(rule[1:])
        elif rule[:1] in (b"+", b"-") and len(rule) > 1:
            self._command(rule[:1] == b"+", rule[1:].decode("latin-1"))
        else:
            raise RuleError("Syntax error")

    def _all(self, allowed: bool) -> None:
        self.all_commands, self.commands, self.first_arguments = allowed, set(), {}
        self.rules = ["+@all" if allowed else "-@all"]

    def _add_key(self, rule: bytes) -> None:
        flags, _, pattern = rule.partition(b"~")
        wanted = flags[1:].upper() if flags else b"RW"
        if not wanted or set(wanted) - set(b"RW") or (flags and flags[:1] != b"%"):
            raise RuleError("Syntax error")
        access = "".join(letter for letter in "RW" if letter.encode() in wanted)
        if access == "RW" and pattern == b"*":
            self.all_keys, self.keys = True, []
            return
        if self.all_keys:
            raise RuleError(AFTER_STAR.format("allkeys", "keys"))
        known = next((i for i, (_, other) in enumerate(self.keys) if other == pattern), None)
        if known is None:
            self.keys.append((access, pattern))
        else:
            before = self.keys[known][0]
            self.keys[known] = ("".join(letter for letter in "RW" if letter in before + access), pattern)

    def _command(self, allowed: bool, text: str) -> None:
        if text.startswith("@"):
            if text[1:].lower() not in CATEGORIES:
                raise RuleError(UNKNOWN_COMMAND)
            self._set(members(text[1:].lower()), allowed)
            self._note(allowed, text.lower())
            return
        name, bar, rest = text.partition("|")
        whole = f"{name} {rest}".upper()
        if not bar:
            chosen = with_subcommands(name.upper())
        elif whole in COMMANDS:
            chosen = {whole}
        elif (
            not allowed
            or "|" in rest
            or not rest
            or name.upper() not in COMMANDS
            or any(known.startswith(f"{name.upper()} ") for known in COMMANDS)
        ):
            raise RuleError(UNKNOWN_COMMAND)
        else:
            self.first_arguments.setdefault(name.upper(), set()).add(rest.lower().encode("latin-1"))
            self._note(allowed, text.lower())
            return
        if not chosen:
            raise RuleError(UNKNOWN_COMMAND)
        self._set(chosen, allowed)
        for gone in chosen:
            self.first_arguments.pop(gone, None)
        self._note(allowed, text.lower())

    def _set(self, names: set[str] | frozenset[str], allowed: bool) -> None:
        if allowed == self.all_commands:
            self.commands -= names
        else:
            self.commands |= names

    def _note(self, allowed: bool, text: str) -> None:
        """Drops earlier rules about this command."""
        self.rules = [rule for rule in self.rules if rule[1:] != text and not rule[1:].startswith(f"{text}|")]
        self.rules.append(("+" if allowed else "-") + text)

    # Checks

    def refuses_command(self, command: Command, argv: list[bytes]) -> bool:
        if (command.name in self.commands) != self.all_commands:
            return False
        words = self.first_arguments.get(command.name)
        return not (words and len(argv) > 1 and argv[1].lower() in words)

    def refused_key(self, command: Command, argv: list[bytes]) -> bytes | None:
        if self.all_keys:
            return None
        for at, flags in keys_of(command, argv):
            if not self.allows_key(argv[at], needs(flags)):
                return argv[at]
        return None

    def allows_key(self, key: bytes, wanted: str) -> bool:
        return self.all_keys or any(
            set(wanted) <= set(access) and matches(pattern, key) for access, pattern in self.keys
        )

    @property
    def reads_all_keys(self) -> bool:
        """Whether it allows to read keys that the arguments of a command do not name."""
        return self.all_keys or any("R" in access and pattern == b"*" for access, pattern in self.keys)

    def allows_channel(self, channel: bytes, *, is_pattern: bool) -> bool:
        if self.all_channels:
            return True
        if is_pattern:  # must equal a granted pattern: what a pattern matches is not known
            return channel in self.channels
        return any(matches(pattern, channel) for pattern in self.channels)

    # Texts

    @property
    def key_rules(self) -> str:
        if self.all_keys:
            return "~*"
        return " ".join(
            ("~" if access == "RW" else f"%{access}~") + pattern.decode("utf-8", "surrogateescape")
            for access, pattern in self.keys
        )

    @property
    def channel_rules(self) -> str:
        if self.all_channels:
            return "&*"
        return " ".join("&" + pattern.decode("utf-8", "surrogateescape") for pattern in self.channels)

    @property
    def command_rules(self) -> str:
        return " ".join(self.rules)

    def describe(self) -> str:
        channels = self.channel_rules if self.all_channels else f"resetchannels {self.channel_rules}".strip()
        return " ".join(filter(None, (self.key_rules, channels, self.command_rules)))


def with_subcommands(name: str) -> set[str]:
    """Returns a command with its subcommands."""
    return {known for known in COMMANDS if known == name or known.startswith(f"{name} ")}
