"""A thousand connections over TCP on one progress thread at each end: nobody is forgotten."""

import asyncio
import resource

import pytest

from verbena import verbs

CONNECTIONS = 1000
SIZE = 64
PATIENCE_S = 60.0
# Sockets of both ends and their events, all in this process.
DESCRIPTORS = 6 * CONNECTIONS


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        pytest.skip(f"{DESCRIPTORS} descriptors are needed, {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_thousand_connections_are_all_served(many_descriptors):
    """Each of a thousand clients sends a message of its own and reads its own answer back."""
    with (
        verbs.open_device("iwarp:lo") as far,
        verbs.open_device("iwarp:lo") as near,
        far.alloc_pd() as far_pd,
        near.alloc_pd() as near_pd,
    ):
        far_cq, near_cq = far.create_cq(depth=2 * CONNECTIONS), near.create_cq(depth=2 * CONNECTIONS)
        window, answers = far_pd.allocate(SIZE * CONNECTIONS), near_pd.allocate(SIZE * CONNECTIONS)
        memoryview(answers)[:] = b"".join(index.to_bytes(SIZE, "big") for index in range(CONNECTIONS))
        qps = [near_pd.create_qp(send_cq=near_cq, max_send=4, max_recv=1) for _ in range(CONNECTIONS)]

        far_qps = [far_pd.create_qp(send_cq=far_cq, max_send=4, max_recv=1) for _ in range(CONNECTIONS)]

        async def accept(listener):
            return [await (await listener.accept()).accept(qp) for qp in far_qps]

        async with far.listen("", backlog=CONNECTIONS) as listener:
            accepting = asyncio.create_task(accept(listener))
            connections = [await near.connect(qp, listener.address, timeout_s=PATIENCE_S) for qp in qps]
            connections += await asyncio.wait_for(accepting, PATIENCE_S)

        async def serve(index):
            mine = slice(index * SIZE, (index + 1) * SIZE)
            await qps[index].write(answers[mine], window.remote[mine])
            memoryview(answers)[mine] = bytes(SIZE)
            await qps[index].read(answers[mine], window.remote[mine])

        await asyncio.wait_for(asyncio.gather(*(serve(i) for i in range(CONNECTIONS))), PATIENCE_S)
        expected = b"".join(index.to_bytes(SIZE, "big") for index in range(CONNECTIONS))
        assert bytes(memoryview(window)) == expected
        assert bytes(memoryview(answers)) == expected
