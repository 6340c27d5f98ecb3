"""A6: protection domains: a queue pair and the memory it touches must belong together."""

import pytest
from support.rdma.devices import Case, expected, refusal
from support.rdma.link import (
    IMPATIENT,
    compare_swap,
    connect_endpoints,
    drain,
    fetch_add,
    make_end,
    pattern,
    read,
    send,
    statuses,
    write,
)

from verbena import errors, verbs
from verbena.errors import WcStatus
from verbena.verbs import Access, QpState

pytestmark = pytest.mark.rule("A6")


@pytest.mark.parametrize("operation", ["send", "write", "read"])
def test_local_memory_of_another_domain_is_refused(pair, operation):
    """A request whose local memory belongs to another PD completes LOC_PROT_ERR; nothing moves."""
    foreign = pair.a.context.alloc_pd().allocate(8)
    target = pair.b.region(pattern(8))
    pair.b.expect(pair.b.region(8))
    request = {
        "send": send(foreign),
        "write": write(foreign, target.remote),
        "read": read(foreign, target.remote),
    }
    status = WcStatus.LOC_PROT_ERR
    if operation != "read":
        status = expected(pair.a.context, Case.SOURCE_IN_ANOTHER_DOMAIN, status)
    assert statuses(pair.a.do(request[operation])) == [status]
    assert pair.a.qp.state is QpState.ERR
    assert bytes(memoryview(target)) == pattern(8)
    assert bytes(memoryview(foreign)) == bytes(8)


@pytest.mark.parametrize(
    "request_for",
    [write, read, lambda mr, to: fetch_add(mr, to, 1), lambda mr, to: compare_swap(mr, to, 0, 1)],
)
def test_remote_memory_of_another_domain_is_refused(pair, request_for):
    """A true rkey of the same process but another PD than the peer's queue pair is REM_ACCESS_ERR."""
    foreign = pair.b.context.alloc_pd().allocate(8)
    request = request_for(pair.a.region(8), foreign.remote)
    assert statuses(pair.a.do(request)) == [refusal(pair.a.context, request, WcStatus.REM_ACCESS_ERR)]
    assert bytes(memoryview(foreign)) == bytes(8)


def test_a_receive_into_another_domain_is_refused(pair):
    """The receiver completes LOC_PROT_ERR, the sender REM_OP_ERR, and the foreign memory is untouched."""
    foreign = pair.b.context.alloc_pd().allocate(8)
    pair.b.expect(foreign)
    request = send(pair.a.region(pattern(8)))
    assert statuses(pair.a.do(request)) == [refusal(pair.a.context, request, WcStatus.REM_OP_ERR)]
    status = expected(pair.b.context, Case.RECEIVE_INTO_FORBIDDEN_MEMORY, WcStatus.LOC_PROT_ERR)
    assert statuses(drain(pair.b.recv_cq, 1)) == [status]
    assert bytes(memoryview(foreign)) == bytes(8)


def test_a_key_is_good_for_every_queue_pair_of_its_domain(pair):
    """Two queue pairs of one PD serve the same region."""
    second = make_end(pair.a.context)
    hub = make_end(pair.b.context)
    qp = pair.b.pd.create_qp(send_cq=hub.cq, recv_cq=hub.recv_cq)
    hub.qp = qp
    connect_endpoints(second, hub)
    target = pair.b.region(8)
    assert pair.a.do(write(pair.a.region(b"one, two"), target.remote))[0].ok
    local = second.region(8)
    assert second.do(read(local, target.remote))[0].ok
    assert bytes(memoryview(local)) == b"one, two"


def test_closing_a_domain_takes_its_keys_with_it(make_pair):
    """When the PD closes, its regions and queue pairs close: no key of it works and its bytes stay."""
    pair = make_pair(attributes=IMPATIENT)
    buffer = bytearray(8)
    remote = pair.b.pd.register(buffer, access=Access.ALL).remote
    pair.b.pd.close()
    with pytest.raises(errors.ClosedError):
        pair.b.qp.post_send(send(()))
    assert not pair.a.do(write(pair.a.region(pattern(8)), remote))[0].ok
    assert buffer == bytes(8)


def test_queues_of_another_context_are_refused(provider, context):
    """A queue pair's completion queues and its domain come from one context."""
    with verbs.open_device(provider) as other, pytest.raises(errors.VerbenaError):
        context.alloc_pd().create_qp(send_cq=other.create_cq())
