"""Base copies use the device and the queues that `[shards.rdma]` configures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verbena import config, verbs
from verbena.kv.cluster.node import copy_node_settings
from verbena.kv.migration.copy_path import RDMA_WIRES
from verbena.transport import Node, connect, listen
from verbena.verbs import IbvOptions

POOL = "[network.rdma]\nrecv_buffer_pool_size = 256\n"


@pytest.mark.parametrize(("index", "entry"), [(5, 5), (-1, None)])
def test_the_device_its_port_and_its_gid_are_those_of_moves(index: int, entry: int | None) -> None:
    """Whatever device other sessions use, base copies use the one of `[shards.rdma]`."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def open_device(name: str, **options: Any) -> verbs.Context:
        asked.append((name, options))
        return verbs.open_device("shm")

    text = (
        f'[network]\nrdma_enabled = true\nrdma_device = "rxe0"\n{POOL}'
        f'[shards.rdma]\ndevice = "rxe1"\nport = 2\ngid_index = {index}\n'
    )
    chosen = copy_node_settings(config.loads(text))
    assert chosen.wires == ("shm", "ibv")
    with Node(replace(chosen, wires=("ibv",), open_device=open_device)):
        assert asked == [("ibv:rxe1", {"options": IbvOptions(port=2, gid_index=entry)})]
    assert copy_node_settings(config.loads('[shards.rdma]\ndevice = "auto"\n')).devices == {}


async def test_the_queue_depth_is_the_configured_one() -> None:
    """The key applies to every wire of base copies. Their node has RDMA wires only, because they have
    their own fallback."""
    chosen = config.loads(f"{POOL}[shards.rdma]\nqp_depth = 23\n")
    with Node(copy_node_settings(chosen)) as node:
        assert set(node.wires.names) <= RDMA_WIRES
        async with (
            await listen("127.0.0.1:0", config=chosen) as listener,
            await connect(listener.address, node=node, config=chosen) as session,
        ):
            assert session.wire == "shm"
            assert session._link is not None
            assert session._link.qp.limits.max_send == 23
