"""A verbs program on Linux Soft-iWARP at one end, Verbena's iwarp in user space at the other."""

import contextlib
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.rdma.link import (
    End,
    drain,
    fetch_add,
    make_end,
    pattern,
    read,
    send,
    statuses,
    wait_until,
    write,
)

from verbena import errors, verbs
from verbena.errors import WcStatus
from verbena.verbs import ConnectionState, QpState, RemoteMemory

pytestmark = pytest.mark.usefixtures("siw")

PROGRAM = Path(__file__).with_name("verbs_program.py")
SIW, PORT = "10.8.0.1", 7175
QP_REQ_ERR = 2  # the asynchronous event of that name
PATIENCE_S = 60.0  # the program is Python too, and its machine is emulated
LONG = 200_003  # of several segments, and no multiple of four


class Program:
    """A verbs program on siw0: any attribute is a command of verbs_program.Program."""

    def __init__(self, role: str) -> None:
        command = ["/usr/bin/python3", str(PROGRAM), role, SIW, str(PORT)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = ThreadPoolExecutor(1)

    def hear(self):
        line = self._reader.submit(self.process.stdout.readline).result(PATIENCE_S)
        assert line.startswith("{"), line + self.process.communicate(timeout=PATIENCE_S)[0]
        return json.loads(line)

    def __getattr__(self, name):
        def call(*arguments):
            print(json.dumps([name, arguments]), file=self.process.stdin, flush=True)
            answer = self.hear()
            assert "problem" not in answer, answer
            return answer["value"]

        return call

    def shared(self, length: int) -> RemoteMemory:
        place = self.memory()
        return RemoteMemory(place["addr"], place["rkey"], length)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._reader.shutdown()


@pytest.fixture(params=["we call", "it calls"])
def meeting(request):
    """Connects an end of ours and a verbs program on siw0, whoever of them calls."""
    with contextlib.ExitStack() as stack:

        def meet() -> tuple[End, Program]:
            context = stack.enter_context(verbs.open_device("iwarp:lo"))
            address = f"{SIW}:{PORT}"
            end = make_end(context)
            if request.param == "we call":
                program = stack.enter_context(contextlib.closing(Program("listen")))
                assert program.hear() == {"listening": True}
                end.connection = context.connect_blocking(end.qp, address, timeout_s=PATIENCE_S)
                assert program.hear() == {"connected": True}
                return end, program
            with context.listen(address) as listener:
                program = stack.enter_context(contextlib.closing(Program("connect")))
                caller = listener.accept_blocking(timeout_s=PATIENCE_S)
                end.connection = caller.accept_blocking(end.qp, timeout_s=PATIENCE_S)
            assert program.hear() == {"connected": True}
            # siw does not ask to be peers: by the RFC who was called may not speak first.
            end.expect(end.region(8))
            assert program.send(8) == WcStatus.SUCCESS
            assert drain(end.recv_cq, 1)[0].ok
            return end, program

        yield meet


def exchange_everything(end, program):
    """SEND, WRITE and READ, short and of several segments, both ways."""
    for seed, length in enumerate((5, LONG)):
        ours = end.region(pattern(length, seed))
        assert end.do(send(ours))[0].ok
        assert program.received() == [WcStatus.SUCCESS, length]
        assert bytes.fromhex(program.content("inbox", length)) == pattern(length, seed)
        assert end.do(write(ours, program.shared(length)))[0].ok
        back = end.region(length)
        assert end.do(read(back, program.shared(length)))[0].ok  # behind the WRITE, so it finds it done
        assert bytes(memoryview(back)) == pattern(length, seed)

        program.fill("own", pattern(length, seed + 7).hex())
        inbox, target = end.region(length), end.region(length)
        end.expect(inbox)
        assert program.send(length) == WcStatus.SUCCESS
        assert drain(end.recv_cq, 1)[0].byte_count == length
        assert bytes(memoryview(inbox)) == pattern(length, seed + 7)
        assert program.write(target.addr, target.rkey, length) == WcStatus.SUCCESS
        program.fill("own", bytes(length).hex())
        assert program.read(target.addr, target.rkey, length) == WcStatus.SUCCESS
        assert bytes.fromhex(program.content("own", length)) == pattern(length, seed + 7)
        assert bytes(memoryview(target)) == pattern(length, seed + 7)


def test_a_verbs_program_on_siw_gets_and_gives_everything(checksum, meeting):
    """Every operation of plain iWARP arrives byte for byte, and a disconnect is seen."""
    end, program = meeting()
    assert end.qp.capabilities["acknowledged"] == "no"
    assert end.qp.capabilities["checksum"] == checksum
    exchange_everything(end, program)
    program.disconnect()
    assert_over(end)


def test_what_siw_lacks_is_refused_when_it_is_posted(meeting):
    """siw knows no atomics and no immediates: they raise, the capabilities say so, and all else goes on."""
    end, program = meeting()
    assert end.qp.capabilities["atomics"] == end.qp.capabilities["immediate"] == "no"
    place = program.shared(8)
    for request in (fetch_add(end.region(8), place, 1), send(end.region(8), immediate=1)):
        with pytest.raises(errors.UnsupportedError):
            end.qp.post_send(request)
    assert end.do(read(end.region(8), place))[0].ok


def assert_over(end, code=None):
    """The connection has ended and says why, the queue pair is in ERR and flushes."""
    wait_until(lambda: end.connection.state is ConnectionState.DISCONNECTED, "the end", PATIENCE_S)
    wait_until(lambda: end.qp.state is QpState.ERR, "ERR", PATIENCE_S)
    failure = end.connection.failure
    assert (failure and failure.code) == code
    assert statuses(end.do(send(end.region(8)))) == [WcStatus.WR_FLUSH_ERR]


@pytest.mark.parametrize("operation", [read, write])
def test_siw_refuses_what_we_may_not(meeting, operation):
    """Its TERMINATE fails our READ with REM_ACCESS_ERR; a WRITE had completed: what follows is flushed."""
    end, program = meeting()
    program.fill("shared", pattern(8).hex())
    place = program.shared(8)
    wrong = RemoteMemory(place.addr, place.rkey ^ 0x5500, 8)
    expected = WcStatus.REM_ACCESS_ERR if operation is read else WcStatus.SUCCESS
    assert statuses(end.do(operation(end.region(8), wrong))) == [expected]
    assert_over(end, "REM_ACCESS_ERR")
    assert bytes.fromhex(program.content("shared", 8)) == pattern(8)
    if operation is read:
        assert program.event() == QP_REQ_ERR
    else:
        assert program.received() == [WcStatus.WR_FLUSH_ERR, 0]


@pytest.mark.parametrize("operation", ["read", "write"])
def test_we_refuse_what_siw_may_not(meeting, operation):
    """Our TERMINATE ends its connection; it flushes its READ, and no byte of ours has changed or left."""
    end, program = meeting()
    mine = end.region(pattern(8))
    program.fill("own", bytes(8).hex())
    expected = WcStatus.WR_FLUSH_ERR if operation == "read" else WcStatus.SUCCESS
    assert getattr(program, operation)(mine.addr, mine.rkey ^ 0x5500, 8) == expected
    assert_over(end, "peer_refused")
    assert program.received() == [WcStatus.WR_FLUSH_ERR, 0]
    assert bytes.fromhex(program.content("own", 8)) == bytes(8)
    assert bytes(memoryview(mine)) == pattern(8)


def test_revision_1_of_mpa_does_too(monkeypatch):
    """A caller of revision 1, who says nothing of READ depths, is served by siw all the same."""
    monkeypatch.setenv("VERBENA_IWARP_MPA_REVISION", "1")
    with verbs.open_device("iwarp:lo") as context, contextlib.closing(Program("listen")) as program:
        end = make_end(context)
        assert program.hear() == {"listening": True}
        end.connection = context.connect_blocking(end.qp, f"{SIW}:{PORT}", timeout_s=PATIENCE_S)
        assert program.hear() == {"connected": True}
        exchange_everything(end, program)
