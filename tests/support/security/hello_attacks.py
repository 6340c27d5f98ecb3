"""Attacks on the handshake and on link tokens."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from unittest import mock

import pytest

import verbena
from support.rdma.link import wait_until
from support.security.attack_setup import AttackSetup, Change, replay
from support.security.memory import CONTENT, expose, linked, read_directly, resolve
from support.security.shm_peer import HELLO, ShmPeer, gid_of, gid_of_listener
from verbena import errors
from verbena.transport import Session
from verbena.transport.handshake.frames import Fields, FrameType
from verbena.transport.handshake.link_token import LinkAnswer, LinkRefusalReason, LinkRequest

KEY_BYTES = 32
FIRST = {"received": 0, "window": 8, "slot_bytes": 4096}


def token(setup: AttackSetup, session_id: int, key: bytes, *, attempt: int = 1, wire: str = "") -> bytes:
    return LinkRequest(session_id, attempt, **FIRST).encode(key=key, wire=wire or setup.wire)


async def no_proof(setup: AttackSetup) -> None:
    owner = await setup.connect()
    with pytest.raises(errors.DeniedError):
        await setup.connect(secret=b"")
    node = await setup.node()
    for session_id in (owner.id, secrets.randbits(63)):  # links without a handshake
        reason = await setup.dial(node, token(setup, session_id, bytes(KEY_BYTES)))
        assert reason in (LinkRefusalReason.CREDENTIALS, LinkRefusalReason.SESSION_UNKNOWN)
    await setup.dial(node, b"")
    assert len(setup.listener.sessions) == 1


async def wrong_secret(setup: AttackSetup) -> None:
    with pytest.raises(errors.DeniedError):
        await setup.connect(secret=b"another secret of enough bytes")
    owner = await setup.connect()
    node = await setup.node()
    for key in (secrets.token_bytes(KEY_BYTES), setup.settings.secret.ljust(KEY_BYTES)[:KEY_BYTES]):
        assert await setup.dial(node, token(setup, owner.id, key, attempt=9)) is LinkRefusalReason.CREDENTIALS
    assert len(setup.listener.sessions) == 1


async def replayed_hello(setup: AttackSetup) -> None:
    relay = await setup.relay()
    session = await setup.connect(relay.address)
    assert session.wire == setup.wire
    await asyncio.to_thread(wait_until, lambda: len(relay.recorded) == 2, "the handshake to be recorded")
    answer = await replay(setup.listener.address, relay.recorded)
    assert b'"code":"credentials"' in answer
    assert b"session_id" not in answer
    assert len(setup.listener.sessions) == 1


async def _refused(setup: AttackSetup, change: Change, *codes: str) -> None:
    relay = await setup.relay(change)
    with pytest.raises(errors.VerbenaError) as refusal:
        await setup.connect(relay.address)
    assert refusal.value.code in codes, refusal.value
    assert all(session.links == 0 for session in setup.listener.sessions)


async def stripped_hello(setup: AttackSetup) -> None:
    def strip(kind: FrameType, fields: Fields) -> Fields:
        return {**fields, "wires": [setup.weaker]} if kind is FrameType.HELLO else fields

    await _refused(setup, strip, "credentials")


async def stripped_welcome(setup: AttackSetup) -> None:
    def strip(kind: FrameType, fields: Fields) -> Fields:
        if kind is not FrameType.WELCOME:
            return fields
        return {**fields, "wires": [wire for wire in fields["wires"] if wire["name"] != setup.wire]}

    await _refused(setup, strip, "credentials")


async def stripped_authentication(setup: AttackSetup) -> None:
    def strip(kind: FrameType, fields: Fields) -> Fields:
        return {**fields, "auth": "none"} if kind is FrameType.CHALLENGE else fields

    await _refused(setup, strip, "downgrade")


async def weaker_wire(setup: AttackSetup) -> None:
    """An acceptor that knows the secret, but offers another wire than the program demands."""
    chosen = replace(setup.settings, wires=(setup.weaker,))
    other = await verbena.listen(f"{setup.host}:0", config=chosen)
    await setup.stack.enter_async_context(other)
    with pytest.raises(errors.UnavailableError) as refusal:
        await setup.connect(other.address)
    assert refusal.value.code == "no_common_wire"
    assert all(session.links == 0 for session in other.sessions)


async def answer_of_another_wire(setup: AttackSetup) -> None:
    """The acceptor's answer to a link is signed for the wire that the client has dialled."""
    original = LinkAnswer.encode

    def for_another_wire(self: LinkAnswer, *, key: bytes, wire: str, attempt: int) -> bytes:
        return original(self, key=key, wire=setup.weaker, attempt=attempt)

    with (
        mock.patch.object(LinkAnswer, "encode", for_another_wire),
        pytest.raises(errors.VerbenaError, match=r"dial failed \(credentials\)"),
    ):
        await setup.connect(connection_timeout_ms=300)


