"""Declarations of commands are checked when the module of the command is imported."""

from __future__ import annotations

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
