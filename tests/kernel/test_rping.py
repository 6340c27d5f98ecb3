"""rdma-core's rping at one end, Verbena at the other, through the connection manager and the cable."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.rdma import rping
from support.rdma.link import DEADLINE_S

from verbena import verbs


@pytest.mark.parametrize("size", [64, rping.MOST])
def test_rping_serves_our_client(serve, size):
    """Its READs of our memory and WRITEs into it bring every ping back as it was."""
    server = serve(rping.PORT, "rping", "-s", "-a", "10.9.0.2", "-S", str(size))
    with verbs.open_device("ibv:rxe1") as context:
        echoes = rping.ping(context, f"10.9.0.2:{rping.PORT}", count=5, size=size)
    assert echoes == [rping.text(number, size) for number in range(5)]
    printed = server.communicate(timeout=DEADLINE_S)[0]
    assert server.returncode == 0, printed


@pytest.mark.parametrize("size", [64, rping.MOST])
def test_rping_calls_our_server(size):
    """We READ its memory and WRITE it back; it finds nothing changed (-V) and leaves in peace."""
    with (
        verbs.open_device("ibv:rxe2") as context,
        context.listen(f"10.9.0.2:{rping.PORT}") as listener,
        ThreadPoolExecutor(1) as server,
    ):
        answering = server.submit(rping.answer, listener, size=size)
        call = ["rping", "-c", "-I", "10.9.0.1", "-a", "10.9.0.2", "-C", "5", "-S", str(size), "-V"]
        called = subprocess.run(call, capture_output=True, text=True, timeout=DEADLINE_S * 3, check=False)
        assert rping.has_finished(called), called
        assert answering.result(DEADLINE_S) == [rping.text(number, size) for number in range(5)]
