"""Access rules per repository. Each line of the file has a user, a repository pattern and rights; a
request is allowed if at least one line allows it:

        # user      repositories   rights
        anonymous   public/**      pull
        *           team/*         pull,push
        alice       **             pull,push,delete

The user `*` is every authenticated user. In patterns `*` matches within one path component, `**` across
them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from verbena.errors import ConfigurationProblem, configuration_error

ACTIONS = frozenset({"pull", "push", "delete"})
ANONYMOUS = "anonymous"
MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Rule:
    user: str
    repositories: re.Pattern[str]
    actions: frozenset[str]

    def allows(self, user: str, action: str, repository: str) -> bool:
        about = self.user == (user or ANONYMOUS) or (self.user == "*" and bool(user))
        return about and action in self.actions and self.repositories.fullmatch(repository) is not None


@dataclass(frozen=True)
class Policy:
    """With rules, a request needs one rule that allows it. Without rules, authenticated users may do
    everything, and anonymous requests may do the actions in `anonymous`."""

    anonymous: frozenset[str] = ACTIONS
    rules: tuple[Rule, ...] | None = None

    def allows(self, user: str, action: str, repository: str) -> bool:
        if self.rules is not None:
            return any(rule.allows(user, action, repository) for rule in self.rules)
        return bool(user) or action in self.anonymous


def read_rules(file: Path) -> tuple[Rule, ...]:
    """Parses an access file. Raises ConfigurationError that lists every invalid line."""
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        problem = ConfigurationProblem(f"{file}: {error}", "registry.access_file", str(file))
        raise configuration_error([problem]) from error
    rules, problems = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            rules.append(_rule(words))
        except ValueError as error:
            message = f"{file}:{number}: {error}"
            problems.append(ConfigurationProblem(message, "registry.access_file", str(file), number))
    if problems:
        raise configuration_error(problems)
    return tuple(rules)


def _rule(words: list[str]) -> Rule:
    if len(words) != 3:
        raise ValueError("expected: user, repositories, rights")
    user, repositories, rights = words
    actions = frozenset(rights.split(","))
    if unknown := actions - ACTIONS:
        raise ValueError(f"unknown right {min(unknown)!r}; the rights are {', '.join(sorted(ACTIONS))}")
    return Rule(user, _pattern(repositories), actions)


def _pattern(text: str) -> re.Pattern[str]:
    if not re.fullmatch(r"[a-z0-9._/*-]+", text):
        raise ValueError(f"{text!r} is not a pattern of repository names")
    parts = (
        ".*" if part == "**" else "[^/]*" if part == "*" else re.escape(part)
        for part in re.split(r"(\*\*?)", text)
    )
    return re.compile("".join(parts))
