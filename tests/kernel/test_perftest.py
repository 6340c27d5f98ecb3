"""perftest's bandwidth programs on one end of the cable; on the other Verbena, as their server or client."""

import contextlib
import socket
import subprocess
from array import array

import pytest
from support.rdma.link import DEADLINE_S, End, drain, make_end
from support.rdma.perftest import CYCLE_BYTES, MTU, PORT, Conversation, Keys
from support.rdma.pyverbs_peer import ipv4_gid

from verbena.verbs import Endpoint, Gid, RecvWorkRequest, RemoteMemory, open_device

COUNT = 40
SIZES = {"write": 65_536, "read": 65_536, "send": 65_536, "atomic": 8}
KINDS = list(SIZES)
READS = 4


def program(kind, device):
    size = [] if kind == "atomic" else ["-s", str(SIZES[kind])]
    return [f"ib_{kind}_bw", "-F", "-d", device, "-x", "1", "-n", str(COUNT), *size]


@pytest.fixture
def talk():
    """Our end of the cable and the conversation, once somebody is there to talk to."""
    with contextlib.ExitStack() as stack:

        def begin(link: socket.socket, *, calling: bool) -> tuple[End, Conversation]:
            stack.enter_context(link)
            end = make_end(stack.enter_context(open_device("ibv:rxe1")))
            return end, Conversation(link, calling=calling)

        yield begin


def meet(end, conversation, window):
    """Everything up to where the operations begin; our keys and theirs."""
    conversation.greet()
    ours = Keys(end.qp.number, end.qp.endpoint.psn, bytes(ipv4_gid(end)), window.rkey, window.addr, READS)
    theirs = conversation.keys(ours)
    reads = min(READS, theirs.reads)
    end.qp.connect_to(Endpoint(Gid(theirs.gid), theirs.qp_num, theirs.psn), path_mtu=MTU, max_rd_atomic=reads)
    conversation.keys(ours)
    conversation.keys(ours)
    return ours, theirs


@pytest.mark.parametrize("kind", KINDS)
def test_it_works_on_our_memory(talk, kind):
    """Its client finishes all operations and reports them to us; our memory shows what they did."""
    with socket.create_server(("127.0.0.1", PORT)) as server:
        server.settimeout(DEADLINE_S * 3)
        client = subprocess.Popen(
            [*program(kind, "rxe2"), "127.0.0.1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        with client:
            try:
                end, conversation = talk(server.accept()[0], calling=False)
                size = SIZES[kind]
                window = end.region(2 * max(size, CYCLE_BYTES))
                ours, _ = meet(end, conversation, window)
                if kind == "send":
                    end.qp.post_recv(
                        *(RecvWorkRequest(local=window[:size], wr_id=number) for number in range(COUNT))
                    )
                    conversation.keys(ours)
                    received = drain(end.recv_cq, COUNT, timeout_s=DEADLINE_S * 3)
                    assert [(done.wr_id, done.ok, done.byte_count) for done in received] == [
                        (number, True, size) for number in range(COUNT)
                    ]
                else:
                    conversation.keys(ours)
                    assert conversation.report(0, 0, 0)[:2] == (size, COUNT)
                conversation.finish(ours)
                printed = client.communicate(timeout=DEADLINE_S)[0]
            finally:
                client.kill()
    assert client.returncode == 0, printed
    if kind == "atomic":
        assert sum(array("Q", bytes(memoryview(window)))) == COUNT  # it adds one each time
    elif kind != "read":
        assert any(memoryview(window)[:size])  # it sends random bytes


@pytest.mark.parametrize("kind", KINDS)
def test_we_work_on_its_memory(serve, talk, kind):
    """Its server lets us do all operations, and prints the report that we make of them."""
    server = serve(PORT, *program(kind, "rxe2"))
    end, conversation = talk(socket.create_connection(("127.0.0.1", PORT)), calling=True)
    size = SIZES[kind]
    window = end.region(bytes(range(256)) * (size // 256) if kind in ("write", "send") else size)
    ours, theirs = meet(end, conversation, window)
    remote = RemoteMemory(theirs.addr, theirs.rkey, size)
    if kind == "send":
        conversation.keys(ours)  # now its receives are posted
    check = {"write": written, "read": taken, "send": sent, "atomic": counted}[kind]
    check(end, window, remote)
    if kind != "send":
        conversation.keys(ours)
        conversation.report(size, COUNT, 123.25)
    conversation.finish(ours)
    printed = server.communicate(timeout=DEADLINE_S)[0]
    assert server.returncode == 0, printed
    if kind != "send":
        assert [line.split()[:4] for line in printed.splitlines() if "123.25" in line] == [
            [str(size), str(COUNT), "0.00", "123.25"]
        ]


def written(end, window, remote):
    for _ in range(COUNT):
        end.qp.sync.write(window, remote, timeout_s=DEADLINE_S)


def taken(end, window, remote):
    """Its memory does not change, so that each READ finds the same."""
    seen = set()
    for _ in range(COUNT):
        end.qp.sync.read(window, remote, timeout_s=DEADLINE_S)
        seen.add(bytes(memoryview(window)))
    (content,) = seen
    assert any(content)


def sent(end, window, _remote):
    for _ in range(COUNT):
        end.qp.sync.send(window, timeout_s=DEADLINE_S)


def counted(end, _window, remote):
    """Nobody else adds to its word, so that each FETCH_ADD finds one more."""
    found = [end.qp.sync.fetch_add(remote, 1, timeout_s=DEADLINE_S) for _ in range(COUNT)]
    assert found == [(found[0] + number) % 2**64 for number in range(COUNT)]
