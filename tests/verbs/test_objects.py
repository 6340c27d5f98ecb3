"""A1: device, context, protection domain, region, queues, queue pair, and what each says of itself."""

import gc
import ipaddress
import pickle
import weakref

import pytest
from support.rdma.link import make_end

from verbena import errors, verbs
from verbena.verbs import Access, Endpoint, QpState, RemoteMemory

pytestmark = pytest.mark.rule("A1")


def test_an_available_provider_lists_its_devices(provider):
    """providers() names each provider, whether it can be used, and its devices; devices() has them too."""
    info = next(info for info in verbs.providers() if info.name == provider)
    assert info.available
    assert info.reason == ""
    assert info.devices
    assert all(device.provider == provider for device in info.devices)
    assert {device.name for device in info.devices} <= {device.name for device in verbs.devices()}


def test_an_absent_provider_has_a_reason():
    """A provider that cannot be used here has a reason in words, and opening it raises that reason."""
    for info in verbs.providers():
        if not info.available:
            assert info.reason
            with pytest.raises(errors.UnavailableError, match=r".+"):
                verbs.open_device(info.name)


def test_an_unknown_provider_is_refused():
    """open_device() of a name that no provider has raises UnavailableError."""
    with pytest.raises(errors.UnavailableError):
        verbs.open_device("no-such-wire")


def test_an_unknown_device_is_refused(provider):
    """open_device("provider:device") of a device that is not there raises UnavailableError."""
    with pytest.raises(errors.UnavailableError):
        verbs.open_device(f"{provider}:no-such-device")


def test_a_device_opens_by_name_and_by_object(provider):
    """A context comes from a provider's name, from provider:device, and from a Device."""
    device = next(device for device in verbs.devices() if device.provider == provider)
    for opened in (
        verbs.open_device(provider),
        verbs.open_device(f"{provider}:{device.name}"),
        device.open(),
    ):
        with opened as context:
            assert context.attributes.provider == provider


def test_attributes_are_true_of_the_device(context, provider):
    """A device states positive limits, at least one port, and its capabilities in words."""
    attributes = context.attributes
    assert attributes.provider == provider
    assert attributes.name
    for limit in ("max_qp", "max_qp_wr", "max_sge", "max_cq", "max_cqe", "max_mr", "max_pd", "max_mr_bytes"):
        assert getattr(attributes, limit) > 0, limit
    assert attributes.max_message_bytes >= 1 << 20
    assert len(attributes.ports) >= 1
    assert all(isinstance(value, str) for item in attributes.capabilities.items() for value in item)


def test_attributes_cannot_be_changed(context):
    """Attributes are a value: assigning to one raises AttributeError."""
    with pytest.raises(AttributeError):
        context.attributes.max_qp = 1


def test_a_gid_is_sixteen_bytes_and_prints_as_an_address(context):
    """A GID reads as IPv6 text and as its 16 bytes, and both say the same."""
    gid = context.gid
    assert len(bytes(gid)) == 16
    assert ipaddress.IPv6Address(str(gid)).packed == bytes(gid)


def test_a_fresh_queue_pair_is_in_reset_with_its_parents(context):
    """A new queue pair is in RESET, has a number of its own, and knows its domain and queues."""
    end = make_end(context)
    other = end.pd.create_qp(send_cq=end.cq)
    assert end.qp.state is QpState.RESET
    assert end.qp.number != other.number
    assert (end.qp.pd, end.qp.send_cq, end.qp.recv_cq) == (end.pd, end.cq, end.recv_cq)
    assert other.recv_cq is end.cq


def test_a_queue_pair_grants_at_least_the_limits_asked_for(context):
    """Limits may be rounded up, never down."""
    wanted = {"max_send": 33, "max_recv": 17, "max_send_sge": 3, "max_recv_sge": 2, "max_inline": 40}
    limits = make_end(context, **wanted).qp.limits
    for name, value in wanted.items():
        assert getattr(limits, name) >= value


def test_limits_beyond_the_device_are_refused(context):
    """A queue deeper, or a list longer, than the device has is refused when it is asked for."""
    pd, cq = context.alloc_pd(), context.create_cq()
    for limit in (
        {"max_send": context.attributes.max_qp_wr + 1},
        {"max_send_sge": context.attributes.max_sge + 1},
    ):
        with pytest.raises(errors.VerbenaError):
            pd.create_qp(send_cq=cq, **limit)
    with pytest.raises(errors.VerbenaError):
        context.create_cq(depth=context.attributes.max_cqe + 1)


def test_what_can_be_exchanged_survives_bytes_and_pickle(context):
    """Endpoint and RemoteMemory come back equal from to_bytes and from pickle; a RemoteMemory is 20 bytes."""
    endpoint = make_end(context).qp.endpoint
    remote = context.alloc_pd().allocate(64).remote
    assert Endpoint.from_bytes(endpoint.to_bytes()) == endpoint
    assert RemoteMemory.from_bytes(remote.to_bytes()) == remote
    assert pickle.loads(pickle.dumps((endpoint, remote))) == (endpoint, remote)
    assert remote.to_bytes() == (
        remote.addr.to_bytes(8, "little")
        + remote.length.to_bytes(8, "little")
        + remote.rkey.to_bytes(4, "little")
    )


@pytest.mark.parametrize("spoiled", [b"", b"\0" * 19, b"\0" * 21])
def test_exchanged_bytes_of_the_wrong_length_are_refused(spoiled):
    """from_bytes takes exactly what to_bytes gives, not a byte less or more."""
    with pytest.raises((ValueError, errors.VerbenaError)):
        RemoteMemory.from_bytes(spoiled)


def test_close_is_idempotent_and_use_after_it_is_refused(context):
    """Closing twice is harmless; using a closed object raises ClosedError."""
    end = make_end(context)
    mr = end.pd.allocate(64)
    for resource in (mr, end.qp, end.recv_cq, end.cq, end.pd):
        resource.close()
        resource.close()
    with pytest.raises(errors.ClosedError):
        end.cq.poll()
    with pytest.raises(errors.ClosedError):
        end.qp.modify(QpState.INIT, port=1, pkey_index=0, access_flags=Access.ALL)
    with pytest.raises(errors.ClosedError):
        end.pd.allocate(64)


def test_closing_the_context_closes_all_that_came_from_it(provider):
    """A parent's close() closes its children: queue pair, queues, regions, domains."""
    context = verbs.open_device(provider)
    end = make_end(context)
    context.close()
    with pytest.raises(errors.ClosedError):
        end.pd.allocate(64)
    with pytest.raises(errors.ClosedError):
        end.cq.poll()
    with pytest.raises(errors.ClosedError):
        context.alloc_pd()


def test_a_child_keeps_its_parents_alive(provider):
    """Dropping every name but the queue pair's keeps the context open, and dropping that too lets all go."""
    qp = make_end(verbs.open_device(provider)).qp
    gc.collect()
    assert qp.state is QpState.RESET
    assert qp.pd.allocate(64).length == 64
    gone = weakref.ref(qp)
    del qp
    gc.collect()
    assert gone() is None


def test_every_resource_is_a_context_manager(provider):
    """Leaving the with block closes."""
    with verbs.open_device(provider) as context, context.alloc_pd() as pd, context.create_cq() as cq:
        with pd.create_qp(send_cq=cq) as qp, pd.allocate(64) as mr, pd.create_srq():
            assert (qp.pd, mr.pd) == (pd, pd)
        with pytest.raises(errors.ClosedError):
            qp.modify(QpState.INIT, port=1, pkey_index=0, access_flags=Access.ALL)
