"""The effect of each key of [network] and [network.rdma], observed where it applies."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import verbena
from verbena import config, errors, verbs
from verbena.transport import Node, Session, Settings
from verbena.transport.configured import settings_from
from verbena.verbs import IbvOptions

POOL = "recv_buffer_pool_size = 64\nrecv_queue_depth = 16\nsend_queue_depth = 16\n"


def settings(text: str = "") -> Settings:
    return settings_from(config.loads(f"[network.rdma]\n{POOL}{text}"))


def memory(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


async def meet(stack: AsyncExitStack, chosen: Settings, *, wire: str = "iwarp") -> Session:
    listener = await stack.enter_async_context(await verbena.listen("127.0.0.1:0", config=chosen))
    session: Session = await stack.enter_async_context(
        await verbena.connect(listener.address, wire=wire, config=chosen)
    )
    return session


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
async def test_queue_pairs_are_made_as_configured(wire: str) -> None:
    """Depth, scatter/gather elements per request and inline bytes are as configured."""
    async with AsyncExitStack() as stack:
        chosen = settings("max_send_sge = 7\nmax_recv_sge = 3\ninline_threshold = 100\n")
        session = await meet(stack, chosen, wire=wire)
        assert session._link is not None
        limits = session._link.qp.limits
        assert (limits.max_send, limits.max_send_sge, limits.max_inline) == (16, 7, 100)


async def test_links_that_do_not_fit_a_completion_queue_get_another() -> None:
    """cq_size = 80 is enough for two links of 16 + 16 + 8 completions each."""
    chosen = settings("cq_size = 80\n")
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(
            await verbena.listen("127.0.0.1:0", handlers={"echo": lambda r: r.payload}, config=chosen)
        )
        node = await asyncio.to_thread(Node, chosen, by_loop=True)
        stack.callback(node.close)
        sessions = [
            await verbena.connect(listener.address, wire="iwarp", node=node, config=chosen) for _ in range(5)
        ]
        queues = node.wires["iwarp"].queues
        assert len(queues) == 3
        for number, session in enumerate(sessions):
            assert await session.call("echo", bytes([number])) == bytes([number])
        await asyncio.gather(*(session.call("echo", b"x") for session in sessions for _ in range(100)))
        for session in sessions[:2]:
            await session.close()
        another = await verbena.connect(listener.address, wire="iwarp", node=node, config=chosen)
        assert await another.call("echo", b"y") == b"y"
        assert len(queues) == 3  # in the room that closed links left


@pytest.mark.parametrize("adaptive", [True, False])
async def test_a_loop_that_does_not_adapt_never_sleeps(adaptive: bool) -> None:
    """Without adaptive_polling the loop polls at every turn, although busy_poll_us = 0."""
    async with AsyncExitStack() as stack:
        chosen = settings(f"adaptive_polling = {str(adaptive).lower()}\nbusy_poll_us = 0\n")
        session = await meet(stack, chosen)
        events = session.node._events()
        seen = set()
        for _ in range(1000):
            await asyncio.sleep(0)
            seen.add(events._spinning)
        assert (False in seen) is adaptive


def test_pinned_buffers_are_locked() -> None:
    """pin_memory applies to message buffers and to memory that the node allocates."""
    plain = memory("VmLck")
    with Node(settings("pin_memory = true\n")) as node:
        pool = node.settings.recv_buffer_size * node.settings.recv_buffer_pool_size
        buffers = memory("VmLck")
        assert buffers >= plain + pool
        region = node.allocate(1 << 20)
        assert memory("VmLck") >= buffers + (1 << 20)
        region.close()


def test_huge_pages_are_used_or_their_lack_is_the_reason() -> None:
    """Without reserved huge pages the node reports that, and does not use other pages."""
    reserved = int(Path("/proc/sys/vm/nr_hugepages").read_text())
    wanted = settings("huge_pages = true\n")
    if not reserved:
        with pytest.raises(errors.UnavailableError, match="huge pages"):
            Node(wanted)
        return
    with Node(wanted):
        assert memory("HugetlbPages") > 0


def test_the_port_and_the_gid_reach_the_device() -> None:
    """They become options of the wire that has them; -1 leaves the choice to the wire."""
    asked: list[tuple[str, dict[str, Any]]] = []

    def open_device(name: str, **options: Any) -> verbs.Context:
        asked.append((name, options))
        return verbs.open_device("shm" if name.startswith("ibv") else name)

    for index, entry in ((5, 5), (-1, None)):
        text = f'rdma_enabled = true\nrdma_device = "rxe0"\nrdma_port = 2\nrdma_gid_index = {index}\n'
        chosen = settings_from(config.loads(f"[network]\n{text}[network.rdma]\n{POOL}"))
        with Node(replace(chosen, wires=("ibv",), open_device=open_device)):
            assert asked.pop() == ("ibv:rxe0", {"options": IbvOptions(port=2, gid_index=entry)})


def test_a_missing_default_gid_is_replaced_by_the_best_one(caplog: pytest.LogCaptureFixture) -> None:
    """A new Soft-RoCE device has no entry 3: the best one is used instead, and this is logged once. If the
    GID was configured, the log states that the wire is not used, why, and what to set."""
    asked: list[int | None] = []

    def open_device(name: str, *, options: Any = None) -> verbs.Context:
        if not name.startswith("ibv"):
            return verbs.open_device(name)
        asked.append(options.gid_index)
        if options.gid_index is not None:
            detail = f"the GID table of rxe0, port 1, has no entry {options.gid_index}; it has 0, 1"
            raise errors.setup_error("no_gid", operation="open device", detail=detail)
        return verbs.open_device("shm")

    for line, tries, wires in (
        ("", [3, None], ("ibv", "iwarp")),
        ("rdma_gid_index = 3\n", [3], ("iwarp",)),
    ):
        text = f'[network]\nrdma_enabled = true\nrdma_device = "rxe0"\n{line}[network.rdma]\n{POOL}'
        chosen = replace(settings_from(config.loads(text)), wires=("ibv", "iwarp"), open_device=open_device)
        with Node(chosen) as node:
            assert (asked, node.wires.names) == (tries, wires)
            assert (node.wires.ibv is not None and node.wires.ibv.gid_index) == tries[-1]
        asked.clear()
        [record] = caplog.records
        assert record.getMessage().startswith(
            "a configured wire is not usable" if line else "the default GID index"
        )
        assert "has no entry 3; it has 0, 1" in record.getMessage()
        assert 'set="network.rdma_gid_index = -1"' in record.getMessage()
        caplog.clear()
