"""The attacks on a lease, as data: each one must fail at every service that lends memory."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping

import pytest

from support.security.leases import RANGE, VERIFY, Lease, LeaseSetup, Party, SessionParty
from support.security.memory import RESOLVE, Lent
from verbena.errors import DeniedError
from verbena.verbs import Access, Opcode

# The native methods that name a region, with a request for its first word.
_CHECKSUM, _ATOMIC = 4, 5
_BY_NAME: Mapping[int, Callable[[int], bytes]] = {
    RESOLVE: struct.Struct("<Q").pack,
    VERIFY: lambda region: RANGE.pack(region, 0, 8, 0, 0),
    _CHECKSUM: lambda region: RANGE.pack(region, 0, 8, 0, 0),
    _ATOMIC: lambda region: struct.pack("<QQQQII", region, 0, 1, 0, Opcode.FETCH_ADD, 0),
}
_OPCODES = {
    Opcode.READ: Access.REMOTE_READ,
    Opcode.WRITE: Access.REMOTE_WRITE,
    Opcode.FETCH_ADD: Access.REMOTE_ATOMIC,
}
_WORD = 8
_ATTACK = b"x" * 64  # what an attacker writes


async def another_sessions_key(setup: LeaseSetup, lease: Lease, thief: SessionParty) -> None:
    """The thief knows all that the owner knows. The owner does not notice."""
    links = lease.owner.links
    await _is_refused_everything(thief, lease)
    if lease.is_private:
        await _is_refused_the_name(thief, lease)
    assert await lease.holds_content()
    assert lease.owner.links == links
    assert await lease.use()


async def key_after_revocation(setup: LeaseSetup, lease: Lease, thief: SessionParty) -> None:
    """Neither the owner, nor another session, nor a later one of the owner's node can use it."""
    await lease.revoke()
    if not lease.revoking_ends_session:
        opcode = Opcode.READ if lease.access & Access.REMOTE_READ else Opcode.WRITE
        assert not await lease.owner.accepts(opcode, lease.lent, _ATTACK[: len(lease.content)])
        if isinstance(lease.owner, SessionParty):
            await _is_refused_the_name(lease.owner, lease)
        assert await lease.owner.works()
        assert await lease.use()
    await _is_refused_to_others(lease, thief, by_name=True)


async def key_after_close(setup: LeaseSetup, lease: Lease, thief: SessionParty) -> None:
    """The owner closes its session."""
    await lease.owner.close()
    assert await setup.has_ended(lease.owner, thief)
    await _is_refused_to_others(lease, thief, by_name=lease.is_private)


async def more_than_was_lent(setup: LeaseSetup, lease: Lease, thief: SessionParty) -> None:
    """The owner's key gives the access that was lent, and ends where the memory does."""
    for opcode, access in _OPCODES.items():
        lent = _beyond(lease.whole, opcode) if lease.access & access else _word_of(lease.lent)
        assert not await lease.owner.accepts(opcode, lent, _ATTACK[: lent.length]), opcode
        await lease.renew()  # the refusal has ended the link, and the key with it
    assert await lease.holds_content()
    assert await lease.use()


LeaseAttack = Callable[[LeaseSetup, Lease, SessionParty], Awaitable[None]]
LEASE_ATTACKS: Mapping[str, LeaseAttack] = {
    "another session's key": another_sessions_key,
    "key after revocation": key_after_revocation,
    "key after the session's close": key_after_close,
    "more than was lent": more_than_was_lent,
}


async def _is_refused_to_others(lease: Lease, thief: SessionParty, *, by_name: bool) -> None:
    for party in (thief, await lease.later()):
        await _is_refused_everything(party, lease)
        if by_name and isinstance(party, SessionParty):
            await _is_refused_the_name(party, lease)


async def _is_refused_everything(party: Party, lease: Lease) -> None:
    """Each refusal ends the party's link, but not its session."""
    for opcode in _OPCODES:
        lent = _word_of(lease.lent) if opcode is Opcode.FETCH_ADD else lease.lent
        assert not await party.accepts(opcode, lent, _ATTACK[: lent.length]), opcode
    assert await party.works()


async def _is_refused_the_name(party: SessionParty, lease: Lease) -> None:
    for method, request in _BY_NAME.items() if lease.region else ():
        with pytest.raises(DeniedError):
            await party.call_native(method, request(lease.region))


def _beyond(whole: Lent, opcode: Opcode) -> Lent:
    """Bytes of which the last one is not lent."""
    end = whole.addr + whole.length
    if opcode is Opcode.FETCH_ADD:
        return Lent(end // _WORD * _WORD, _WORD, whole.rkey)
    return Lent(end - _WORD, _WORD + 1, whole.rkey)


def _word_of(lent: Lent) -> Lent:
    """An aligned word of it."""
    return Lent(-(-lent.addr // _WORD) * _WORD, _WORD, lent.rkey)
