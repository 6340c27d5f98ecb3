"""What only a real device has: a table of GIDs to choose from, and descriptors that its libraries keep."""

import contextlib
import os

import pytest
from support.rdma.link import connect_managed, make_end, wait_until, write

from verbena import errors
from verbena.verbs import Endpoint, open_device

LINK_LOCAL, IPV4 = 0, 1  # the entries of each of the guest's tables


@pytest.fixture
def context():
    with open_device("ibv:rxe0") as opened:
        yield opened


def endpoint(end, index):
    """Its endpoint by one entry of the table."""
    gid = end.context.attributes.ports[0].gids[index]
    return Endpoint(gid, end.qp.number, end.qp.endpoint.psn)


@pytest.mark.parametrize(("index", "asked"), [(LINK_LOCAL, 0), (IPV4, 1), (LINK_LOCAL, None), (IPV4, None)])
def test_the_gid_is_the_one_asked_for_or_fits_the_peers(context, index, asked):
    """An index that was given is taken, 0 too; without one, the entry of the peer's kind is."""
    a, b = make_end(context), make_end(context)
    a.qp.connect_to(endpoint(b, index), gid_index=asked)
    b.qp.connect_to(endpoint(a, index), gid_index=asked)
    assert (a.qp.attributes.gid_index, b.qp.attributes.gid_index) == (index, index)
    target = b.region(8)
    assert a.do(write(a.region(b"by a GID"), target.remote))[0].ok
    assert bytes(memoryview(target)) == b"by a GID"


def test_index_0_is_no_longer_a_wish(context):
    """Asked for by number, the link-local entry is taken even where the peer's address is IPv4."""
    a, b = make_end(context), make_end(context)
    with pytest.raises(errors.VerbenaError) as refusal:
        a.qp.connect_to(endpoint(b, IPV4), gid_index=LINK_LOCAL)
    assert refusal.value.code in ("invalid_argument", "unreachable")


def test_an_empty_entry_is_refused(context):
    """no_gid, with the index."""
    a, b = make_end(context), make_end(context)
    with pytest.raises(errors.VerbenaError, match="GID index 200 is empty") as refusal:
        a.qp.connect_to(endpoint(b, IPV4), gid_index=200)
    assert refusal.value.code == "no_gid"


def test_managed_connections_keep_one_descriptor_and_not_one_each():
    """librdmacm opens a device once for itself and keeps it; further connections add nothing."""

    def descriptors():
        links = []
        for entry in list(os.scandir("/proc/self/fd")):
            with contextlib.suppress(FileNotFoundError):  # closed by another thread: not kept
                links.append(os.readlink(entry.path))
        return sorted(link for link in links if "infiniband" in link)

    def turn():
        with open_device("ibv:rxe0") as context:
            connect_managed(make_end(context), make_end(context))

    def settled():
        """The thread of the connection manager closes what it used for the last event."""
        wait_until(lambda: "/dev/infiniband/rdma_cm" not in descriptors(), "the end of the event channel")
        return descriptors()

    turn()
    kept = settled()
    for _ in range(5):
        turn()
    assert settled() == kept
