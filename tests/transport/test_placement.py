"""The NUMA node from which buffers are allocated, as the kernel reports it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verbena import config, verbs
from verbena.transport import Node, Settings
from verbena.transport.configured import settings_from
from verbena.transport.memory.placement import choose_node, online_nodes

SMALL = Settings(recv_buffer_pool_size=64)


def policy_at(address: int) -> str:
    """The kernel's policy for the mapping that contains this address."""
    best = (0, "")
    for line in Path("/proc/self/numa_maps").read_text().splitlines():
        start, policy, *_ = line.split()
        if best[0] < int(start, 16) <= address:
            best = (int(start, 16), policy)
    return best[1]


@pytest.mark.parametrize(
    ("numa", "device", "online", "node", "reason"),
    [
        ("auto", 1, (0, 1), 1, ""),
        ("auto", 0, (0, 1), 0, ""),
        ("auto", 0, (0,), -1, "one NUMA node"),
        ("auto", -1, (0, 1), -1, "not tied"),
        ("auto", -1, (), -1, "one NUMA node"),
        ("off", 1, (0, 1), -1, "switched off"),
        ("1", -1, (0, 1), 1, ""),
        ("0", 1, (0, 1), 0, ""),
    ],
)
def test_the_node_is_the_devices_where_there_is_a_choice(numa, device, online, node, reason):
    """The device's NUMA node or the configured one is used; otherwise there is a reason."""
    chosen, why = choose_node(numa, device, online)
    assert chosen == node
    assert reason in why
    assert bool(why) == (node < 0)


@pytest.mark.parametrize(("text", "nodes"), [("0\n", (0,)), ("0-1,3\n", (0, 1, 3)), ("\n", ())])
def test_the_machines_nodes_are_read(tmp_path, text, nodes):
    path = tmp_path / "online"
    path.write_text(text)
    assert online_nodes(path) == nodes
    assert online_nodes(tmp_path / "absent") == ()


@pytest.mark.skipif(not online_nodes(), reason="this kernel knows nothing of NUMA")
@pytest.mark.parametrize("wire", ["shm", "iwarp"])
def test_buffers_come_from_the_node_that_is_named(wire):
    """The kernel shows the policy for message buffers and for memory that the program allocates."""
    chosen = replace(settings_from(config.loads('network.rdma.numa = "0"')), recv_buffer_pool_size=64)
    with Node(replace(chosen, wires=(wire,))) as node:
        note = node.wires[wire].memory_note
        if "may not choose" in note:
            pytest.skip(note)
        assert (node.wires[wire].memory_node, note) == (0, "")
        region = node.allocate(1 << 20)
        assert policy_at(region.remote.addr).startswith("prefer")
    with Node(replace(SMALL, wires=(wire,), numa="off")) as node:
        assert (node.wires[wire].memory_node, node.wires[wire].memory_note) == (-1, "switched off")
        region = node.allocate(1 << 20)
        assert policy_at(region.remote.addr) == "default"


def test_a_missing_numa_node_is_reported_and_ignored():
    """The problem is reported, and buffers come from any NUMA node."""
    absent = max(online_nodes(), default=0) + 1
    with Node(replace(SMALL, numa=str(absent))) as node:
        for wire in node.wires:
            assert wire.memory_node == -1
            assert wire.memory_note
    with verbs.open_device("shm") as context:
        assert context.set_memory_node(absent)
        assert context.set_memory_node(-1) == ""
        memory = context.alloc_pd().allocate(4096)
        assert bytes(memoryview(memory)) == bytes(4096)  # type: ignore[arg-type]
