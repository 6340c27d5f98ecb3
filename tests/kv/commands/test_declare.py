"""Declarations of commands are checked when the module of the command is imported."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from verbena.kv.commands.declare import COMMANDS, command


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"flags": "fast quick"}, "NEW: no such flags: quick"),
        ({"categories": "dangerous risky"}, "NEW: no such categories: risky"),
        ({"group": "misc"}, "NEW: no such group: misc"),
    ],
)
def test_an_unknown_flag_category_or_group_is_refused(facts: dict[str, Any], why: str) -> None:
    """A misspelt word would silently remove the command from a category of ACL rules."""
    with pytest.raises(ValueError, match=why):
        command("NEW", arity=1, summary="Does nothing.", **facts)
    assert "NEW" not in COMMANDS


@pytest.mark.parametrize("name", [name for name, row in COMMANDS.items() if row.function is not None])
def test_a_function_takes_as_many_arguments_as_its_arity_allows(name: str) -> None:
    """Otherwise a client that sends one word too many gets an internal error."""
    row = COMMANDS[name]
    assert row.function is not None
    _, *rest = inspect.signature(row.function).parameters.values()
    variable = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in rest)
    required = sum(one.default is one.empty and one.kind is not one.VAR_POSITIONAL for one in rest)
    words = abs(row.arity) - len(name.split())
    assert required <= words
    assert variable if row.arity < 0 else (variable or words <= len(rest))
