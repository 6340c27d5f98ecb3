"""Slots move from node to node over a real device: the base copy by RDMA WRITE, as `[shards.rdma]` says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.kv.cluster import MAIN, RespConnection, cluster

ADDRESS = "10.0.2.15"
# Nodes of one machine share memory, and would do so here: these do without.
WITHOUT_SHM = """
import sys
from dataclasses import replace
from verbena.transport import configured
settings_from = configured.settings_from
def without(config):
    settings = settings_from(config)
    return replace(settings, wires=tuple(wire for wire in settings.wires if wire != "shm"))
configured.settings_from = without
from verbena.cli import main
sys.exit(main())
"""
OPTIONS = (
    # No GID index: the default's entry is not there, and another is chosen.
    *("--network-rdma-enabled", "--network-rdma-device", "rxe0"),
    *("--shards-rdma-device", "rxe0"),
    *("--shards-rdma-port", "1", "--shards-rdma-qp-depth", "24", "--shards-rdma-max-send-size", "64KiB"),
    *("--network-rdma-recv-buffer-pool-size", "256", "--no-kv-protected-mode"),
    *("--cluster-write-pause-budget-ms", "60000", "--cluster-node-timeout-ms", "120000"),
)


def test_slots_move_by_the_device(tmp_path: Path) -> None:
    """There and by no other wire; the other node has every key, and the kernel has seen what was sent."""
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery staple")
    secret.chmod(0o600)
    command, options = (sys.executable, "-c", WITHOUT_SHM), (*OPTIONS, "--session-secret-file", str(secret))
    with cluster(tmp_path, 2, command=command, options=options, host=ADDRESS, assign=False) as made:
        assert made[0].raw("CLUSTER", "ADDSLOTSRANGE", 0, 16383) == b"OK"
        with RespConnection(ADDRESS, made[0].port) as wire:
            for number in range(60):
                wire.run("SET", f"key:{number}", b"%05d" % number * 2000)
            wire.run("SADD", "set", *range(1000))
        before = sent_by_rxe0()
        move = [*MAIN, "shards", "move", "0-16383", "n1", "--json", "--cluster-map-store", made.store]
        move += ["--session-secret-file", str(secret)]
        done = subprocess.run(move, capture_output=True, text=True, check=False)
        report = json.loads(done.stdout or "{}")
        told = (report.get("moved"), report.get("wire"), report.get("fallback_sends"))
        logs = [(tmp_path / node.name / "log").read_text()[-3000:] for node in made.nodes]
        assert told == (True, "ibv", 0), "\n".join([done.stdout, done.stderr, *logs])
        assert report["bytes_transferred"] > 600_000
        assert sent_by_rxe0() - before > 600_000 // 4096
        with RespConnection(ADDRESS, made[1].port) as wire:
            assert [wire.run("GET", f"key:{n}") for n in range(60)] == [b"%05d" % n * 2000 for n in range(60)]
            assert wire.run("SCARD", "set") == 1000


def sent_by_rxe0() -> int:
    """Packets, as the driver counts them."""
    return int(Path("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts").read_text())
