"""A7 on the shm wire: a peer's memory that is in no arena is reached by the kernel, or staged by the peer."""

import pytest
from support.rdma.link import fetch_add, pattern, read, word, write

from verbena.errors import WcStatus
from verbena.verbs import Access, QpState

pytestmark = [pytest.mark.rule("A7"), pytest.mark.parametrize("provider", ["shm"], indirect=True)]

WAYS = ["process_vm", "staged"]


@pytest.fixture(params=WAYS)
def plain_pair(request, monkeypatch, make_pair):
    """A pair whose ends reach each other's plain memory in the way named."""
    if request.param == "staged":
        monkeypatch.setenv("VERBENA_SHM_PLAIN_MEMORY", "staged")
    pair = make_pair()
    if pair.a.qp.capabilities["plain_memory"] != request.param:
        pytest.skip("process_vm_readv is not permitted here")
    return pair


@pytest.mark.parametrize("length", [1, 88, 65536, 65537, 3_000_000])
def test_plain_memory_is_written_and_read(plain_pair, length):
    """WRITE and READ of a bytearray on the far side move every byte, in one fragment or many."""
    target = bytearray(length)
    region = plain_pair.b.pd.register(target, access=Access.ALL)
    source, back = plain_pair.a.region(pattern(length)), plain_pair.a.region(length)
    assert plain_pair.a.do(write(source, region.remote))[0].ok
    assert target == pattern(length)
    assert plain_pair.a.do(read(back, region.remote))[0].ok
    assert bytes(memoryview(back)) == pattern(length)


def test_plain_memory_takes_atomics(plain_pair):
    """Additions to a word of plain memory are done by its owner, each once and in order."""
    counter = bytearray(8)
    region = plain_pair.b.pd.register(counter, access=Access.ALL)
    old = plain_pair.a.region(8)
    for turn in range(20):
        assert plain_pair.a.do(fetch_add(old, region.remote, 3))[0].ok
        assert word(old) == 3 * turn
    assert int.from_bytes(counter, "little") == 60


def test_plain_memory_is_guarded_like_any_other(plain_pair):
    """Without the right, nothing is placed, the request fails with REM_ACCESS_ERR and the QP is in ERR."""
    target = bytearray(64)
    region = plain_pair.b.pd.register(target, access=Access.LOCAL_WRITE | Access.REMOTE_READ)
    failed = plain_pair.a.do(write(plain_pair.a.region(pattern(64)), region.remote))[0]
    assert failed.status is WcStatus.REM_ACCESS_ERR
    assert target == bytes(64)
    assert plain_pair.a.qp.state is QpState.ERR
