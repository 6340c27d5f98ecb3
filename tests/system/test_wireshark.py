"""Our TCP traffic as others see it: Wireshark takes every byte of it for iWARP, with a valid CRC."""

import contextlib

import pytest
from support.rdma import capture
from support.rdma.link import (
    Pair,
    compare_swap,
    connect_managed,
    drain,
    fetch_add,
    make_end,
    pattern,
    read,
    send,
    statuses,
    write,
)

from verbena import verbs
from verbena.errors import WcStatus
from verbena.verbs import RemoteMemory

# Longer than the longest FPDU, and no multiple of four.
LONG = 200_003
WRITE, READ_REQUEST, READ_RESPONSE, SEND, TERMINATE = 0x0, 0x1, 0x2, 0x3, 0x7
SEND_INVALIDATE, SEND_SOLICITED, IMMEDIATE = 0x4, 0x5, 0x8
ATOMIC_REQUEST, ATOMIC_RESPONSE, ACKNOWLEDGEMENT = 0xA, 0xB, 0xF
# Wireshark knows MPA as of RFC 5044: revision 2 and its bit for enhanced set-up are news to it.
ENHANCED_SET_UP = {
    ("IWARP_MPA", "Res field is NOT set to zero as required by RFC 5044"),
    ("IWARP_MPA", "Rev field is NOT set to one as required by RFC 5044"),
}


@pytest.fixture
def observed():
    """Runs some traffic from a client to a server on this address, and gives what Wireshark made of it."""
    if reason := capture.missing():
        pytest.skip(reason)

    def observe(host, traffic):
        with contextlib.ExitStack() as stack:
            client, server = (stack.enter_context(verbs.open_device("iwarp:lo")) for _ in range(2))
            pair = Pair(make_end(client), make_end(server))
            with server.listen(f"{host}:0") as listener:
                address = listener.address
            port = int(address.rpartition(":")[2])
            path = stack.enter_context(capture.capturing(port))
            connect_managed(pair.a, pair.b, address=address)
            traffic(pair)
            pair.a.connection.disconnect()
            capture.wait_for_end(path)
            return capture.decode(path, port)

    return observe


def everything(pair):
    """One of each operation, and messages of several segments."""
    a, b = pair.a, pair.b
    target, counter = b.region(LONG), b.region(8)
    b.expect(*[b.region(LONG)] * 6)
    requests = (
        send(a.region(b"short")),
        send(a.region(pattern(LONG))),
        send(a.region(b"urgent"), solicited=True),
        send(a.region(pattern(1001)), immediate=7),
        write(a.region(pattern(LONG)), target.remote),
        write(a.region(pattern(99)), target.remote[:99], immediate=9),
        read(a.region(LONG), target.remote),
        read(a.region(8), target.remote[:8]),
        fetch_add(a.region(8), counter.remote, 5),
        compare_swap(a.region(8), counter.remote, 5, 6),
    )
    assert statuses(a.do(*requests)) == [WcStatus.SUCCESS] * len(requests)
    assert all(completion.ok for completion in drain(b.recv_cq, 5))


