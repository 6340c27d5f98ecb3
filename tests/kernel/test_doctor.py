"""`verbena doctor` on a real kernel's RDMA devices: ports, GIDs, MTU, counters, a transfer."""

import json
import os
import subprocess

import pytest

PROGRAM = [".venv/bin/verbena", "doctor", "--json"]


def examine(*options, **environment):
    done = subprocess.run(
        [*PROGRAM, *options],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env={**os.environ, **environment},
    )
    return {line["check"]: line for line in json.loads(done.stdout)}


@pytest.mark.timeout(180)
def test_soft_roce_is_seen_as_it_is():
    """Both ends of the cable: active, with a RoCE v2 GID of their address, and bytes go through them."""
    found = examine("--provider", "ibv:rxe1")
    assert found["RDMA devices"]["verdict"] == "OK"
    assert "rxe1" in found["RDMA devices"]["finding"]
    for device in ("rxe1", "rxe2"):
        port = found[f"ibv:{device} port 1"]
        assert port["verdict"] == "OK", port
        assert port["finding"].startswith("ACTIVE, Ethernet, MTU ")
        gids = found[f"ibv:{device} GIDs 1"]
        assert gids["verdict"] == "OK", gids
        assert "RoCE v2" in gids["finding"]
        assert found[f"ibv:{device} MTU 1"]["verdict"] == "OK"
        assert f"ibv:{device} counters 1" in found
    assert found["module rdma_rxe"]["finding"].startswith("loaded")
    assert "rxe1 on cable1" in found["software device"]["finding"]
    assert "data verified" in found["transfer ibv:rxe1"]["finding"]


@pytest.mark.timeout(180)
def test_a_cable_that_is_out_is_found(cable):
    """The port is DOWN, and the command that would mend it is there."""
    cable.down("rxe1")
    port = examine("--provider", "shm")["ibv:rxe1 port 1"]
    assert port["verdict"] in ("WARN", "ERROR")
    assert port["finding"].startswith("DOWN")
    assert "sudo ip link set cable1 up" in port["remedy"]


@pytest.mark.timeout(180)
def test_what_the_configuration_asks_of_the_device_is_checked():
    """The device is there; a GID index beyond its table is an error that says what to set."""
    asked = {"VERBENA_NETWORK_RDMA_ENABLED": "true", "VERBENA_NETWORK_RDMA_DEVICE": "rxe1"}
    good = examine("--provider", "shm", VERBENA_NETWORK_RDMA_GID_INDEX="1", **asked)
    assert good["network.rdma_device"]["finding"] == "rxe1"
    assert good["network.rdma_port"]["verdict"] == "OK"
    bad = examine("--provider", "shm", VERBENA_NETWORK_RDMA_GID_INDEX="200", **asked)
    assert bad["network.rdma_gid_index"]["verdict"] == "ERROR"
    assert "VERBENA_NETWORK_RDMA_GID_INDEX=-1" in bad["network.rdma_gid_index"]["remedy"]
