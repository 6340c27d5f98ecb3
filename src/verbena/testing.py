"""Fault injection for tests of programs that use Verbena: a wire on which selected requests fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from verbena import _native
from verbena.errors import WcStatus
from verbena.verbs import Context, Opcode
from verbena.verbs.device import find_provider

__all__ = ["FaultPlan", "damaged_packets", "faulty"]

Fault = Literal["drop", "delay", "duplicate", "corrupt", "fail", "break_link"]


class FaultPlan:
    """Selects send requests and their faults. Contexts may share it, and rules may be added at any time."""

    def __init__(self) -> None:
        self._native = _native.FaultPlan()

    def add(
        self,
        fault: Fault,
        *,
        opcode: Opcode | None = None,
        nth: int = 1,
        count: int = 1,
        status: WcStatus = WcStatus.GENERAL_ERR,
        delay_us: float = 0,
    ) -> int:
        """Adds a rule for `count` requests from the `nth` on, counted from 1 among those of `opcode` (None:
        any). `status` applies to "fail", `delay_us` to "delay". Returns the number of the rule for
        hits_of()."""
        kind = _native.FaultKind[fault.upper()]
        return self._native.add(kind, opcode, nth, count, int(status), round(delay_us * 1000))

    @property
    def hits(self) -> int:
        """The number of requests that rules have affected so far."""
        return self._native.hits

    def hits_of(self, rule: int) -> int:
        """Returns the number of requests that one rule has affected so far."""
        return self._native.hits_of(rule)

    def clear(self) -> None:
        """Removes all rules."""
        self._native.clear()


@contextlib.contextmanager
def damaged_packets(count: int, *, bit: int = 0) -> Iterator[None]:
    """Flips one bit in each of the next `count` packets of the fake wire, requests and responses, until the
    block ends."""
    _native.damage_packets(count, bit)
    try:
        yield
    finally:
        _native.damage_packets(0, 0)


def faulty(name: str, plan: FaultPlan) -> Context:
    """Opens a device like open_device(), with the faults of `plan`."""
    provider, _, device = name.partition(":")
    return Context(_native.faulty_provider(find_provider(provider), plan._native).open(device))