def assert_understood(seen, checksum, findings=ENHANCED_SET_UP):
    """Nothing is malformed, no byte is left over, no finding but these."""
    assert seen.malformed == []
    assert set(seen.findings) == findings
    for from_server in (False, True):
        assert seen.understood_bytes(from_server=from_server) == seen.stream_bytes[from_server]
    assert {fpdu.checksum for fpdu in seen.fpdus} == {checksum}
    assert all(fpdu.opcode is not None for fpdu in seen.fpdus)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_every_operation_decodes_with_a_good_crc(observed, host):
    """Each FPDU is MPA, DDP and RDMAP of the expected opcode, and Wireshark finds its CRC good."""
    seen = observed(host, everything)
    assert_understood(seen, "Good CRC32")
    greeting = [WRITE]
    sends = [SEND, SEND, SEND_SOLICITED, SEND_INVALIDATE]
    one_sided = [WRITE, WRITE, IMMEDIATE, READ_REQUEST, READ_REQUEST, ATOMIC_REQUEST, ATOMIC_REQUEST]
    requests = [code for code in seen.opcodes(from_server=False) if code != ACKNOWLEDGEMENT]
    assert requests == greeting + sends + one_sided
    answers = [code for code in seen.opcodes(from_server=True) if code != ACKNOWLEDGEMENT]
    assert answers == [READ_RESPONSE, READ_RESPONSE, ATOMIC_RESPONSE, ATOMIC_RESPONSE]
    assert len(seen.fpdus) > len(requests) + len(answers) + 3 * (LONG // 65536)


def test_without_crc_the_field_is_there_and_zero(observed, monkeypatch):
    """With VERBENA_IWARP_CRC=0 at both ends the frames are the same, with a CRC field of zero."""
    monkeypatch.setenv("VERBENA_IWARP_CRC", "0")
    assert_understood(observed("127.0.0.1", everything), "CRC: 0x00000000")


def test_markers_are_where_wireshark_looks_for_them(observed, monkeypatch):
    """With VERBENA_IWARP_MARKERS=1 at both ends every marker points to its FPDU, and the CRC covers it.
    Wireshark takes a TCP segment for one FPDU where there are markers, so there is one at a time."""
    monkeypatch.setenv("VERBENA_IWARP_MARKERS", "1")
    monkeypatch.setenv("VERBENA_IWARP_ACKNOWLEDGED", "0")
    monkeypatch.setenv("VERBENA_IWARP_MPA_REVISION", "1")  # which has no greeting

    def one_at_a_time(pair):
        for length in (1, 99, 480, 488, 492, 500, 1001, 5001, 20_003):
            for a, b in ((pair.a, pair.b), (pair.b, pair.a)):
                source, target, back = a.region(pattern(length)), b.region(length), a.region(length)
                b.expect(b.region(length))
                for request in (send(source), write(source, target.remote), read(back, target.remote)):
                    assert statuses(a.do(request)) == [WcStatus.SUCCESS]
                assert bytes(back) == pattern(length)
                assert drain(b.recv_cq, 1)[0].ok

    seen = observed("127.0.0.1", one_at_a_time)
    assert_understood(seen, "Good CRC32", findings=set())
    for from_server in (False, True):
        position = 0
        for fpdu in (f for f in seen.fpdus if f.from_server is from_server):
            began = position + 4 if position % 512 == 0 else position
            places = range(-(-position // 512) * 512, position + fpdu.length, 512)
            assert fpdu.markers == [max(0, place - began) for place in places]
            position += fpdu.length


def test_plain_iwarp_has_nothing_that_wireshark_does_not_know(observed, monkeypatch):
    """Without acknowledgements, and with revision 1 of MPA, there is no finding and no opcode of our own."""
    monkeypatch.setenv("VERBENA_IWARP_ACKNOWLEDGED", "0")
    monkeypatch.setenv("VERBENA_IWARP_MPA_REVISION", "1")

    def plain(pair):
        a, b = pair.a, pair.b
        target = b.region(LONG)
        b.expect(b.region(LONG))
        done = a.do(
            send(a.region(pattern(LONG))),
            write(a.region(pattern(LONG)), target.remote),
            read(a.region(LONG), target.remote),
        )
        assert statuses(done) == [WcStatus.SUCCESS] * 3

    seen = observed("127.0.0.1", plain)
    assert_understood(seen, "Good CRC32", findings=set())
    assert seen.set_up_bytes == {False: 20, True: 20}
    assert seen.opcodes(from_server=False) == [SEND, WRITE, READ_REQUEST, READ_REQUEST]
    assert seen.opcodes(from_server=True) == [READ_RESPONSE, READ_RESPONSE]


def test_a_refusal_decodes_as_terminate(observed):
    """A WRITE with a wrong key is answered by a TERMINATE that Wireshark reads."""

    def refused(pair):
        remote = pair.b.region(8).remote
        wrong = RemoteMemory(remote.addr, remote.rkey ^ 0x101, 8)
        assert statuses(pair.a.do(write(pair.a.region(8), wrong))) == [WcStatus.REM_ACCESS_ERR]

    seen = observed("127.0.0.1", refused)
    assert_understood(seen, "Good CRC32")
    assert seen.opcodes(from_server=True)[-1] == TERMINATE
    assert seen.fpdus[-1].termination == ["DDP (0x1)", "Tagged Buffer Error (0x1)", "Invalid STag (0x00)"]
