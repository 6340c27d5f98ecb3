"""A short soak on every wire; `make soak` runs the long one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load_soak() -> ModuleType:
    """Loads soak.py as a module."""
    spec = importlib.util.spec_from_file_location("soak", Path(__file__).parent / "soak.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(180)
@pytest.mark.parametrize("wire", ["shm", "iwarp", None])
async def test_nothing_is_lost_or_done_twice_whatever_breaks(wire: str | None) -> None:
    """Drop, delay, duplicate, corrupt, fail, break, cut sockets: every call is answered correctly, once."""
    account = await load_soak().soak(6.0, wire, seed=2)
    assert account.wrong == []
    assert account.calls > 0
    assert account.breaks > 0
