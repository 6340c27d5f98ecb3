"""The red-team matrix: each attack on sessions fails on every wire. tests/kernel/test_red_team.py runs them
on ibv."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.certificates import Authority
from support.rdma import iwarp_tls
from support.security.attack_setup import set_up
from support.security.attacks import ATTACKS, WIRES

from verbena import verbs
from verbena.transport import Settings
from verbena.verbs import QuicOptions

HERE = [wire for wire in WIRES if wire != "ibv"]
NOT_APPLICABLE = {("self-declared GID", wire) for wire in ("iwarp", "quic", "ibv")}


@pytest.fixture(scope="module")
def settings_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Settings]:
    """What a wire needs."""

    def settings(wire: str) -> Settings:
        if wire != "quic":
            return Settings()
        info = next(info for info in verbs.providers() if info.name == "quic")
        if not info.available or iwarp_tls.MISSING:
            pytest.skip(info.reason or iwarp_tls.MISSING)
        tls = iwarp_tls.issue(Authority(folder), names=iwarp_tls.names_here())
        return Settings(quic=QuicOptions(tls=tls))

    folder: Path = tmp_path_factory.mktemp("authority")
    found: dict[str, Settings] = {}

    def once(wire: str) -> Settings:
        if wire not in found:
            found[wire] = settings(wire)
        return found[wire]

    return once


@pytest.mark.parametrize("wire", HERE)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_fails_on_every_wire(
    attack: str, wire: str, settings_of: Callable[[str], Settings]
) -> None:
    """Or the table has the reason why it does not apply."""
    row = ATTACKS[attack]
    if wire in row.not_applicable:
        return
    async with set_up(wire, settings_of(wire)) as setup:
        await row.run(setup)


def test_an_attack_that_does_not_apply_has_its_reason() -> None:
    """The combinations without a test are exactly these."""
    found = {(attack.name, wire) for attack in ATTACKS.values() for wire in attack.not_applicable}
    assert found == NOT_APPLICABLE
