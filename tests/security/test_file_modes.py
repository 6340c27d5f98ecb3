"""What services create is usable by their own user only, even with the usual umask."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from support.services import SERVICES, Service, running

# What a run of each service must have created, so that the walk has something to look at.
CREATED = {
    "store": {"store.sock", "users.acl", "data/manifest.json"},
    "cluster": {"data/cluster/node-id", "map.db"},
    "registry": {"access.log", "data/registry.db", "data/lock"},
    "memory-node": set(),
    "file-node": {"made/by/a/client"},
}


@pytest.mark.parametrize("name", SERVICES)
def test_files_are_0600_and_folders_0700(name: str, tmp_path: Path) -> None:
    """Stores, logs, snapshots, sockets, captures, manifests: all that lies in the folder during a run."""
    service: Service = SERVICES[name]
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    modes: dict[str, int] = {}
    with running(service, folder, umask=0o022) as (_, banner):
        service.use(banner, folder)
        for path in folder.rglob("*"):
            modes[str(path.relative_to(folder))] = path.stat().st_mode
    assert set(modes) >= CREATED[name]
    captured = any(path.endswith(".pcapng") for path in modes)
    assert captured == ("capture" in service.arguments)
    wrong = {
        path: stat.filemode(mode)
        for path, mode in modes.items()
        if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600)
    }
    assert wrong == {}
