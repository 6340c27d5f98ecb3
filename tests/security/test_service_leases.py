"""Each service that lends memory lends it to one session: the attacks on leases fail there too."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from support.security.attack_setup import dial
from support.security.entry_points import SECRET, SESSION_PORTS
from support.security.lease_attacks import LEASE_ATTACKS
from support.security.leases import LeaseSetup
from support.security.lending_services import LENDING, SERVICES, Running

from verbena.transport.failover.dialer import Dialer
from verbena.transport.handshake.link_token import LinkRefusalReason, LinkRequest

WIRES = ["shm", "iwarp"]


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
async def make_setup(
    running: Callable[[str], Running],
) -> AsyncIterator[Callable[[str, str], LeaseSetup]]:
    async with contextlib.AsyncExitStack() as stack:
        yield lambda service, wire: LeaseSetup(*running(service), wire, SECRET, stack)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("attack", LEASE_ATTACKS)
@pytest.mark.parametrize("name", LENDING)
async def test_an_attack_on_a_lease_fails_at_every_service(
    name: str, attack: str, wire: str, make_setup: Callable[[str, str], LeaseSetup]
) -> None:
    row = LENDING[name]
    if {wire, attack} & row.not_applicable.keys() or attack in row.covered:
        return
    setup = make_setup(row.service, wire)
    lease, thief = await row.lend(setup), await setup.party()
    await lease.renew()
    assert await lease.is_usable()
    await LEASE_ATTACKS[attack](setup, lease, thief)
    assert await thief.works()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("service", SESSION_PORTS)
async def test_another_sessions_token_opens_no_link_to_a_service(
    service: str, wire: str, make_setup: Callable[[str, str], LeaseSetup]
) -> None:
    """Neither a token that the thief signs with its own key, nor one that the owner has used."""
    setup = make_setup(service, wire)
    owner, thief = await setup.party(), await setup.party()
    links = owner.links
    dialer = owner.session._supervisor
    assert isinstance(dialer, Dialer)
    for key, attempt, reason in (
        (thief.session._key, 9, LinkRefusalReason.CREDENTIALS),
        (owner.session._key, 1, LinkRefusalReason.STALE_ATTEMPT),
    ):
        request = LinkRequest(owner.id, attempt, received=0, window=8, slot_bytes=4096)
        token = request.encode(key=key, wire=wire)
        address = dialer._address_of(wire)
        assert await dial(thief.session.node.wires[wire], address, token) is reason
    assert await owner.works()
    assert owner.links == links
