"""Fake members of a cluster: programs that can read the map store, and therefore prove any member's
identity."""

from __future__ import annotations

from dataclasses import dataclass

from verbena import transport
from verbena.kv.cluster import membership
from verbena.shards.envelope import Envelope, Kind, parse
from verbena.shards.stores import open_store


async def keys_of(store: str) -> dict[str, bytes]:
    """The members' keys in the map store, by id."""
    opened = open_store(store)
    try:
        return {id: bytes.fromhex(member.key) for id, member in (await opened.load()).map.members.items()}
    finally:
        await opened.close()


async def prove(
    session: transport.Session, member: str, to: str, keys: dict[str, bytes], *, key: bytes | None = None
) -> None:
    """Proves over the session that it is `member`; `key`: another key than the map has."""
    opener = membership.Opener(session, member=member, key=keys[member] if key is None else key, acceptor=to)
    challenge = await session.call(membership.METHOD, opener.hello())
    await session.call(membership.METHOD, opener.prove(challenge, keys[to]))


def message(
    kind: Kind, source: str, target: str, payload: bytes = b"", migration: str = "00" * 16
) -> Envelope:
    return Envelope(
        kind=kind,
        source=bytes.fromhex(source),
        target=bytes.fromhex(target),
        first_slot=0,
        last_slot=0,
        migration=bytes.fromhex(migration),
        payload=payload,
        sequence=1,
        boot_epoch=1,
    )


async def send(session: transport.Session, envelope: Envelope, *, method: str = "shards") -> Envelope:
    """Returns the answer, which may be a refusal."""
    return parse(await session.call(method, bytes(envelope), timeout_s=30))


@dataclass
class Bound:
    """A session for tests of proofs without I/O."""

    id: int = 7
    secret: bytes = b"handshake"

    def binding(self, label: bytes) -> bytes:
        return (self.secret + label).ljust(32, b".")[:32]
