"""The red-team matrix on ibv, and what hostile processes can do there."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.environment import with_modules
from support.security.attack_setup import set_up
from support.security.attacks import ATTACKS
from support.security.processes import first_answer, tell, victim
from support.security.users import OTHER_USER
from support.security.victim import READABLE

from verbena.transport import Settings

ADDRESS = "10.0.2.15"
KEY = "correct horse battery staple"
NODE: dict[str, Any] = {"wires": ["ibv"], "devices": {"ibv": "rxe0"}}
OWN_PIDS = ("unshare", "--pid", "--fork", "--mount-proc")
OWN_NETWORK = ("unshare", "--net", *OWN_PIDS[1:])
CREDENTIALS = {"refused": "credentials"}
READ = {"wire": "ibv", "found": [READABLE.decode()]}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_fails_on_ibv(attack: str) -> None:
    """The table of tests/security/test_red_team.py."""
    row = ATTACKS[attack]
    if "ibv" in row.not_applicable:
        return
    async with set_up("ibv", Settings(devices={"ibv": "rxe0"}), ADDRESS) as setup:
        await row.run(setup)


def test_another_user_needs_the_secret() -> None:
    with victim(host=ADDRESS, secret=KEY, **NODE) as node:
        other = {"uid": OTHER_USER, "wire": "ibv", "regions": node.report["regions"], **NODE}
        for secret in ("", KEY[::-1]):
            assert node.attacked("use", secret=secret, **other) == CREDENTIALS
        assert node.attacked("use", secret=KEY, **other) == READ


def test_a_container_needs_the_secret() -> None:
    """In the network namespace of the node, and in its own one, from which it does not reach the node."""
    with victim(host=ADDRESS, secret=KEY, **NODE) as node:
        inside = {"wire": "ibv", "regions": node.report["regions"], **NODE}
        assert node.attacked("use", prefix=OWN_PIDS, **inside) == CREDENTIALS
        assert node.attacked("use", prefix=OWN_PIDS, secret=KEY, **inside) == READ
        assert node.attacked("use", prefix=OWN_NETWORK, secret=KEY, **inside) == {"refused": "unreachable"}


def test_a_session_is_refused_the_regions_of_others() -> None:
    known = {"wire": "ibv", "secret": KEY, **NODE}
    with victim(host=ADDRESS, secret=KEY, **NODE) as node, node.attacker("hold", **known) as other:
        first_answer(other)
        done = node.attacked("use", regions=node.ask()["regions"], **known)
        assert done == {"wire": "ibv", "found": [READABLE.decode(), "region_denied"]}
        tell(other, "end")


# A process of its own: the connection manager's library keeps siw0 open until its process ends.
ON_SIW = """
import asyncio, json
from support.security.attack_setup import set_up
from support.security.memory import CONTENT, expose, read_directly, resolve
from verbena.transport import Settings

async def attack():
    async with set_up("ibv", Settings(devices={"ibv": "siw0"}), "10.8.0.1") as setup:
        owner, thief = await setup.two()
        region = expose(setup.listener, owner)
        lent = await resolve(owner, region)
        before = await read_directly(thief, lent) == CONTENT
        region.close()
        print(json.dumps([before, await read_directly(thief, lent) is None]))

asyncio.run(attack())
"""


def test_without_memory_windows_a_key_is_valid_for_all_until_it_is_revoked(siw: None) -> None:
    """Soft-iWARP has none: a key that another session has obtained can be used on any queue pair of the node,
    until the region is revoked."""
    done = subprocess.run(
        [sys.executable, "-c", ON_SIW],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=with_modules(),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [True, True]
