"""An RDMA device that is deleted under running programs: they close it, so that the kernel can delete it, go
on without it, and use it again when it is back."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.environment import with_modules
from support.rdma.link import wait_until

ADDRESS = "10.7.0.1"
DEVICE = "rxe8"
SECRET = "correct horse battery staple"
DELETED_WITHIN_S = 5.0
# One end of a session. The server echoes; the client calls without a pause and prints each change of wire,
# and every error.
SETTINGS = f"""
import asyncio, json, sys, time
import verbena
from verbena.transport import Settings
settings = Settings(secret={SECRET.encode()!r}, recv_buffer_pool_size=256, wires=("ibv", "iwarp"),
                    devices={{"ibv": {DEVICE!r}}})

def say(**words):
    print(json.dumps(words), flush=True)
"""
SERVER = (
    SETTINGS
    + f"""
async def main():
    handlers = {{"echo": lambda request: request.payload}}
    async with verbena.listen("{ADDRESS}:0", handlers=handlers, config=settings) as at:
        region = at.node.allocate(1 << 20)
        say(address=at.address, region=region.remote.to_bytes().hex())
        while True:
            await asyncio.sleep(0.2)
            say(absent=dict(at.node.wires.reasons), removed=at.node.info_rdma()["rdma_removed_devices"])

asyncio.run(main())
"""
)
CLIENT = (
    SETTINGS
    + """
async def main():
    async with verbena.connect(sys.argv[1], config=settings) as session:
        remote = verbena.RemoteRegion.from_bytes(bytes.fromhex(sys.argv[2]))
        wire, calls = None, 0
        while True:
            data = calls.to_bytes(8, "little") * 512
            assert await session.call("echo", data) == data
            await session.write(remote[:4096], data)
            assert await session.read(remote[:4096]) == data
            calls += 1
            if session.wire not in (wire, None):
                wire = session.wire
                say(wire=wire, calls=calls)

asyncio.run(main())
"""
)
IDLE = (
    SETTINGS
    + """
async def main():
    session = await verbena.connect(sys.argv[1], config=settings)
    async for _ in session.states():
        say(wire=session.wire)

asyncio.run(main())
"""
)
# A client of Valkey over RDMA that connects again when it is disconnected, as pools do.
VALKEY = """
import contextlib, json, sys, time
from verbena.errors import VerbenaError
from verbena.kv.frontends.valkey_rdma import RdmaSocket

state = None
while True:
    try:
        with contextlib.closing(RdmaSocket(sys.argv[1], timeout_s=2)) as connection:
            connection.settimeout(2)
            while True:
                connection.sendall(b"PING\\r\\n")
                answer = b""
                while not answer.endswith(b"\\r\\n"):
                    piece = connection.recv(100)
                    if not piece:
                        raise ConnectionError("closed")
                    answer += piece
                assert answer == b"+PONG\\r\\n", answer
                if state != "up":
                    state = "up"
                    print(json.dumps({"state": state}), flush=True)
                time.sleep(0.02)
    except (VerbenaError, OSError) as error:
        if state != "down":
            state = "down"
            print(json.dumps({"state": state, "why": str(error)}), flush=True)
        time.sleep(0.2)
