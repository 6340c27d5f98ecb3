"""rdma-core's rping on Linux Soft-iWARP at one end, Verbena's iwarp in user space at the other."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.rdma.link import DEADLINE_S

from verbena import verbs

rping = pytest.importorskip("support.rdma.rping", reason="tests/support/rdma/rping.py is not here")
pytestmark = pytest.mark.usefixtures("siw")

SIW, SIW_V6 = "10.8.0.1", "fd08::1"


def host_port(address: str) -> str:
    return f"[{address}]:{rping.PORT}" if ":" in address else f"{address}:{rping.PORT}"


@pytest.mark.parametrize("address", [SIW, SIW_V6])
@pytest.mark.parametrize("size", [64, rping.MOST])
def test_rping_serves_our_client(serve, checksum, address, size):
    """rping on siw0 READs our memory and WRITEs it back; every ping returns as it was."""
    server = serve(rping.PORT, "rping", "-s", "-a", address, "-S", str(size))
    with verbs.open_device("iwarp:lo") as context:
        echoes = rping.ping(context, host_port(address), count=5, size=size)
    assert echoes == [rping.text(number, size) for number in range(5)]
    printed = server.communicate(timeout=DEADLINE_S)[0]
    assert server.returncode == 0, printed


@pytest.mark.parametrize("address", [SIW, SIW_V6])
@pytest.mark.parametrize("size", [64, rping.MOST])
def test_rping_calls_our_server(checksum, address, size):
    """We READ the memory of rping on siw0 and WRITE it back; it finds nothing changed (-V)."""
    with (
        verbs.open_device("iwarp:lo") as context,
        context.listen(host_port(address)) as listener,
        ThreadPoolExecutor(1) as server,
    ):
        answering = server.submit(rping.answer, listener, size=size)
        call = ["rping", "-c", "-a", address, "-C", "5", "-S", str(size), "-V"]
        called = subprocess.run(call, capture_output=True, text=True, timeout=DEADLINE_S * 3, check=False)
        assert called.returncode == 0, called.stderr
        assert answering.result(DEADLINE_S) == [rping.text(number, size) for number in range(5)]
