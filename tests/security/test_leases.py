"""Memory is lent to one session: a key that another session obtained gives it nothing, and a key ends with
the region, the link and the session to which it was lent. At a listener, and at each service that lends
memory."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest
from support.security.attack_setup import dial
from support.security.entry_points import SECRET, SESSION_PORTS
from support.security.lease_attacks import LEASE_ATTACKS
from support.security.leases import Lease, LeaseSetup, SessionParty
from support.security.lending_services import LENDING, SERVICES, Running
from support.security.memory import CONTENT, expose, holds, read_directly, resolve

import verbena
from verbena import errors
from verbena.integrations import file_messages
from verbena.kv.frontends.valkey_rdma import RdmaListener
from verbena.kv.server.server import Server
from verbena.transport import Listener, Request, Session
from verbena.transport.direct import DirectLink
from verbena.transport.failover.dialer import Dialer
from verbena.transport.handshake.link_token import LinkRefusalReason, LinkRequest
from verbena.verbs import Access, RemoteMemory

WIRES = ["shm", "iwarp"]


def echo(request: Request) -> bytes:
    return request.payload


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": echo}) as listening:
        yield listening


@pytest.fixture(params=WIRES)
async def pair(request: pytest.FixtureRequest, listener: Listener) -> AsyncIterator[tuple[Session, Session]]:
    """Two sessions of different nodes with the listener."""
    async with contextlib.AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(await verbena.connect(listener.address, wire=request.param))
            for _ in range(2)
        ]
        yield sessions[0], sessions[1]


@pytest.mark.parametrize("allocated", [True, False], ids=["allocated", "exposed"])
async def test_a_key_opens_the_memory_for_its_own_session_only(
    listener: Listener, pair: tuple[Session, Session], allocated: bool
) -> None:
    """Even when the region is for all sessions: each one needs a memory lease of its own."""
    owner, thief = pair
    region = expose(listener, None, allocated=allocated)
    lent = await resolve(owner, region)
    assert await read_directly(owner, lent) == CONTENT
    assert await read_directly(thief, lent) is None
    assert bytes(await thief.read(region.remote)) == CONTENT  # by a memory lease of its own, on a new link
    assert bytes(await owner.read(region.remote)) == CONTENT


async def test_another_session_cannot_resolve_the_region(
    listener: Listener, pair: tuple[Session, Session]
) -> None:
    owner, thief = pair
    region = expose(listener, owner)
    assert bytes(await owner.read(region.remote)) == CONTENT
    with pytest.raises(errors.DeniedError):
        await resolve(thief, region)
    with pytest.raises(errors.DeniedError):
        await thief.read(region.remote)


async def test_a_key_ends_with_its_region(listener: Listener, pair: tuple[Session, Session]) -> None:
    owner, _ = pair
    region = expose(listener, owner)
    lent = await resolve(owner, region)
    assert await read_directly(owner, lent) == CONTENT
    remote = region.remote
    region.close()
    assert await read_directly(owner, lent) is None
    with pytest.raises(errors.DeniedError):
        await owner.read(remote)
    assert await owner.call("echo", b"the session goes on") == b"the session goes on"


async def test_a_key_ends_with_its_link(listener: Listener, pair: tuple[Session, Session]) -> None:
    """After a failover the session gets another key for the same region."""
    owner, _ = pair
    region = expose(listener, owner)
    lent = await resolve(owner, region)
    links = owner._native.links
    await owner.node.drill()
    assert await holds(lambda: owner._native.links > links and owner._native.has_link)
    assert (await resolve(owner, region)).rkey != lent.rkey
    assert await read_directly(owner, lent) is None
    assert bytes(await owner.read(region.remote)) == CONTENT


async def test_a_key_ends_with_its_session(listener: Listener, pair: tuple[Session, Session]) -> None:
    owner, thief = pair
    region = expose(listener, None)
    lent = await resolve(owner, region)
    await owner.close()
    assert await holds(lambda: len(listener.sessions) == 1)
    assert await read_directly(thief, lent) is None


# Services

ROOT = Path(__file__).parents[2]
CASES = [
    (name, attack, wire)
    for name, row in LENDING.items()
    for attack in LEASE_ATTACKS
    for wire in WIRES
    if attack not in row.covered and wire not in row.not_applicable
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Running]]:
    """Starts a service at its first use."""
    found: dict[str, Running] = {}
    with contextlib.ExitStack() as stack:

        def once(name: str) -> Running:
            if name not in found:
                found[name] = stack.enter_context(SERVICES[name](tmp_path_factory.mktemp(name)))
            return found[name]

        yield once


@pytest.fixture
async def make_setup(running: Callable[[str], Running]) -> AsyncIterator[Callable[[str, str], LeaseSetup]]:
    async with contextlib.AsyncExitStack() as stack:
        yield lambda service, wire: LeaseSetup(*running(service), wire, SECRET, stack)


async def begin(name: str, setup: LeaseSetup) -> tuple[Lease, SessionParty]:
    """A lease that its owner uses, and another session."""
    lease, thief = await LENDING[name].lend(setup), await setup.party()
    await lease.renew()
    assert await lease.is_usable()
    return lease, thief


@pytest.mark.parametrize(("name", "attack", "wire"), CASES)
async def test_an_attack_on_a_lease_fails_at_every_service(
    name: str, attack: str, wire: str, make_setup: Callable[[str, str], LeaseSetup]
) -> None:
    """Or the table has the reason why it does not apply, or the test that shows it."""
    setup = make_setup(LENDING[name].service, wire)
    lease, thief = await begin(name, setup)
    await LEASE_ATTACKS[attack](setup, lease, thief)
    assert await thief.works()


async def _owner_is_the_thief(setup: LeaseSetup, lease: Lease, thief: SessionParty) -> SessionParty:
    assert isinstance(lease.owner, SessionParty)
    return lease.owner


async def _revoke_nothing(setup: LeaseSetup, lease: Lease, thief: SessionParty) -> SessionParty:
    async def nothing() -> None: ...

    lease.revoke = nothing
    return thief


async def _lend_to_the_thief(setup: LeaseSetup, lease: Lease, thief: SessionParty) -> SessionParty:
    lease.whole = await resolve(thief.session, lease.region)
    return thief


async def _lend_for_writing_too(setup: LeaseSetup, lease: Lease, thief: SessionParty) -> SessionParty:
    lease.access = Access.REMOTE_READ
    return thief


FAULTS: Mapping[str, Callable[[LeaseSetup, Lease, SessionParty], Awaitable[SessionParty]]] = {
    "another session's key": _owner_is_the_thief,
    "key after revocation": _revoke_nothing,
    "key after the session's close": _lend_to_the_thief,
    "more than was lent": _lend_for_writing_too,
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("attack", LEASE_ATTACKS)
async def test_an_attack_on_a_lease_that_succeeds_is_noticed(
    attack: str, wire: str, make_setup: Callable[[str, str], LeaseSetup]
) -> None:
    """As it would at a service with a fault."""
    name = "memory node: named array"  # each session may attach to it, so that a fault is easy to make
    setup = make_setup(LENDING[name].service, wire)
    lease, thief = await begin(name, setup)
    attacker = await FAULTS[attack](setup, lease, thief)
    with pytest.raises(AssertionError):
        await LEASE_ATTACKS[attack](setup, lease, attacker)


def test_an_attack_on_a_lease_that_is_not_tried_has_its_reason() -> None:
    """The combinations without a test here are exactly these."""
    omitted = {(name, why) for name, row in LENDING.items() for why in (*row.not_applicable, *row.covered)}
    assert omitted == {
        ("replication: position at a primary", "iwarp"),
        ("named region", "another session's key"),
    }
    for row in LENDING.values():
        for test in row.covered.values():
            file, _, function = test.partition("::")
            assert f"def {function}(" in (ROOT / file).read_text()


@pytest.mark.parametrize("wire", WIRES)
async def test_a_file_node_exposes_no_region(wire: str, make_setup: Callable[[str, str], LeaseSetup]) -> None:
    """What it lends is the memory of a reply, which has no name."""
    setup = make_setup("file-node", wire)
    (setup.folder / "file").write_bytes(bytes(100_000))
    session = await setup.connect()
    read = {"do": "read", "path": "file", "start": 0, "length": 100_000}
    assert len(await session.call(file_messages.CALL, file_messages.pack(read))) > 100_000
    assert json.loads(await session.call("verbena.status"))["regions"] == 0


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("service", SESSION_PORTS)
async def test_another_sessions_token_opens_no_link_to_a_service(
    service: str, wire: str, make_setup: Callable[[str, str], LeaseSetup]
) -> None:
    """Neither a token that the thief signs with its own key, nor one that the owner has used."""
    setup = make_setup(service, wire)
    owner, thief = await setup.party(), await setup.party()
    links, dialer = owner.links, owner.session._supervisor
    assert isinstance(dialer, Dialer)
    for key, attempt, reason in (
        (thief.session._key, 9, LinkRefusalReason.CREDENTIALS),
        (owner.session._key, 1, LinkRefusalReason.STALE_ATTEMPT),
    ):
        request = LinkRequest(owner.id, attempt, received=0, window=8, slot_bytes=4096)
        token = request.encode(key=key, wire=wire)
        assert await dial(thief.session.node.wires[wire], dialer._address_of(wire), token) is reason
    assert await owner.works()
    assert owner.links == links


@pytest.mark.parametrize("wire", WIRES)
async def test_the_window_of_a_valkey_client_is_for_its_connection_only(wire: str) -> None:
    """Valkey over RDMA, which has no sessions: a client's window ends with its connection."""
    server = Server()
    server.start()
    listener = RdmaListener(server, wire, "127.0.0.1:0" if wire == "iwarp" else "")

    async def connect() -> tuple[DirectLink, RemoteMemory]:
        link = await stack.enter_async_context(await verbena.dial(f"{wire}://{listener.address}"))
        memory = link.pd.allocate(32)
        assert (await link.qp.recv(memory)).byte_count == 32
        code, address, _, key = struct.unpack(">H14xQII", bytes(memoryview(memory)))
        assert code == 3
        return link, RemoteMemory(address, key, 8)

    async with contextlib.AsyncExitStack() as stack:
        stack.callback(server.stop)
        stack.push_async_callback(listener.close)
        (owner, window), (thief, _) = await connect(), await connect()
        await owner.qp.write(b"of owner", window)
        with pytest.raises(errors.DeniedError):
            await thief.qp.write(b"of thief", window)
        await owner.qp.write(b"of owner", window)
        await owner.__aexit__(None, None, None)
        later, _ = await connect()
        with pytest.raises(errors.DeniedError):
            await later.qp.write(b"of later", window)
