"""A9: the TCP wire towards ends that are not Verbena's: what plain iWARP gives, and what it does not."""

import pytest
from support.rdma.link import (
    DEADLINE_S,
    compare_swap,
    connect_endpoints,
    connect_managed,
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
from verbena.verbs import QpState, RemoteMemory

pytestmark = [
    pytest.mark.rule("A9"),
    pytest.mark.parametrize("provider", ["iwarp-plain"], indirect=True),
]

EXTENSIONS = {
    "atomics": [lambda mr, to: fetch_add(mr, to, 1), lambda mr, to: compare_swap(mr, to, 0, 1)],
    "immediate": [lambda mr, to: send(mr, immediate=1), lambda mr, to: write(mr, to, immediate=1)],
}


def both_broken(pair):
    for end in (pair.a, pair.b):
        wait_until(lambda end=end: end.qp.state is QpState.ERR, "both queue pairs to break")


@pytest.mark.parametrize("capability", list(EXTENSIONS))
@pytest.mark.parametrize("managed", [False, True], ids=["by endpoints", "managed"])
def test_what_a_peer_may_not_know_is_refused_when_it_is_posted(make_pair, capability, managed):
    """Atomics and immediates raise UnsupportedError, as the capabilities say; the queue pair goes on."""
    pair = make_pair(managed=managed)
    assert pair.a.qp.capabilities[capability] == pair.a.context.attributes.capabilities[capability] == "no"
    target = pair.b.region(8)
    pair.b.expect(pair.b.region(8))
    for extension in EXTENSIONS[capability]:
        with pytest.raises(errors.UnsupportedError) as refusal:
            pair.a.qp.post_send(
                write(pair.a.region(8), target.remote), extension(pair.a.region(8), target.remote)
            )
        assert refusal.value.accepted == 1
        assert drain(pair.a.cq, 1)[0].ok
    assert pair.a.do(send(pair.a.region(8)))[0].ok


async def test_an_awaited_extension_raises_too(pair):
    """await qp.fetch_add(...) raises UnsupportedError instead of waiting."""
    with pytest.raises(errors.UnsupportedError):
        await pair.a.qp.fetch_add(pair.b.region(8).remote, 1)


def test_a_message_without_a_receive_ends_the_connection(managed_pair):
    """There is no RNR: the SEND had completed, both ends break and say why, what follows is flushed."""
    pair = managed_pair
    assert statuses(pair.a.do(send(pair.a.region(8)))) == [WcStatus.SUCCESS]
    both_broken(pair)
    for end, code in ((pair.a, "RNR_RETRY_EXC_ERR"), (pair.b, "peer_refused")):
        wait_until(lambda end=end: end.connection.failure, "the reason")
        assert end.connection.failure.code == code
    assert statuses(pair.a.do(send(pair.a.region(8)))) == [WcStatus.WR_FLUSH_ERR]


def test_a_refused_write_ends_the_connection_and_changes_nothing(pair):
    """The WRITE had completed; the peer's TERMINATE breaks both ends, and flushes receives and requests."""
    target = pair.b.region(pattern(8))
    pair.a.expect(pair.a.region(8))
    pair.b.expect(pair.b.region(8))
    wrong = RemoteMemory(target.addr, target.rkey ^ 0x101, 8)
    assert statuses(pair.a.do(write(pair.a.region(8), wrong))) == [WcStatus.SUCCESS]
    both_broken(pair)
    assert statuses(drain(pair.a.recv_cq, 1) + drain(pair.b.recv_cq, 1)) == [WcStatus.WR_FLUSH_ERR] * 2
    assert statuses(pair.a.do(read(pair.a.region(8), target.remote))) == [WcStatus.WR_FLUSH_ERR]
    assert bytes(memoryview(target)) == pattern(8)


@pytest.mark.parametrize("managed", [False, True], ids=["by endpoints", "managed"])
def test_one_end_is_enough_to_make_it_plain(provider, monkeypatch, managed):
    """An end that acknowledges and one that does not agree on plain iWARP, and both say so."""
    with verbs.open_device(provider) as plain:
        monkeypatch.delenv("VERBENA_IWARP_ACKNOWLEDGED")
        with verbs.open_device(provider) as acknowledging:
            a, b = make_end(plain), make_end(acknowledging)
            if managed:
                connect_managed(a, b)
            else:
                connect_endpoints(a, b)
            target = b.region(8)
            a.qp.sync.write(a.region(pattern(8)), target.remote, timeout_s=DEADLINE_S)
            a.settle()
            assert bytes(memoryview(target)) == pattern(8)
            assert a.qp.capabilities["acknowledged"] == b.qp.capabilities["acknowledged"] == "no"
