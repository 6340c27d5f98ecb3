"""Declares the table of keys: a section is a frozen dataclass, a key is one of its fields.
The functions integer(), size() and so on create fields that contain the row of a key; rows() returns the rows
of all sections."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

from verbena.config.kinds import Boolean, Choice, Endpoint, Integer, Kind, Secret, SecretText, Size, Text

_UNITS = {"_s": "seconds", "_ms": "milliseconds", "_us": "microseconds"}
SectionType = TypeVar("SectionType", bound="Section")


class Section:
    """A section of the file. The first line of its docstring appears in the reference."""

    READ_BY: ClassVar[str] = ""


@dataclass(frozen=True)
class Key:
    """One row of the table: names, kind of value, default and meaning of a key."""

    section: str
    name: str
    kind: Kind
    default: Any
    meaning: str
    more: str
    read_by: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable of the key."""
        return f"VERBENA_{self.path}".replace(".", "_").upper()

    @property
    def flag(self) -> str | None:
        """The command-line flag of the key; None for a secret, since all users can see a command line."""
        return None if self.kind.secret else f"--{self.path}".replace(".", "-").replace("_", "-")

    @property
    def unit(self) -> str:
        by_name = next((unit for suffix, unit in _UNITS.items() if self.name.endswith(suffix)), "")
        return by_name or ("bytes" if isinstance(self.kind, Size) else "")

    @property
    def default_toml(self) -> str:
        return self.kind.to_toml(self.default)


def boolean(default: bool, meaning: str, more: str = "") -> bool:
    return cast(bool, _row(Boolean(), default, meaning, more))


def integer(default: int, low: int, high: int, meaning: str, more: str = "") -> int:
    return cast(int, _row(Integer(low, high), default, meaning, more))


def size(default: int, low: int, high: int, meaning: str, more: str = "") -> int:
    return cast(int, _row(Size(low, high), default, meaning, more))


def choice(default: str, options: tuple[str, ...], meaning: str, more: str = "") -> str:
    return cast(str, _row(Choice(options), default, meaning, more))


def text(default: str, kind: Text, meaning: str, more: str = "") -> str:
    return cast(str, _row(kind, default, meaning, more))


def endpoint(default: str, meaning: str, more: str = "") -> str:
    return cast(str, _row(Endpoint(), default, meaning, more))


def secret(shortest: int, meaning: str, more: str = "") -> Secret:
    return cast(Secret, _row(SecretText(shortest), Secret(), meaning, more))


def section(cls: type[SectionType]) -> SectionType:
    """Returns a field that contains a section."""
    return dataclasses.field(default_factory=cls, metadata={"section": cls})


def sections(cls: type[Any], prefix: str = "") -> Iterator[tuple[str, type[Section]]]:
    """Yields every section below `cls` with its full name, outer ones first."""
    for field in dataclasses.fields(cls):
        if "section" in field.metadata:
            name = f"{prefix}{field.name}"
            yield name, field.metadata["section"]
            yield from sections(field.metadata["section"], f"{name}.")


def rows(cls: type[Any]) -> Iterator[Key]:
    """Yields every key below `cls`, in the order of the file."""
    for name, section_class in sections(cls):
        for field in dataclasses.fields(cast(Any, section_class)):
            if "kind" in field.metadata:
                yield Key(
                    name, field.name, default=field.default, read_by=section_class.READ_BY, **field.metadata
                )


def _row(kind: Kind, default: Any, meaning: str, more: str) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "meaning": meaning, "more": more})
