"""The decision between a hello and a link by the first bytes: for every length of what has arrived."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.transport.handshake.first_bytes import MAX_BYTES, Protocol, detect_protocol

LINK_START = b"MPA ID Req Frame"
LINK_ALPN = "verbena-iwarp/1"
HELLO, LINK = Protocol.HELLO, Protocol.LINK


def client_hello(*alpn: str, name: str = "localhost") -> bytes:
    """The first flight of a TLS client that offers these protocols."""
    context = ssl.create_default_context()
    if alpn:
        context.set_alpn_protocols(list(alpn))
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def in_records(records: Sequence[bytes], kind: int = 22) -> bytes:
    return b"".join(bytes([kind, 3, 1]) + len(part).to_bytes(2, "big") + part for part in records)


def message_of(flight: bytes) -> bytes:
    """The handshake message of a flight in one record."""
    assert len(flight) == 5 + int.from_bytes(flight[3:5], "big")
    return flight[5:]


def decide_stepwise(data: bytes) -> tuple[Protocol, int]:
    """Decides as a caller does that waits for exactly the bytes which are asked for. Returns the protocol and
    the number of steps."""
    wanted, steps = 1, 0
    while True:
        assert wanted <= len(data), "it asks for bytes that a whole message does not have"
        decision = detect_protocol(data[:wanted])
        steps += 1
        if isinstance(decision, Protocol):
            return decision, steps
        assert wanted < decision <= MAX_BYTES
        wanted = decision


def check_all_lengths(data: bytes, expected: Protocol) -> None:
    """However much has arrived, the decision is the expected one or asks for more, never for too much."""
    decided = False
    for length in range(len(data) + 1):
        decision = detect_protocol(data[:length])
        if isinstance(decision, Protocol):
            assert decision is expected, length
            decided = True
        else:
            assert not decided, "a decision is final"
            assert length < decision <= len(data)
    assert decided
    assert detect_protocol(data + b"and whatever follows") is expected
    assert decide_stepwise(data)[0] is expected


# Without TLS


def test_nothing_asks_for_the_first_byte() -> None:
    assert detect_protocol(b"") == 1


def test_a_link_begins_with_its_request_frame() -> None:
    """The whole key is needed, and asked for at once."""
    check_all_lengths(LINK_START, LINK)
    for length in range(1, 16):
        assert detect_protocol(LINK_START[:length]) == 16
    assert decide_stepwise(LINK_START) == (LINK, 2)


@pytest.mark.parametrize("position", range(16))
def test_a_byte_that_no_link_has_decides_at_once(position: int) -> None:
    other = bytearray(LINK_START)
    other[position] ^= 1
    for length in range(position + 1, 17):
        assert detect_protocol(bytes(other[:length])) is HELLO


def test_everything_else_is_for_the_hello_from_its_first_byte_on() -> None:
    """A hello, and what is no protocol of this port: the hello rejects it with a reason."""
    for data in (
        b"VRBN\x01",
        b"GET / HTTP/1.1\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\x00" * 64,
        b"MPA ID Rep Frame",
    ):
        assert detect_protocol(data) is HELLO
    for first in set(range(256)) - {22, LINK_START[0]}:
        assert detect_protocol(bytes([first])) is HELLO


# Inside TLS


@pytest.mark.parametrize(
    ("alpn", "expected"),
    [
        ((LINK_ALPN,), LINK),
        ((), HELLO),
        (("h2",), HELLO),
        (("verbena-iwarp/2",), HELLO),
        (("verbena-iwarp/11",), HELLO),
        ((LINK_ALPN, "h2"), HELLO),
        (("h2", LINK_ALPN), HELLO),
        ((LINK_ALPN, LINK_ALPN), HELLO),
    ],
)
def test_the_protocol_that_a_client_offers_decides(alpn: tuple[str, ...], expected: Protocol) -> None:
    """A link offers exactly one, for every number of bytes that have arrived."""
    check_all_lengths(client_hello(*alpn), expected)


def test_a_client_hello_is_read_in_few_steps() -> None:
    """Its headers, then the rest: a caller is not woken for each byte."""
    for alpn in ((LINK_ALPN,), ()):
        assert decide_stepwise(client_hello(*alpn))[1] <= 4


@pytest.mark.parametrize("alpn", [(LINK_ALPN,), ()])
def test_a_client_hello_may_be_in_several_records(alpn: tuple[str, ...]) -> None:
    """Cut in two at every byte, in up to 16 records, and with the next message in the last record."""
    expected = LINK if alpn else HELLO
    message = message_of(client_hello(*alpn))
    for cut in range(1, len(message)):
        assert decide_stepwise(in_records([message[:cut], message[cut:]]))[0] is expected
    for size in (40, 50, 100):
        parts = [message[at : at + size] for at in range(0, len(message), size)]
        check_all_lengths(in_records(parts), expected)
    for heads in range(1, 16):
        parts = [bytes([byte]) for byte in message[:heads]]
        check_all_lengths(in_records([*parts, message[heads:]]), expected)
    parts = [bytes([byte]) for byte in message[:16]]
    assert detect_protocol(in_records([*parts, message[16:]])) is HELLO, "in more records"
    assert detect_protocol(in_records([message + b"\x0b\x00\x00\x00"])) is expected


def test_what_begins_like_tls_and_is_no_client_hello_is_for_the_hello() -> None:
    """The TLS library rejects it with a reason."""
    message = message_of(client_hello(LINK_ALPN))
    assert detect_protocol(b"\x16\x04") is HELLO, "no version of TLS"
    assert detect_protocol(b"\x16\x03\x01\x00\x00") is HELLO, "an empty record"
    assert detect_protocol(in_records([b"\x02" + message[1:]])) is HELLO, "another message"
    assert detect_protocol(in_records([message[:40]]) + in_records([message[40:]], kind=23)) is HELLO, (
        "another record"
    )
    assert detect_protocol(in_records([message[:40]]) + b"\x16\x03\x01\x00\x00") is HELLO


def test_a_client_hello_that_is_too_long_is_for_the_hello() -> None:
    """Known from its headers, so that no peer makes this end hold more."""
    header = b"\x01" + MAX_BYTES.to_bytes(3, "big")
    assert detect_protocol(in_records([header + bytes(100)])) is HELLO
    long = client_hello(*(f"{number:0250}" for number in range(200)))
    assert len(long) > MAX_BYTES
    assert decide_stepwise(long)[0] is HELLO
    assert detect_protocol(long) is HELLO


def extension(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content


def alpn_extension(*names: bytes) -> bytes:
    listed = b"".join(bytes([len(name)]) + name for name in names)
    return extension(16, len(listed).to_bytes(2, "big") + listed)


def made_hello(*extensions: bytes, tail: bytes = b"") -> bytes:
    """A ClientHello with these extensions, as a program could send it."""
    listed = b"".join(extensions)
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += len(listed).to_bytes(2, "big") + listed + tail
    return in_records([b"\x01" + len(body).to_bytes(3, "big") + body])


def test_malformed_extensions_are_for_the_hello() -> None:
    name = LINK_ALPN.encode()
    good = alpn_extension(name)
    assert detect_protocol(made_hello(good)) is LINK
    assert detect_protocol(made_hello(extension(0, b""), good, extension(43, b"\x02\x03\x04"))) is LINK
    for wrong in (
        made_hello(good, good),
        made_hello(good, tail=b"\x00"),
        made_hello(good[:-1]),
        made_hello(extension(16, good[4:] + b"\x00")),
        made_hello(extension(16, b"")),
        made_hello(alpn_extension()),
        made_hello(alpn_extension(b"")),
        made_hello(good, b"\x00\x0a\x00"),
        made_hello(extension(16, b"\x00\x11\x10" + name)),
    ):
        assert detect_protocol(wrong) is HELLO


hostile = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda data: b"\x16\x03" + data, st.binary(max_size=300)),
    st.builds(lambda data: LINK_START[: data % 17], st.integers(0, 16)),
    st.builds(
        lambda at, byte: (
            (good := made_hello(alpn_extension(LINK_ALPN.encode())))[: at % len(good)]
            + bytes([byte])
            + good[at % len(good) + 1 :]
        ),
        st.integers(0, 500),
        st.integers(0, 255),
    ),
    st.builds(
        lambda sizes: in_records([bytes([1, 0, 0, 200])[: size % 5] + bytes(size) for size in sizes]),
        st.lists(st.integers(0, 90), max_size=5),
    ),
)


@given(hostile)
def test_a_decision_is_final_and_what_is_asked_for_is_bounded(data: bytes) -> None:
    """For any bytes: no exception, and more bytes do not change a decision."""
    last: Protocol | int = 1
    for length in range(len(data) + 1):
        decision = detect_protocol(data[:length])
        if isinstance(last, Protocol):
            assert decision is last
        elif isinstance(decision, int):
            assert length < decision <= MAX_BYTES
            assert decision >= last or length >= last
        last = decision
