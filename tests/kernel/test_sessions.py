"""Sessions over a real device: the wire is taken, from the port and the GID that are configured."""

import asyncio
import ipaddress
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from support.rdma.link import connect_managed, make_end, wait_until

import verbena
from verbena import config, errors
from verbena.transport import SessionState, Settings
from verbena.transport.configured import settings_from
from verbena.verbs import Access, IbvOptions, open_device

SECRET = "correct horse battery staple"
ADDRESS, SECOND = "10.0.2.15", "10.0.2.77"
SETTINGS = Settings(secret=SECRET.encode(), recv_buffer_pool_size=256, devices={"ibv": "rxe0"})


def gid_index(address: str) -> int:
    """Of rxe0's table, once the kernel's worker has entered it."""
    wanted = ipaddress.ip_address(f"::ffff:{address}").packed
    deadline = time.monotonic() + 30
    while True:
        with open_device("ibv:rxe0") as context:
            gids = [bytes(gid) for gid in context.attributes.ports[0].gids]
        if wanted in gids:
            return gids.index(wanted)
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def second_address() -> Iterator[int]:
    """The index of a second IPv4 address in rxe0's table."""
    interface = next(
        line.split()[1]
        for line in subprocess.check_output(["ip", "-o", "addr"], text=True).splitlines()
        if f" {ADDRESS}/" in line
    )
    subprocess.run(["ip", "addr", "add", f"{SECOND}/24", "dev", interface], check=True)
    try:
        yield gid_index(SECOND)
    finally:
        subprocess.run(["ip", "addr", "del", f"{SECOND}/24", "dev", interface], check=True)


async def test_a_session_runs_over_ibv():
    """Calls, one-sided work and bulk."""
    handlers = {"echo": lambda request: request.payload}
    async with (
        await verbena.listen(f"{ADDRESS}:0", handlers=handlers, config=SETTINGS) as listener,
        await verbena.connect(listener.address, wire="ibv", config=SETTINGS) as session,
    ):
        for size in (0, 100, 5000, 300_000):
            assert await session.call("echo", bytes(size)) == bytes(size)
        region = listener.node.allocate(1 << 20, access=Access.ALL)
        data = bytes(range(256)) * 4096
        await session.write(region.remote, data)
        assert bytes(region) == data
        back = bytearray(len(data))
        await session.read_into(region.remote, back)
        assert back == data
        assert await session.fetch_add(region.remote, 1) == int.from_bytes(data[:8], "little")


async def test_the_gid_that_is_configured_is_the_address(second_address):
    """A listener on every address listens at the entry's, and tells its clients, who come from it too."""
    text = (
        f'[network]\nrdma_enabled = true\nrdma_device = "rxe0"\nrdma_gid_index = {second_address}\n'
        "[network.rdma]\nrecv_buffer_pool_size = 256\n"
    )
    chosen = replace(settings_from(config.loads(text)), secret=SECRET.encode())
    async with verbena.listen("0.0.0.0:0", config=chosen) as listener:
        (offer,) = (offer for offer in listener._wire_listeners.offers if offer.name == "ibv")
        assert offer.address.startswith(f"{SECOND}:")
        address = f"{ADDRESS}:{listener.address.rpartition(':')[2]}"
        async with verbena.connect(address, wire="ibv", config=chosen) as session:
            (served,) = listener.sessions
            assert await asyncio.to_thread(served.sync.wait_for, SessionState.CONNECTED, 30)
            assert served._link.connection.peer.startswith(f"{SECOND}:")
            assert session.wire == "ibv"


async def test_the_device_takes_over_from_tcp_before_tcp_is_given_up():
    """A device that was kept down for a while: the session goes on by TCP, and returns without a gap."""
    hasty = replace(SETTINGS, wires=("ibv", "iwarp"), retry_delay_ms=20, upgrade_delay_ms=100)
    async with (
        await verbena.listen(
            f"{ADDRESS}:0", handlers={"echo": lambda r: r.payload}, config=hasty
        ) as listener,
        await verbena.connect(listener.address, config=hasty) as session,
    ):
        assert session.wire == "ibv"
        session.break_link(rest_s=1.0)
        async with asyncio.timeout(60):
            while session.wire != "iwarp":
                await session.call("echo", b"on")
            states = []
            session._watchers.add(states.append)
            while session.wire != "ibv":
                assert await session.call("echo", b"still") == b"still"
        assert await session.call("echo", b"back") == b"back"
        assert states == [SessionState.CONNECTED]


