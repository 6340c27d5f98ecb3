"""A peer killed at any instant: the survivor is told within seconds, nothing hangs or is left behind."""

import asyncio
import contextlib
import random
import time

import pytest
from support import leaks
from support.rdma import devices
from support.rdma.link import DEADLINE_S, drain, make_end, pattern, read, send, statuses, wait_until, write
from support.rdma.peer import RemotePeer

from verbena import errors, verbs
from verbena.errors import WcStatus
from verbena.verbs import QpState, RecvWorkRequest

pytestmark = [
    pytest.mark.rule("processes"),
    pytest.mark.parametrize("provider", ["shm", "iwarp", "iwarp-plain", "quic"], indirect=True),
]

ROUNDS = 15
BROKEN = {WcStatus.RETRY_EXC_ERR, WcStatus.WR_FLUSH_ERR}
SHORT = {"timeout": 12, "retry_count": 2}


@pytest.fixture
def nothing_left_behind(provider):
    with verbs.open_device(provider) as context:  # what a process opens once stays open
        make_end(context).cq.wait_blocking(timeout_s=0.001)
    files, descriptors = leaks.leftovers(), leaks.descriptors()
    yield
    wait_until(lambda: leaks.descriptors() <= descriptors, "descriptors to be closed")
    assert leaks.leftovers() - files == set()


def busy(end, request, until):
    """Keeps the queue pair full of one request until the condition holds; gives the failed statuses."""
    failed = []
    deadline = time.monotonic() + DEADLINE_S
    while not until(failed):
        assert time.monotonic() < deadline, "the queue pair did not break after its peer was killed"
        with contextlib.suppress(errors.QueueFullError):
            end.qp.post_send(request)
        failed += [c.status for c in end.cq.poll(max=64) if not c.ok]
    return failed


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_peer_killed_in_the_middle_of_traffic(provider, nothing_left_behind, round_):
    """SIGKILL at a random instant of sends, reads or writes: completions fail, the queue pair is in ERR."""
    rng = random.Random(1000 + round_)
    mode = ("send", "read", "write")[round_ % 3]
    kind = rng.choice(["arena", "bytearray"])
    delay_s = rng.uniform(0.0, 0.05)
    print(f"seed {1000 + round_}: {mode} on {kind}, killed after {delay_s * 1000:.1f} ms")
    with verbs.open_device(provider) as context:
        if mode == "send":
            devices.needs(context, "acknowledged")
        end = make_end(context, cq_depth=4096, max_send=64)
        with RemotePeer(provider) as peer:
            peer.link(end, **SHORT)
            remote = peer.remote(kind, bytes(rng.choice([64, 4096, 65_536])))
            peer.drink()
            local = end.pd.allocate(remote.length)
            request = {"send": send, "read": read, "write": write}[mode]
            request = request(local) if mode == "send" else request(local, remote)
            kill_at = time.monotonic() + delay_s
            assert busy(end, request, lambda failed: failed or time.monotonic() > kill_at) == []
            peer.kill()
            failed = busy(end, request, bool)
        assert set(failed) <= BROKEN
        assert end.qp.state is QpState.ERR


@pytest.mark.parametrize("round_", range(3))
def test_a_peer_killed_while_it_floods_us(provider, nothing_left_behind, round_):
    """The target of a flood survives its author: its memory and its context stay usable."""
    rng = random.Random(2000 + round_)
    with verbs.open_device(provider) as context:
        end = make_end(context, cq_depth=8192)
        target, inbox = end.region(16_384), end.region(16_384)
        with RemotePeer(provider) as peer:
            peer.link(end, **SHORT)
            peer.flood(target.remote.to_bytes())
            loop_end = time.monotonic() + rng.uniform(0.0, 0.05)
            while time.monotonic() < loop_end:
                try:
                    end.qp.post_recv(RecvWorkRequest(local=inbox))
                except errors.QueueFullError:
                    end.recv_cq.poll(max=64)
            peer.kill()
        assert len(bytes(memoryview(target))) == 16_384
        end.qp.close()
        assert make_end(context).qp.state is QpState.RESET