"""


class Program:
    """A process and the lines of JSON that it has printed."""

    def __init__(self, path: Path, *command: str) -> None:
        self.path = path
        with path.open("w") as out, path.with_suffix(".log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdout=out,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=with_modules(),
            )

    @property
    def errors(self) -> str:
        return self.path.with_suffix(".log").read_text()

    @property
    def lines(self) -> list[dict[str, object]]:
        *whole, _ = self.path.read_text().split("\n")
        return [json.loads(line) for line in whole if line.startswith("{")]

    def wait_for(self, **words: object) -> dict[str, object]:
        """The last line, when it has these words."""
        deadline = time.monotonic() + 60
        while not (self.lines and self.lines[-1].items() >= words.items()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{self.path.name} does not say {words}: {self.lines[-3:]}, {self.errors}")
            os.sched_yield()
        return self.lines[-1]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(name: str, *command: str) -> Program:
        programs.append(Program(tmp_path / name, *command))
        return programs[-1]

    yield start
    for program in programs:
        program.end()


def add_device() -> None:
    subprocess.run(["rdma", "link", "add", DEVICE, "type", "rxe", "netdev", "far8"], check=True)
    gids = Path(f"/sys/class/infiniband/{DEVICE}/ports/1/gids")
    wanted = "0000:0000:0000:0000:0000:ffff:0a07:0001"
    wait_until(
        lambda: any(entry.read_text().strip() == wanted for entry in gids.iterdir()), "the GID of rxe8"
    )


def delete_device() -> float:
    """Deletes it, and returns how long the command took. It cannot be interrupted while it waits."""
    began = time.monotonic()
    command = subprocess.Popen(["rdma", "link", "delete", DEVICE])
    wait_until(lambda: command.poll() is not None, "the device to be deleted", 15)
    assert command.returncode == 0
    return time.monotonic() - began


@pytest.fixture
def device() -> Iterator[None]:
    """A device of its own: other tests of this process use the others, and keep them open."""
    subprocess.run(["ip", "link", "add", "far8", "type", "veth", "peer", "name", "far9"], check=True)
    for netdev in ("far8", "far9"):
        subprocess.run(["ip", "link", "set", netdev, "up"], check=True)
    subprocess.run(["ip", "address", "add", f"{ADDRESS}/24", "dev", "far8"], check=True)
    add_device()
    yield
    if Path(f"/sys/class/infiniband/{DEVICE}").exists():
        delete_device()
    subprocess.run(["ip", "link", "delete", "far8"], check=True)


def test_a_session_goes_on_without_the_device_and_returns_to_it(device, start):
    """`rdma link delete` returns within 5 s, no call fails, and the session uses the device again."""
    server = start("server", "-c", SERVER)
    wait_until(lambda: server.lines or server.process.poll() is not None, "the server", 60)
    opened = server.lines[0]
    client = start("client", "-c", CLIENT, str(opened["address"]), str(opened["region"]))
    client.wait_for(wire="ibv")
    for _ in range(2):
        took_s = delete_device()
        assert took_s < DELETED_WITHIN_S
        client.wait_for(wire="iwarp")
        server.wait_for(absent={"ibv": f"the device {DEVICE} was removed"}, removed=1)
        add_device()
        server.wait_for(absent={}, removed=0)
        client.wait_for(wire="ibv")
    assert client.errors == ""
    assert [line["wire"] for line in client.lines] == ["ibv", "iwarp", "ibv", "iwarp", "ibv"]


def test_an_idle_node_gives_the_device_up(device, start):
    """Also a node without a session, and a session without traffic, close the device."""
    server = start("server", "-c", SERVER)
    wait_until(lambda: server.lines or server.process.poll() is not None, "the server", 60)
    client = start("idle", "-c", IDLE, str(server.lines[0]["address"]))
    client.wait_for(wire="ibv")
    assert delete_device() < DELETED_WITHIN_S
    client.wait_for(wire="iwarp")
    client.end()
    add_device()
    server.wait_for(absent={}, removed=0)
    assert delete_device() < DELETED_WITHIN_S, "without any session"


def test_valkey_over_rdma_listens_again_when_the_device_is_back(device, start, tmp_path):
    """`verbena serve` disconnects its clients, the device can be deleted, and the store listens again."""
    url = f"rdma://{ADDRESS}:6400"
    arguments = ("--kv-port", "0", "--kv-rdma-listen", url, "--no-kv-protected-mode")
    arguments += ("--kv-persistence-dir", str(tmp_path / "data"))
    store = start("store", "-m", "verbena", "serve", *arguments)
    wait_until(lambda: "6400" in store.path.read_text() or store.process.poll() is not None, "the store", 60)
    assert store.process.poll() is None, store.errors
    client = start("valkey", "-c", VALKEY, url)
    client.wait_for(state="up")
    for _ in range(2):
        took_s = delete_device()
        assert took_s < DELETED_WITHIN_S
        client.wait_for(state="down")
        add_device()
        client.wait_for(state="up")
    assert store.process.poll() is None, store.errors


def test_requests_in_flight_are_flushed(device, start):
    """A program that waits for a message on the verbs gets WR_FLUSH_ERR, and can open the device again."""
    waiting = f"""
import json, sys, time
from support.rdma.link import connect_managed, make_end
from verbena import errors, verbs

def run():
    with verbs.open_device("ibv:{DEVICE}") as near, verbs.open_device("ibv:{DEVICE}") as far:
        a, b = make_end(near), make_end(far)
        connect_managed(a, b, address="{ADDRESS}:0")
        print(json.dumps({{"connected": True}}), flush=True)
        try:
            a.qp.sync.recv(a.region(64), timeout_s=60)
        except errors.VerbenaError as error:
            while not near.removed:  # the other end's context may have noticed it earlier
                time.sleep(0.01)
            print(json.dumps({{"code": error.code}}), flush=True)

run()
while True:
    try:
        verbs.open_device("ibv:{DEVICE}").close()
    except errors.UnavailableError:
        time.sleep(0.1)
        continue
    run()
"""
    program = start("waiting", "-c", waiting)
    for _ in range(2):
        program.wait_for(connected=True)
        assert delete_device() < DELETED_WITHIN_S
        program.wait_for(code="WR_FLUSH_ERR")
        add_device()