@pytest.mark.parametrize("traffic", ["busy", "idle"])
async def test_calls_go_on_by_tcp_within_five_seconds_of_a_total_loss(cable, traffic):
    """Nothing crosses the cable, and neither end gets an event. With default settings, calls work on the
    fallback within 5 s, also if the session is idle at first; when the cable works again, the session
    returns to it."""
    near, far = (
        replace(
            Settings(secret=SECRET.encode(), recv_buffer_pool_size=256, wires=("ibv", "iwarp")),
            devices={"ibv": device},
        )
        for device in ("rxe1", "rxe2")
    )
    handlers = {"echo": lambda request: request.payload}
    async with (
        await verbena.listen("10.9.0.2:0", handlers=handlers, config=far) as listener,
        await verbena.connect(listener.address, config=near) as session,
    ):
        async with asyncio.timeout(60):
            while session.wire != "ibv":  # a busy guest may have used the fallback first
                assert await session.call("echo", b"soon") == b"soon"
        assert await session.call("echo", b"before") == b"before"
        for device in ("rxe1", "rxe2"):
            cable.drop(device, 100)
        lost = time.monotonic()
        if traffic == "idle":
            await asyncio.to_thread(wait_until, lambda: session.wire != "ibv", "the loss to be noticed", 60)
        assert await session.call("echo", b"after") == b"after"
        took_s = time.monotonic() - lost
        print(f"from the loss to an answered call: {took_s:.2f} s")
        assert took_s < 5
        assert await asyncio.to_thread(session.sync.wait_for, SessionState.CONNECTED, 60)
        assert session.wire == "iwarp"
        for device in ("rxe1", "rxe2"):
            cable.drop(device, 0)
        async with asyncio.timeout(60):
            while session.wire != "ibv":
                assert await session.call("echo", b"still") == b"still"


async def test_a_first_connection_does_not_wait_for_a_silent_device(cable):
    """If nothing crosses the cable, a new session is open within 5 s, too."""
    near, far = (
        Settings(
            secret=SECRET.encode(),
            recv_buffer_pool_size=256,
            wires=("ibv", "iwarp"),
            devices={"ibv": device},
        )
        for device in ("rxe1", "rxe2")
    )
    async with verbena.listen("10.9.0.2:0", config=far) as listener:
        for device in ("rxe1", "rxe2"):
            cable.drop(device, 100)
        start = time.monotonic()
        async with verbena.connect(listener.address, config=near) as session:
            took_s = time.monotonic() - start
            print(f"connected over {session} after {took_s:.2f} s")
            assert session.wire == "iwarp"
            assert took_s < 5


@pytest.mark.parametrize(
    ("known", "words"), [(False, "no answer to ARP"), (True, "RoCE v2 needs UDP port 4791")]
)
def test_a_silent_path_is_a_timeout_that_names_what_was_not_answered(cable, known, words):
    """Lost ARP is not reported as an address without a listener."""
    with open_device("ibv:rxe1") as near, open_device("ibv:rxe2") as far:
        connect_managed(make_end(near), make_end(far), address="10.9.0.2:0")
        if not known:
            subprocess.run(["ip", "neigh", "flush", "dev", "cable1"], check=True)
        for device in ("rxe1", "rxe2"):
            cable.drop(device, 100)
        with pytest.raises(errors.TimedOutError) as silent:
            near.connect_blocking(make_end(near).qp, "10.9.0.2:7999", timeout_s=1.0)
        assert silent.value.code == "connect_timeout"
        assert words in str(silent.value)


def regions_of_rxe0() -> int:
    """As the kernel counts them."""
    shown = subprocess.check_output(["rdma", "resource", "show", "rxe0"], text=True)
    return int(re.search(r" mr (\d+)", shown)[1])


async def test_the_same_array_is_registered_once():
    """On a device whose registrations lock memory; the kernel's count shows it."""
    async with (
        await verbena.listen(f"{ADDRESS}:0", config=SETTINGS) as listener,
        await verbena.connect(listener.address, wire="ibv", config=SETTINGS) as session,
    ):
        region = listener.node.allocate(1 << 20)
        array = np.full(1 << 20, 7, np.uint8)
        counts = []
        for number in range(3):
            array[:] = number
            await session.write(region.remote, array)
            assert bytes(region) == bytes(array)
            counts.append(regions_of_rxe0())
        assert counts[0] == counts[1] == counts[2]
        kept = session.node.snapshot().registrations
        assert (kept.hits, kept.misses, kept.bytes) == (2, 1, 1 << 20)
        before = regions_of_rxe0()
        session.node._native.sweep_registrations()
        assert regions_of_rxe0() == before
        del array
        session.node._native.sweep_registrations()
        assert regions_of_rxe0() == before - 1


@pytest.mark.parametrize(
    ("options", "code"), [(IbvOptions(port=2), "no_device"), (IbvOptions(gid_index=200), "no_gid")]
)
def test_what_the_device_lacks_is_refused(options, code):
    with pytest.raises(errors.VerbenaError) as refusal:
        open_device("ibv:rxe0", options=options)
    assert refusal.value.code == code
