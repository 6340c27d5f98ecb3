"""Each entry point of each service rejects clients with no proof or a wrong one, and accepts those with the
right secret. Session ports also reject handshakes that were recorded or changed on the way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.rdma.link import wait_until
from support.security.attack_setup import Change, Relay, replay
from support.security.entry_points import ENTRY_POINTS, PROOFS, SECRET, SESSION_PORTS, session_port

import verbena
from verbena.errors import DeniedError, RemoteError, VerbenaError
from verbena.transport.handshake.frames import Fields, FrameType


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_an_entry_point_accepts_the_right_secret_only(name: str, tmp_path: Path) -> None:
    """The refused client receives no reply of the service."""
    row = ENTRY_POINTS[name]
    with row.serve(tmp_path) as try_secret:
        for secret in PROOFS.values():
            with pytest.raises((DeniedError, RemoteError)):
                try_secret(secret)
        assert try_secret(SECRET) == row.answer


@contextlib.asynccontextmanager
async def relayed(address: str, change: Change | None = None) -> AsyncIterator[Relay]:
    relay = Relay(address, change)
    await relay.open("127.0.0.1")
    try:
        yield relay
    finally:
        await relay.close()


def without_authentication(kind: FrameType, fields: Fields) -> Fields:
    return {**fields, "auth": "none"} if kind is FrameType.CHALLENGE else fields


def without_the_best_wire(kind: FrameType, fields: Fields) -> Fields:
    return {**fields, "wires": fields["wires"][1:]} if kind is FrameType.HELLO else fields


@pytest.mark.parametrize("name", SESSION_PORTS)
async def test_a_session_port_rejects_recorded_and_changed_handshakes(name: str, tmp_path: Path) -> None:
    """A replay opens no session, and a process on the way can neither drop the authentication nor a wire."""
    with session_port(name, tmp_path) as address:
        async with (
            relayed(address) as relay,
            verbena.connect(relay.address, secret=SECRET) as session,
        ):
            await asyncio.to_thread(
                wait_until, lambda: len(relay.recorded) == 2, "the handshake to be recorded"
            )
            answer = await replay(address, relay.recorded)
            assert b'"code":"credentials"' in answer
            assert b"session_id" not in answer
            assert session.links == 1
        for change, code in ((without_authentication, "downgrade"), (without_the_best_wire, "credentials")):
            async with relayed(address, change) as relay:
                with pytest.raises(VerbenaError) as refusal:
                    await verbena.connect(relay.address, secret=SECRET)
                assert refusal.value.code == code
