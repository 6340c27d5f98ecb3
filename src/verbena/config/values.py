"""Checks the values of file, environment and flags against the table of keys, and collects all problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path as Folder
from typing import Any, Literal

from verbena.config.document import Document
from verbena.config.keys import Key
from verbena.config.kinds import FilePath, InvalidValue, printable, shown
from verbena.config.model import KEYS, SECTIONS, Config, Source, build
from verbena.config.near import nearest
from verbena.config.rules import RULES, WARNINGS, Rule
from verbena.errors import ConfigurationProblem

_MAX_SUGGESTIONS = 100  # beyond it the file is not a configuration, and suggestions are slow
_INHERITED = ("SERVICE_HOST", "SERVICE_PORT", "PORT")  # Kubernetes sets these for a service verbena-…


@dataclass
class ValueCollector:
    """The values so far with their sources, and the problems. A later source replaces earlier values."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    problems: list[ConfigurationProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    document: Document | None = None
    _check_warnings: set[str] = field(default_factory=set)

    def add_document(self, document: Document, *, folder: Folder | None = None) -> None:
        """Adds the values and problems of a file. File paths among the values are relative to `folder`."""
        self.document = document
        self.problems += document.problems
        for path, value in self._leaves(document, document.tables, ()):
            key = KEYS[".".join(path)]
            source = Source("file", document.name, document.line_of(path))
            self._take(key, key.kind.from_toml, value, source, partial(document.problem, path))
            if folder and isinstance(key.kind, FilePath) and self.values.get(key.path):
                self.values[key.path] = str(folder / self.values[key.path])

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Adds the VERBENA_… variables; an empty one counts as not set. Warns of probably misspelt ones."""
        by_variable = {key.variable: key.path for key in KEYS.values()}
        for variable, path in by_variable.items():
            if text := environment.get(variable, ""):
                self.add_text(path, text, Source("environment", variable))
        prefixes = tuple({f"VERBENA_{name}_".upper().replace(".", "_") for name in SECTIONS})
        for variable in sorted(environment):
            if variable.startswith(prefixes) and variable not in by_variable and environment[variable]:
                near = nearest(variable, by_variable)
                if near and not variable.endswith(_INHERITED):
                    self.warnings.append(f"unknown variable {variable}; did you mean {near}?")

    def add_text(self, path: str, text: str, source: Source) -> None:
        """Adds one value given as text."""
        key = KEYS[path]
        problem = partial(ConfigurationProblem, key=path, source=source.name)
        self._take(key, key.kind.from_text, text, source, problem)

    def add_value(self, path: str, value: object) -> None:
        """Adds one value given by the program."""
        key = KEYS[path]
        self._take(key, key.kind.from_toml, value, Source("program"), partial(ConfigurationProblem, key=path))

    def check_rules(self) -> Config:
        """Builds the configuration and checks the rules between keys. Rules with a key that already has a
        problem are skipped, and all of them if the file has syntax errors."""
        config = build(self.values, sources=self.sources)
        if self.document and self.document.problems:
            return config  # the parts that could not be parsed may satisfy the rules
        for rule in RULES:
            if self._check_warnings.isdisjoint(rule.keys) and not rule.holds(config):
                self.problems.append(self._broken(rule, config))
        for doubt in WARNINGS:
            if self._check_warnings.isdisjoint(doubt.keys) and not doubt.holds(config):
                self.warnings.append(self._broken(doubt, config).summary)
        return config

    def _take(
        self,
        key: Key,
        read: Callable[[Any], Any],
        value: object,
        source: Source,
        problem: Callable[[str], ConfigurationProblem],
    ) -> None:
        try:
            self.values[key.path] = read(value)
            self.sources[key.path] = source
        except InvalidValue as refusal:
            self._check_warnings.add(key.path)
            self.problems.append(problem(f"{key.path} must be {key.kind.allowed}, {refusal}"))

    def _broken(self, rule: Rule, config: Config) -> ConfigurationProblem:
        states = [f"{path} is {KEYS[path].kind.to_toml(config[path])}" for path in rule.keys]
        message = f"{_joined(states)}: {rule.statement}"
        set_keys = [path for path in rule.keys if path in self.sources]
        path = set_keys[0] if set_keys else rule.keys[0]
        source = config.source_of(path)
        if self.document and source.kind == "file":
            return self.document.problem(tuple(path.split(".")), message)
        return ConfigurationProblem(message, path, source.name)

    def _leaves(
        self, document: Document, table: Mapping[str, Any], above: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yields every known key of a table with its value; unknown names become problems."""
        for name, value in table.items():
            path = (*above, name)
            full = ".".join(path)
            if "." in name or full not in KEYS.keys() | SECTIONS.keys():
                self._unknown(document, path, value)
            elif full in KEYS:
                yield path, value
            elif isinstance(value, dict):
                yield from self._leaves(document, value, path)
            else:
                found = "an array of tables" if isinstance(value, list) else shown(value)
                message = f"{full} is a section, written once as [{full}], not {found}"
                self.problems.append(document.problem(path, message, at_key=True))

    def _unknown(self, document: Document, path: tuple[str, ...], value: object) -> None:
        kind: Literal["section", "key"] = "section" if isinstance(value, dict) else "key"
        full = printable(".".join(path))
        message = f"there is no {kind} {full}"
        if len(self.problems) < _MAX_SUGGESTIONS and (hint := _suggestion(path, kind)):
            message += f"; {hint}"
        self.problems.append(document.problem(path, message, at_key=True))


def _suggestion(path: tuple[str, ...], kind: Literal["section", "key"]) -> str:
    """Returns a suggestion for an unknown name: a similar name in the same section, or the same name in
    another; otherwise the list of sections, or an empty text."""
    *above, name = path
    prefix = "".join(f"{part}." for part in above)
    known = SECTIONS.keys() if kind == "section" else KEYS.keys()
    beside = [full.removeprefix(prefix) for full in known if full.startswith(prefix)]
    beside = [candidate for candidate in beside if "." not in candidate]
    plain = name.casefold().replace("-", "_")
    longer = [candidate for candidate in beside if plain in candidate.split("_")]
    if near := nearest(name, beside) or (longer[0] if len(longer) == 1 else None):
        return f"did you mean {f'[{prefix}{near}]' if kind == 'section' else near}?"
    same = [full for full in known if full.rpartition(".")[2] == plain]
    if same and kind == "key":
        return f"it belongs in {_joined([f'[{KEYS[full].section}]' for full in same], 'or')}"
    if near := same[0] if len(same) == 1 else nearest(".".join(path), known):
        return f"did you mean {f'[{near}]' if kind == 'section' else near}?"
    if kind == "section" or not above:
        return f"the sections are {_joined([f'[{section}]' for section in SECTIONS])}"
    return ""


def _joined(words: list[str], conjunction: str = "and") -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {conjunction} {words[-1]}"
