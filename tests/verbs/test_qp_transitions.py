"""A2: the state diagram of a reliable queue pair, edge by edge and attribute by attribute."""

import pytest
from support.rdma.link import REMOTE_ALL

from verbena import errors
from verbena.verbs import QpState

pytestmark = pytest.mark.rule("A2")

RESET, INIT, RTR, RTS, SQD, SQE, ERR = (
    QpState.RESET,
    QpState.INIT,
    QpState.RTR,
    QpState.RTS,
    QpState.SQD,
    QpState.SQE,
    QpState.ERR,
)
# How to get to each state from RESET. SQE is not in it: a reliable queue pair never enters it.
PATHS = {
    RESET: (),
    INIT: (INIT,),
    RTR: (INIT, RTR),
    RTS: (INIT, RTR, RTS),
    SQD: (INIT, RTR, RTS, SQD),
    ERR: (INIT, ERR),
}
LEGAL = {
    RESET: {RESET, INIT},
    INIT: {RESET, INIT, RTR, ERR},
    RTR: {RESET, RTS, ERR},
    RTS: {RESET, RTS, SQD, ERR},
    SQD: {RESET, RTS, SQD, ERR},
    ERR: {RESET, ERR},
}
# The specification lets any state go to ERR, Linux's drivers do not let RESET: so either is right.
UNDECIDED = {(RESET, ERR)}
EDGES = [(start, to) for start in PATHS for to in QpState if (start, to) not in UNDECIDED]
REQUIRED = {
    (RESET, INIT): ("port", "pkey_index", "access_flags"),
    (INIT, RTR): ("dest_gid", "path_mtu", "dest_qp_num", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"),
    (RTR, RTS): ("timeout", "retry_count", "rnr_retry", "sq_psn", "max_rd_atomic"),
}
ADDRESS = ("dest_gid", "dest_lid")


def attributes_for(pair, start, to):
    """What a legal edge from `start`, or else any edge to `to`, requires."""
    peer = pair.b.qp.endpoint
    values = {
        "port": 1,
        "pkey_index": 0,
        "access_flags": REMOTE_ALL,
        "dest_gid": peer.gid,
        "dest_lid": peer.lid,
        "path_mtu": 1024,
        "dest_qp_num": peer.qp_num,
        "rq_psn": peer.psn,
        "max_dest_rd_atomic": 1,
        "min_rnr_timer": 12,
        "timeout": 14,
        "retry_count": 7,
        "rnr_retry": 7,
        "sq_psn": pair.a.qp.endpoint.psn,
        "max_rd_atomic": 1,
    }
    if to in LEGAL[start]:
        names = REQUIRED.get((start, to), ())
    else:
        names = next((names for (_, target), names in REQUIRED.items() if target is to), ())
    if "dest_gid" in names:
        names = (*names, *ADDRESS)
    return {name: values[name] for name in names}


def walk(pair, state):
    previous = RESET
    for step in PATHS[state]:
        pair.a.qp.modify(step, **attributes_for(pair, previous, step))
        previous = step
    assert pair.a.qp.state is state


@pytest.mark.parametrize(("start", "to"), [e for e in EDGES if e[1] in LEGAL[e[0]]], ids=lambda s: s.name)
def test_a_legal_transition_succeeds(ends, start, to):
    """With what it requires, each edge of the diagram leads to its state."""
    walk(ends, start)
    ends.a.qp.modify(to, **attributes_for(ends, start, to))
    assert ends.a.qp.state is to


@pytest.mark.parametrize(("start", "to"), [e for e in EDGES if e[1] not in LEGAL[e[0]]], ids=lambda s: s.name)
def test_an_illegal_transition_is_refused_and_changes_nothing(ends, start, to):
    """A skipped step or an edge that is not in the diagram raises bad_transition; the state stays."""
    walk(ends, start)
    with pytest.raises(errors.StateError) as refusal:
        ends.a.qp.modify(to, **attributes_for(ends, start, to))
    assert refusal.value.code == "bad_transition"
    assert ends.a.qp.state is start


@pytest.mark.parametrize(
    ("start", "to", "missing"),
    [(start, to, name) for (start, to), names in REQUIRED.items() for name in names],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_missing_attribute_is_refused_and_changes_nothing(ends, start, to, missing):
    """Each step names its required attributes: without one it raises missing_attribute; the state stays."""
    walk(ends, start)
    attributes = attributes_for(ends, start, to)
    for name in ADDRESS if missing == "dest_gid" else (missing,):
        del attributes[name]
    with pytest.raises(errors.StateError) as refusal:
        ends.a.qp.modify(to, **attributes)
    assert refusal.value.code == "missing_attribute"
    assert ends.a.qp.state is start


def test_an_unknown_attribute_is_refused(ends):
    """A misspelt attribute is a TypeError, not silence."""
    with pytest.raises(TypeError):
        ends.a.qp.modify(INIT, port=1, pkey_index=0, access_flags=REMOTE_ALL, colour=3)
    assert ends.a.qp.state is RESET


def test_attributes_return_what_was_set(ends):
    """The attributes given on the way to RTS can be read back."""
    walk(ends, RTS)
    attributes = ends.a.qp.attributes
    peer = ends.b.qp.endpoint
    assert (attributes.dest_qp_num, attributes.rq_psn, attributes.path_mtu) == (peer.qp_num, peer.psn, 1024)
    assert (attributes.timeout, attributes.retry_count, attributes.rnr_retry) == (14, 7, 7)


def test_connect_to_is_the_three_steps_in_one(ends):
    """connect_to takes a queue pair from RESET to RTS, on either side first."""
    ends.b.qp.connect_to(ends.a.qp.endpoint)
    ends.a.qp.connect_to(ends.b.qp.endpoint)
    assert (ends.a.qp.state, ends.b.qp.state) == (RTS, RTS)


def test_connect_to_of_a_connected_queue_pair_is_refused(pair):
    """A queue pair that is not in RESET or INIT is not connected again; it stays in RTS."""
    with pytest.raises(errors.StateError):
        pair.a.qp.connect_to(pair.b.qp.endpoint)
    assert pair.a.qp.state is RTS
