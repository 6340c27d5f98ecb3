"""A row of the error table."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, replace

from verbena.errors.classes import VerbenaError


@dataclass(frozen=True)
class Explanation:
    """One failure: what happened, causes (likeliest first), remedy, and checks that tell the causes apart.
    Texts are clauses without a full stop. A `{field}` in a text is filled with a value of the machine."""

    code: str
    raises: type[VerbenaError] | None  # None: no exception of Verbena reports it
    what: str
    causes: tuple[str, ...]
    remedy: str
    checks: tuple[str, ...] = ()

    @property
    def fields(self) -> frozenset[str]:
        """The names of the `{fields}` in the texts."""
        texts = (self.what, *self.causes, self.remedy)
        return frozenset(name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name)

    def filled(self, values: Mapping[str, object]) -> Explanation:
        """A copy with `values` in place of the fields; a field without a value becomes "unknown"."""
        known = {name: str(values.get(name, "unknown")) for name in self.fields}
        return replace(
            self,
            what=self.what.format_map(known),
            causes=tuple(cause.format_map(known) for cause in self.causes),
            remedy=self.remedy.format_map(known),
        )


def unknown(code: str) -> Explanation:
    """The row for a code that the table does not have."""
    return Explanation(
        code,
        None,
        what="an error that this version of Verbena has no explanation for",
        causes=("a driver, a library or a peer with a newer version of Verbena reported the code",),
        remedy="look the code up in the documentation of the provider or driver, or upgrade Verbena",
    )
