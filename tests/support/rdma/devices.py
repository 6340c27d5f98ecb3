"""Known deviations of real devices from the specification: one row for each case, with its reason.
Devices that are not listed, and so every software provider, must follow the rule itself.
The run prints the rows that it used."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import Context, Opcode, SendWorkRequest


class Case(Enum):
    """The situations in which some device is known to deviate."""

    RECEIVER_OF_TOO_LONG = "a message longer than its receive, at the receiver"
    SENDER_OF_TOO_LONG = "a message longer than its receive, at the sender"
    RECEIVE_INTO_FORBIDDEN_MEMORY = "a receive into memory without the right, or of another domain"
    SOURCE_IN_ANOTHER_DOMAIN = "a SEND or WRITE from memory of another domain"
    RECEIVE_OF_A_REFUSED_WRITE = "the receive of a WRITE with immediate that was refused"
    MISALIGNED_ATOMIC = "a misaligned atomic"
    FAILURE_WAKES_SOLICITED = "whether a failed request wakes a queue armed for solicited events"
    REFUSED_BY_THE_PEER = "a SEND or WRITE that the peer refuses, at the requester"


@dataclass(frozen=True)
class Quirk:
    """What the device does instead of following the rule, and why."""

    instead: Any
    reason: str


_HANDED_OVER = "it completes what TCP has taken; a refusal ends the connection and flushes what follows"
_COPYING = "its kernel takes any failure to copy from or to local memory for a malformed request"
# As in Linux 6.1. If another kernel behaves differently, the test of that row fails.
QUIRKS: dict[str, dict[Case, Quirk]] = {
    "Soft-RoCE": {
        Case.RECEIVER_OF_TOO_LONG: Quirk(WcStatus.LOC_QP_OP_ERR, _COPYING),
        Case.SENDER_OF_TOO_LONG: Quirk(WcStatus.REM_OP_ERR, _COPYING),
        Case.RECEIVE_INTO_FORBIDDEN_MEMORY: Quirk(WcStatus.LOC_QP_OP_ERR, _COPYING),
        Case.SOURCE_IN_ANOTHER_DOMAIN: Quirk(WcStatus.LOC_QP_OP_ERR, _COPYING),
        Case.RECEIVE_OF_A_REFUSED_WRITE: Quirk(
            WcStatus.REM_ACCESS_ERR, "its kernel takes the receive before it checks the key"
        ),
        Case.MISALIGNED_ATOMIC: Quirk(errors.StateError, "its library refuses it when it is posted"),
        Case.FAILURE_WAKES_SOLICITED: Quirk(False, "its kernel takes no completion of a send for solicited"),
    },
    "Plain iWARP": {Case.REFUSED_BY_THE_PEER: Quirk(WcStatus.SUCCESS, _HANDED_OVER)},
}
# Capabilities that a wire may lack, each with the reason for skipping its tests there.
LACKING = {
    "acknowledged": "completes what TCP has taken, and a message that finds no receive ends the connection",
    "atomics": "RFC 7306 has no way to ask a peer for atomics and immediates: none are sent",
}
_used: set[tuple[str, Case]] = set()


def expected(context: Context, case: Case, rule: Any) -> Any:
    """The expected result on this device: that of the rule, unless a row differs."""
    model = _model(context)
    quirk = QUIRKS.get(model, {}).get(case)
    if quirk is None:
        return rule
    _used.add((model, case))
    return quirk.instead


def refusal(context: Context, request: SendWorkRequest, rule: WcStatus) -> Any:
    """The expected result of a request that the peer refuses with the rule's status."""
    handed_over = request.opcode in (Opcode.SEND, Opcode.WRITE) and rule.name.startswith("REM_")
    return expected(context, Case.REFUSED_BY_THE_PEER, rule) if handed_over else rule


def needs(context: Context, capability: str) -> None:
    """Skips the test if the wire reports that it lacks this capability."""
    if context.attributes.capabilities.get(capability) == "no":
        pytest.skip(LACKING[capability])


def lines() -> list[str]:
    """The rows that the tests used, for the end of a run."""
    return sorted(f"{model} differs: {case.value}; {QUIRKS[model][case].reason}" for model, case in _used)


def used() -> list[tuple[str, str]]:
    """The rows that the tests of this process used, in a form that add_used() takes in another process."""
    return sorted((model, case.name) for model, case in _used)


def add_used(rows: list[tuple[str, str]]) -> None:
    _used.update((model, Case[name]) for model, name in rows)


def arriving(context: Context, private_data: bytes) -> bytes:
    """The private data that the peer receives: all of it, or what the device's capability describes."""
    words = context.attributes.capabilities.get("private_data", "")
    return private_data.rstrip(b"\0") if words == "without its trailing zeros" else private_data


def _model(context: Context) -> str:
    """The device's name in the table."""
    about = context.attributes
    if about.provider == "ibv" and about.software and about.transport == "RoCE":
        return "Soft-RoCE"
    return "Plain iWARP" if about.capabilities.get("acknowledged") == "no" else ""