def test_unfinished_operations_end_when_the_peer_dies(provider, nothing_left_behind):
    """Sends that wait for a receive at the peer complete in error when it is killed; none is lost."""
    with verbs.open_device(provider) as context, RemotePeer(provider) as peer:
        devices.needs(context, "acknowledged")
        end = make_end(context)
        peer.link(end, **SHORT)
        end.qp.post_send(*(send(end.region(8), wr_id=i) for i in range(10)))
        peer.kill()
        done = drain(end.cq, 10)
        assert [c.wr_id for c in done] == list(range(10))
        assert statuses(done)[0] in BROKEN
        assert statuses(done)[1:] == [WcStatus.WR_FLUSH_ERR] * 9


async def test_a_managed_connection_reports_the_death(provider, nothing_left_behind):
    """The connection ends, receives are flushed and awaiting operations raise, without anyone sending."""
    with verbs.open_device(provider) as context, RemotePeer(provider) as peer:
        end = make_end(context)
        address = peer.listen("")
        peer.start("accept", DEADLINE_S)
        connection = await context.connect(end.qp, address, timeout_s=DEADLINE_S)
        peer.finish()
        waiting = asyncio.create_task(end.qp.recv(end.region(8)))
        await asyncio.sleep(0)
        peer.kill()
        await asyncio.wait_for(connection.wait_disconnected(), DEADLINE_S)
        with pytest.raises(errors.BrokenLinkError):
            await asyncio.wait_for(waiting, DEADLINE_S)
        assert end.qp.state is QpState.ERR


async def test_connecting_to_a_killed_listener_is_refused(provider, nothing_left_behind):
    """The address of a dead process is nobody's: AddressError, and the address can be taken again."""
    with verbs.open_device(provider) as context:
        with RemotePeer(provider) as peer:
            address = peer.listen("")
            peer.kill()
        end = make_end(context)
        with pytest.raises((errors.AddressError, errors.RejectedError)):
            await context.connect(end.qp, address, timeout_s=DEADLINE_S)
        with context.listen(address):
            pass


def test_a_caller_killed_before_the_answer_does_no_harm(provider, nothing_left_behind):
    """A listener whose caller died goes on; the next caller is served."""
    with verbs.open_device(provider) as context, context.listen("") as listener:
        with RemotePeer(provider) as peer:
            peer.start("connect", listener.address)
            request = listener.accept_blocking(timeout_s=DEADLINE_S)
            peer.kill()
            end = make_end(context)
            with contextlib.suppress(errors.VerbenaError):
                request.accept_blocking(end.qp)
        with RemotePeer(provider) as peer:
            peer.start("connect", listener.address)
            end = make_end(context)
            listener.accept_blocking(timeout_s=DEADLINE_S).accept_blocking(end.qp)
            peer.finish()
            remote = peer.remote("arena", pattern(8))
            local = end.region(8)
            end.qp.sync.read(local, remote, timeout_s=DEADLINE_S)
            assert bytes(memoryview(local)) == pattern(8)


def test_one_dead_peer_leaves_the_others_alone(provider, nothing_left_behind):
    """Of two connected processes one is killed: traffic with the other goes on undisturbed."""
    with (
        verbs.open_device(provider) as context,
        RemotePeer(provider) as victim,
        RemotePeer(provider) as other,
    ):
        first, second = make_end(context), make_end(context)
        victim.link(first, **SHORT)
        other.link(second)
        remote = other.remote("arena", bytes(4096))
        victim.kill()
        for turn in range(100):
            assert second.do(write(second.region(pattern(4096, turn)), remote))[0].ok

        def is_refused():
            return not first.do(send(first.region(8)))[0].ok

        if context.attributes.capabilities.get("acknowledged") == "no":  # TCP may take one more
            wait_until(is_refused, "the dead peer to be noticed")
        assert is_refused()
        assert other.content(0) == pattern(4096, 99)
