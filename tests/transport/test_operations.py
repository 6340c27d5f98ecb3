"""The asyncio form and the blocking form of a session are compared with the one list of operations."""

from __future__ import annotations

import inspect

import pytest

import verbena
from verbena.transport import Listener
from verbena.transport.blocking.session import Session as BlockingSession
from verbena.transport.operations import OPERATIONS
from verbena.transport.session import Session

FORMS = (Session, BlockingSession)
# Public members that one form has and the other must not.
ONLY_ASYNC = {"states", "peer_epoch"}
ONLY_BLOCKING = {"wait_for"}


def members(form: type) -> set[str]:
    """Public methods and properties, and the attributes that __init__ sets."""
    source = inspect.getsource(form.__init__)  # type: ignore[misc]
    attributes = {part.split(" ")[0].split(":")[0].split(",")[0] for part in source.split("self.")[1:]}
    return {name for name in set(dir(form)) | attributes if name.isidentifier() and not name.startswith("_")}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_the_same_in_both_forms(operation: str) -> None:
    """Parameters, their kinds and defaults, and the documentation are equal; only `await` differs."""
    ours, theirs = (inspect.signature(getattr(form, operation)) for form in FORMS)
    assert list(ours.parameters.values()) == list(theirs.parameters.values())
    for form in FORMS:
        assert getattr(form, operation).__doc__ == OPERATIONS[operation]
    assert "timeout_s" in ours.parameters


def test_the_forms_have_the_same_members() -> None:
    """A method that is public in one form is public in the other, or in the list of exceptions above."""
    ours, theirs = (members(form) for form in FORMS)
    assert set(OPERATIONS) <= ours
    assert ours - theirs == ONLY_ASYNC
    assert theirs - ours == ONLY_BLOCKING


@pytest.mark.parametrize("method", ["publish", "unpublish"])
def test_listeners_publish_in_the_same_way_in_both_forms(method: str) -> None:
    ours, theirs = (inspect.signature(getattr(form, method)) for form in (Listener, verbena.sync.Listener))
    assert ours == theirs


def test_connect_and_listen_take_the_same_arguments_in_both_forms() -> None:
    """Except `native`, which selects a thread of the blocking form anyway."""
    for name, only in (("connect", set()), ("listen", {"native"})):
        ours, theirs = (set(inspect.signature(getattr(m, name)).parameters) for m in (verbena, verbena.sync))
        assert ours - theirs == only
        assert theirs <= ours
