"""A process that forks while it has open objects: the child is refused at once, and the parent goes on,
whatever the child does and however it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import program_files
from support.forks.subjects import SUBJECTS

from verbena import verbs

ENDS = ("exit", "os._exit", "kill", "exec")


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("end", ENDS)
def test_a_child_is_refused_and_its_parent_goes_on(
    name: str, end: str, address_of: Callable[[str], str], environment: dict[str, str]
) -> None:
    """In a forked child every use of an inherited object raises `forked` within a second and close() does
    nothing; objects that the child opens work; the parent's answers stay its own."""
    if name.endswith("quic") and (not environment or not _available("quic")):
        pytest.skip("the wire quic is not available")
    address = address_of(SUBJECTS[name][0])
    printed = program_files.run(
        [program_files.SUPPORT / "forks" / "disturbed.py", name, end, address], environment=environment
    )
    assert int(printed.split()[0]) >= 20, printed


def _available(wire: str) -> bool:
    return next(info for info in verbs.providers() if info.name == wire).available
