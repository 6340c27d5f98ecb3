"""Memory windows on kernel devices: those of Soft-RoCE, and what replaces them on Soft-iWARP."""

import json
import re
import subprocess
import sys
import time

import pytest
from support.environment import with_modules
from support.rdma.link import (
    connect_endpoints,
    drain,
    make_end,
    pattern,
    read,
    send,
    statuses,
)

from verbena.errors import WcStatus
from verbena.verbs import Access, QpState, open_device

LENDABLE = Access.LOCAL_WRITE | Access.WINDOW
# A process of its own: the connection manager's library keeps siw0 open until its process ends.
ON_SIW = """
import json, re, subprocess
from support.rdma.link import connect_managed, make_end, pattern, read
from verbena.verbs import Access, open_device

def registered():
    shown = subprocess.check_output(["rdma", "resource", "show", "siw0"], text=True)
    return int(re.search(r" mr (\\d+)", shown)[1])

with open_device("ibv:siw0") as near, open_device("ibv:siw0") as far:
    a, b = make_end(near), make_end(far)
    connect_managed(a, b, address="10.8.0.1:0")
    local = a.region(64, Access.LOCAL_WRITE)
    none = registered()
    region = b.pd.register(bytearray(pattern(64)), access=Access.LOCAL_WRITE | Access.WINDOW)
    window = b.pd.bind_window(region, b.qp)
    remote, counts = window.remote, [0, registered() - none]
    before = a.do(read(local, remote))[0].status.name
    assert bytes(memoryview(local)) == pattern(64)
    window.invalidate()
    counts.append(registered() - none)
    after = a.do(read(local, remote))[0].status.name
    region.close()
    counts.append(registered() - none)
    print(json.dumps([far.attributes.capabilities["memory_windows"], counts, before, after]))
"""


def regions_of(device: str) -> int:
    """As the kernel counts them."""
    shown = subprocess.check_output(["rdma", "resource", "show", device], text=True)
    found = re.search(r" mr (\d+)", shown)
    assert found
    return int(found[1])


@pytest.fixture
def through_the_cable():
    with open_device("ibv:rxe1") as near, open_device("ibv:rxe2") as far:
        a, b = make_end(near), make_end(far)
        connect_endpoints(a, b)
        yield a, b


def test_a_region_with_windows_returns_its_memory(through_the_cable):
    """The kernel deregisters no memory with a bound window: closing the region ends its windows first."""
    a, b = through_the_cable
    before = regions_of("rxe2")
    region = b.pd.register(bytearray(4096), access=LENDABLE)
    windows = [b.pd.bind_window(region, b.qp) for _ in range(10)]
    assert regions_of("rxe2") == before + 1
    region.close()
    assert regions_of("rxe2") == before
    for window in windows:
        window.close()
    assert b.qp.state is QpState.RTS
    a.expect(a.region(8))
    assert b.do(send(b.region(8)))[0].ok


def test_a_window_ends_although_its_bind_waits(cable, through_the_cable):
    """The completion of a bind waits for requests in front of it, which the peer does not acknowledge. The
    window ends at once, at the price of the connection."""
    _, b = through_the_cable
    region = b.region(pattern(64), LENDABLE)
    cable.drop("rxe1", 100)
    b.qp.post_send(send(b.region(8)))
    window = b.pd.bind_window(region, b.qp)
    start = time.monotonic()
    window.invalidate()
    assert time.monotonic() - start < 0.4, "not as long as the retries"
    assert b.qp.state is QpState.ERR
    assert statuses(drain(b.cq, 1)) == [WcStatus.WR_FLUSH_ERR]


def test_a_window_that_is_bound_behind_messages_is_valid_when_they_arrive(through_the_cable):
    """Binds keep their place between the requests of the program."""
    a, b = through_the_cable
    region = b.region(pattern(64), LENDABLE)
    for _ in range(50):
        window = b.pd.bind_window(region, b.qp)
        inbox = a.region(20)
        a.expect(inbox)
        outbox = b.region(window.remote.to_bytes())
        b.qp.post_send(send(outbox))
        assert drain(a.recv_cq, 1)[0].ok
        local = a.region(64)
        assert a.do(read(local, type(window.remote).from_bytes(bytes(memoryview(inbox)))))[0].ok
        assert bytes(memoryview(local)) == pattern(64)
        window.close()
        assert drain(b.cq, 1)[0].ok


def test_a_device_without_windows_lends_by_registrations(siw):
    """Soft-iWARP has none, and says so: each window is a registration, which ends as a window does."""
    program = subprocess.run(
        [sys.executable, "-c", ON_SIW],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=with_modules(),
    )
    assert program.returncode == 0, program.stderr
    capability, regions, before, after = json.loads(program.stdout)
    assert capability.startswith("none: ")
    assert regions == [0, 2, 1, 0], "none, a region and its window, the region, none"
    assert (before, after) == ("SUCCESS", "WR_FLUSH_ERR"), "Soft-iWARP flushes what the peer refuses"