async def another_sessions_token(setup: AttackSetup) -> None:
    """The attacker knows the owner's session id and a token of it, but not its key."""
    owner, thief = await setup.two()
    links = owner._native.links
    assert await setup.dial(thief.node, token(setup, owner.id, thief._key, attempt=9)) is (
        LinkRefusalReason.CREDENTIALS
    )
    mixed = bytearray(token(setup, owner.id, owner._key, attempt=9))
    mixed[1:9] = thief.id.to_bytes(8, "big")  # the owner's signature under the attacker's session
    assert await setup.dial(thief.node, bytes(mixed)) is LinkRefusalReason.CREDENTIALS
    await _is_undisturbed(owner, links)


async def _is_undisturbed(owner: Session, links: int) -> None:
    assert await owner.call("echo", b"undisturbed") == b"undisturbed"
    assert owner._native.links == links


async def token_after_use(setup: AttackSetup) -> None:
    owner, thief = await setup.two()
    links = owner._native.links
    used = token(setup, owner.id, owner._key)  # attempt 1, as the owner sent it
    assert await setup.dial(thief.node, used) is LinkRefusalReason.STALE_ATTEMPT
    await _is_undisturbed(owner, links)


async def token_of_another_wire(setup: AttackSetup) -> None:
    owner, thief = await setup.two()
    links = owner._native.links
    foreign = token(setup, owner.id, owner._key, attempt=9, wire=setup.weaker)
    assert await setup.dial(thief.node, foreign) is LinkRefusalReason.CREDENTIALS
    await _is_undisturbed(owner, links)


async def self_declared_node(setup: AttackSetup) -> None:
    """The attacker's hello has the owner's name and boot epoch."""
    owner = await setup.connect(node_name="the-owner")
    region = expose(setup.listener, owner)
    node = await setup.node()
    node.name, node.boot_epoch = owner.node.name, owner.node.boot_epoch
    thief = await setup.stack.enter_async_context(
        await verbena.connect(setup.listener.address, node=node, wire=setup.wire)
    )
    assert thief.id != owner.id
    assert "the-owner" not in str(setup.listener.node._sessions[thief.id].principal)
    with pytest.raises(errors.DeniedError):
        await resolve(thief, region)
    with pytest.raises(errors.DeniedError):
        await thief.read(region.remote)
    assert await read_directly(owner, await resolve(owner, region)) == CONTENT


async def self_declared_gid(setup: AttackSetup) -> None:
    """A process without a session names the owner's GID in its hello of the wire, and its queue pair."""
    owner = await setup.connect()
    expose(setup.listener, owner)
    there = setup.listener.node._sessions[owner.id]
    await linked(there)
    assert there._link is not None
    assert owner._link is not None
    gid = gid_of(owner.node.wires["shm"].context)
    idle = setup.listener.node.wires["shm"].create_qp()
    for number in (idle.number, there._link.qp.number):
        found = await asyncio.to_thread(
            _attach, gid_of_listener(setup.listener), gid, number, owner._link.qp.number
        )
        assert found == ({HELLO}, 0)
    setup.listener.node.wires["shm"].close_qp(idle)
    await _is_undisturbed(owner, owner._native.links)


def _attach(victim: bytes, claimed: bytes, number: int, from_qp: int) -> tuple[set[int], int]:
    """The kinds of the messages that came, and the number of descriptors."""
    with ShmPeer(victim, claimed=claimed) as peer:
        peer.hello()
        peer.attach(number, from_qp=from_qp)
        messages = peer.receive_all()
        return {message.kind for message in messages}, sum(len(each.descriptors) for each in messages)
