"""Many registrations, connections and objects later, the process holds what it held before."""

import asyncio

import pytest
from support import leaks
from support.rdma.link import DEADLINE_S, End, connect_endpoints, make_end, write

from verbena import verbs
from verbena.verbs import Access

pytestmark = [
    pytest.mark.rule("processes"),
    pytest.mark.parametrize("provider", ["shm", "fake", "iwarp", "quic"], indirect=True),
]

SLACK_BYTES = 32 << 20
SLACK_MAPPINGS = 20  # the allocator's own arenas come and go


@pytest.fixture
def no_leak():
    """Call it after a warm-up; at the end descriptors, mappings and memory are what they were then."""
    marks = []

    def mark():
        marks.append((leaks.descriptors(), leaks.mappings(), leaks.resident_bytes()))

    files = leaks.leftovers()
    yield mark
    descriptors, mappings, resident = marks[-1]
    assert leaks.descriptors() <= descriptors
    assert leaks.mappings() <= mappings + SLACK_MAPPINGS
    assert leaks.resident_bytes() < resident + SLACK_BYTES
    assert leaks.leftovers() - files == set()


def test_ten_thousand_registrations(provider, no_leak):
    """Registering and closing user buffers and allocated regions leaks nothing."""
    with verbs.open_device(provider) as context:
        pd = context.alloc_pd()

        def turn():
            with pd.register(bytearray(4096), access=Access.ALL), pd.allocate(4096):
                pass

        for _ in range(200):
            turn()
        no_leak()
        for _ in range(5000):
            turn()


def test_a_thousand_connections(provider, no_leak):
    """Connecting, moving a byte and closing leaks nothing, by endpoints."""
    with verbs.open_device(provider) as context:
        pd, cq = context.alloc_pd(), context.create_cq(depth=64)
        source, target = pd.allocate(8), pd.allocate(8)

        def turn():
            with pd.create_qp(send_cq=cq) as left, pd.create_qp(send_cq=cq) as right:
                a, b = (End(context, pd, cq, cq, qp) for qp in (left, right))
                connect_endpoints(a, b)
                assert a.do(write(source, target.remote))[0].ok

        for _ in range(20):
            turn()
        no_leak()
        for _ in range(1000):
            turn()


async def test_hundreds_of_managed_connections(provider, no_leak):
    """Connecting through the manager, disconnecting and closing leaks nothing."""
    with verbs.open_device(provider) as context:
        pd, cq = context.alloc_pd(), context.create_cq(depth=64)

        async def turn(listener):
            with pd.create_qp(send_cq=cq) as left, pd.create_qp(send_cq=cq) as right:
                calling = asyncio.create_task(context.connect(left, listener.address, timeout_s=DEADLINE_S))
                request = await asyncio.wait_for(listener.accept(), DEADLINE_S)
                accepted = await request.accept(right)
                (await calling).disconnect()
                await asyncio.wait_for(accepted.wait_disconnected(), DEADLINE_S)

        async with context.listen("") as listener:
            for _ in range(20):
                await turn(listener)
            no_leak()
            for _ in range(300):
                await turn(listener)


def test_hundreds_of_contexts(provider, no_leak):
    """Opening a device, using everything once and closing the context alone leaks nothing."""

    def turn():
        with verbs.open_device(provider) as context:
            end = make_end(context)
            end.region(4096)
            end.pd.register(bytearray(100), access=Access.ALL)
            end.pd.create_srq()
            end.cq.arm()

    for _ in range(10):
        turn()
    no_leak()
    for _ in range(200):
        turn()


def test_objects_that_are_only_forgotten_are_freed(provider, no_leak):
    """Without any close(), dropping the last name frees all."""

    def turn():
        end = make_end(verbs.open_device(provider))
        end.region(4096)

    for _ in range(10):
        turn()
    no_leak()
    for _ in range(100):
        turn()
