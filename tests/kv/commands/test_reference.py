"""The page of commands lists every command of redis-server, as supported or as not supported."""

from __future__ import annotations

from pathlib import Path

import pytest
from kv.redis_peer import MISSING, SERVER, Peer, redis_server

from verbena.kv import commands
from verbena.kv.commands import reference_page as commands_page
from verbena.kv.commands.declare import COMMANDS


@pytest.mark.skipif(SERVER is None, reason=MISSING)
def test_commands_of_redis_that_are_missing_are_listed(tmp_path: Path) -> None:
    commands.load()
    with redis_server(tmp_path) as path:
        peer = Peer(path, 2)
        _, names = peer.run("COMMAND", "LIST")
        peer.close()
    known = {name for one in COMMANDS for name in (one, one.partition(" ")[0])}
    found = {name.decode().upper().replace("|", " ") for _, name in names}
    assert len(found) > 200
    assert not {name for name in found if name not in known and not commands_page.is_absent(name)}


def test_every_command_is_on_the_page() -> None:
    commands.load()
    rows = {
        line.split(" | ")[0].removeprefix("| ") for line in commands_page.page().splitlines() if "|" in line
    }
    assert set(COMMANDS) <= rows
