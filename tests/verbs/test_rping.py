"""CM: rping's protocol between two ends of one wire; tests/kernel has the real rping at either end."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.rdma import rping
from support.rdma.link import DEADLINE_S, open_contexts

pytestmark = pytest.mark.rule("CM")


@pytest.mark.parametrize("size", [64, rping.MOST])
def test_pings_come_back_as_they_were_sent(provider, size):
    """Messages, a READ and a WRITE in turns, between queue pairs whose receives were posted beforehand."""
    sent = [rping.text(number, size) for number in range(3)]
    with contextlib.ExitStack() as stack:
        client, server = open_contexts(provider, stack)
        listener = stack.enter_context(server.listen())
        answering = stack.enter_context(ThreadPoolExecutor(1)).submit(rping.answer, listener, size=size)
        assert rping.ping(client, listener.address, size=size) == sent
        assert answering.result(DEADLINE_S) == sent
