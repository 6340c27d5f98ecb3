"""What goes wrong outside of any request: a peer dies, a cable loses everything, a limit is too low."""

import json
import time

import pytest
from support.rdma.link import connect_endpoints, drain, make_end, send, statuses, write
from support.rdma.pyverbs_peer import PyverbsPeer, meet

from verbena import errors
from verbena.errors import WcStatus
from verbena.verbs import QpState, open_device

# 4.096 us << 16 is 0.27 s for each of three tries; the timer of the first may run already. A device may take
# up to four times as long, and an emulated one must find the time to.
PATIENCE = {"timeout": 16, "retry_count": 2}
TRY_S = 4.096e-6 * 2**16
LEAST_S = 1.8 * TRY_S
MAX_S = 4 * 3 * TRY_S + 2
REGISTER = """
import json
from verbena import errors, verbs
with verbs.open_device("ibv:rxe0") as context, context.alloc_pd() as pd:
    try:
        pd.allocate({length})
    except errors.RegistrationError as refusal:
        print(json.dumps([refusal.code, str(refusal)]))
    else:
        print(json.dumps(["registered", ""]))
"""


def given_up(end, request):
    """The request fails with RETRY_EXC_ERR when the configured time is over, and says why."""
    start = time.monotonic()
    end.qp.post_send(request, request)
    first, second = drain(end.cq, 2, timeout_s=MAX_S + 10)
    took_s = time.monotonic() - start
    assert (first.status, second.status) == (WcStatus.RETRY_EXC_ERR, WcStatus.WR_FLUSH_ERR)
    assert LEAST_S < took_s < MAX_S
    with pytest.raises(errors.BrokenLinkError) as failure:
        first.raise_for_status("write", "10.9.0.2")
    for words in ("the retries ran out", "the peer's process has ended", "check that the peer runs"):
        assert words in str(failure.value)
    assert end.qp.state is QpState.ERR


def test_a_peer_that_was_killed():
    """Nobody answers for a process that is gone: RETRY_EXC_ERR within the configured time."""
    with PyverbsPeer() as peer:
        end = meet(peer, ours=PATIENCE)
        _, remote = peer.memory(bytes(8))
        assert end.do(write(end.region(8), remote))[0].ok
        peer.process.kill()
        peer.process.wait()
        given_up(end, write(end.region(8), remote))
        end.context.close()


def test_a_cable_that_loses_everything(cable):
    """No link goes down, nothing comes back: RETRY_EXC_ERR within the configured time."""
    with open_device("ibv:rxe1") as near, open_device("ibv:rxe2") as far:
        a, b = make_end(near), make_end(far)
        connect_endpoints(a, b, **PATIENCE)
        b.expect(b.region(8), b.region(8))
        assert a.do(send(a.region(8)))[0].ok
        cable.drop("rxe2", 100)
        given_up(a, send(a.region(8)))


def test_the_default_retries_end(cable):
    """Seven retries are the largest number and the default; they end within half a second, as documented,
    also on Soft-RoCE, for which this number itself means no end."""
    with open_device("ibv:rxe1") as near, open_device("ibv:rxe2") as far:
        a, b = make_end(near), make_end(far)
        connect_endpoints(a, b)
        b.expect(b.region(8))
        assert a.do(send(a.region(8)))[0].ok
        cable.drop("rxe2", 100)
        start = time.monotonic()
        a.qp.post_send(send(a.region(8)))
        assert statuses(drain(a.cq, 1)) == [WcStatus.RETRY_EXC_ERR]
        assert time.monotonic() - start < 4 * 8 * 4.096e-6 * 2**14 + 2, "a device may take four times as long"


def test_a_cable_that_loses_some(cable):
    """Retries hide a loss: what arrives is whole and in order."""
    with open_device("ibv:rxe1") as near, open_device("ibv:rxe2") as far:
        a, b = make_end(near), make_end(far)
        connect_endpoints(a, b, timeout=12, retry_count=7)
        cable.drop("rxe1", 5)
        target = b.region(4096)
        for number in range(50):
            source = a.region(bytes([number]) * 4096)
            assert a.do(write(source, target.remote))[0].ok
            assert bytes(memoryview(target)) == bytes([number]) * 4096


def test_a_memlock_limit_that_is_too_low(with_memlock):
    """Registering more than may be locked names the limit and how to raise it; less than it succeeds."""
    refused = with_memlock(64, "-c", REGISTER.format(length=1 << 20))
    assert refused.returncode == 0, refused.stderr
    code, message = json.loads(refused.stdout)
    assert code == "memlock"
    for words in ("RLIMIT_MEMLOCK is 64 KiB", "ulimit -l unlimited", "1048576 bytes"):
        assert words in message
    granted = with_memlock(16384, "-c", REGISTER.format(length=1 << 20))
    assert json.loads(granted.stdout)[0] == "registered", granted.stderr
