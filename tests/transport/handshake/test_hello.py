"""The hello between two ends in memory: what they agree on, and everything that they refuse."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import hmac
import itertools
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena import errors
from verbena.errors import VerbenaError, setup_error
from verbena.transport.handshake.frames import FIELDS, FrameType, encode
from verbena.transport.handshake.hello import (
    Agreement,
    Authentication,
    ClientHello,
    HelloClient,
    NodeInfo,
    Offer,
    ProbeReply,
    ServerHello,
    WireOffer,
    hkdf,
)

ANNA = NodeInfo("anna", 2**64 - 1, "host one", "40/1")
BERT = NodeInfo("bert", 7, "host one", "40/2")
NOBODY = Authentication()
SECRET = Authentication("secret", b"sixteen bytes ok")
OTHER_SECRET = Authentication("secret", b"sixteen bytes no")
TLS = Authentication("tls")
WIRES = (
    WireOffer("ibv", "10.0.0.2:7000"),
    WireOffer("shm", "verbena-7"),
    WireOffer("iwarp", "10.0.0.2:7001"),
)
OFFER = Offer(session_id=2**64 - 1, wires=WIRES, window=64, max_message_bytes=2**31, resume_timeout_s=30.5)


def client(**options: Any) -> ClientHello:
    return ClientHello(ANNA, **{"auth": SECRET, "wires": ("shm", "ibv", "iwarp"), **options})


def server(**options: Any) -> ServerHello:
    return ServerHello(BERT, **{"auth": SECRET, **options})


def converse(
    one: ClientHello,
    two: ServerHello,
    *,
    offer: Offer = OFFER,
    between: Callable[[bytes], bytes] = lambda data: data,
) -> tuple[Agreement | ProbeReply, Agreement | HelloClient]:
    """Transfers bytes in both directions, through `between`, until both ends have a result. An end without a
    result when no bytes are left receives an end of file."""
    client_end: Agreement | ProbeReply | None = None
    server_end: Agreement | HelloClient | None = None
    to_server = [one.start()]
    while to_server:
        to_client: list[bytes] = []
        for event in two.receive(between(to_server.pop(0))):
            answers = (
                two.welcome(offer) if isinstance(event, HelloClient) and event.purpose == "open" else [event]
            )
            for answer in answers:
                if isinstance(answer, bytes):
                    to_client.append(answer)
                else:
                    assert isinstance(answer, (Agreement, HelloClient))
                    server_end = answer
        for data in to_client:
            for event in one.receive(between(data)):
                if isinstance(event, bytes):
                    to_server.append(event)
                else:
                    assert isinstance(event, (Agreement, ProbeReply))
                    client_end = event
    if server_end is None:
        two.receive_eof()
    if client_end is None:
        one.receive_eof()
    assert client_end is not None
    assert server_end is not None
    return client_end, server_end


def frames(auth: Authentication = SECRET) -> list[bytes]:
    """The frames of a whole valid hello: HELLO, CHALLENGE, PROOF, WELCOME."""
    seen: list[bytes] = []

    def record(data: bytes) -> bytes:
        seen.append(data)
        return data

    converse(client(auth=auth), server(auth=auth), between=record)
    return seen


def refused(act: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(VerbenaError) as caught:
        act(*arguments)
    return caught.value.code


def body(kind: FrameType, text: bytes) -> bytes:
    return struct.pack("!4sBI", b"VRBN", kind, len(text)) + text


def counting() -> Callable[[int], bytes]:
    numbers: Iterator[int] = iter(range(1, 200))
    return lambda length: bytes([next(numbers)]) * length


# Agreement


def test_both_ends_agree() -> None:
    """Both ends have the same session, key, wires and limits, and each knows the other's name and boot
    epoch."""
    at_client, at_server = converse(client(), server())
    assert isinstance(at_client, Agreement)
    assert isinstance(at_server, Agreement)
    assert (at_client.peer_name, at_client.peer_boot_epoch) == ("bert", 7)
    assert (at_server.peer_name, at_server.peer_boot_epoch) == ("anna", 2**64 - 1)
    assert (at_client.peer_process, at_server.peer_process) == ("40/2", "40/1")
    server_facts = {"peer_name": "anna", "peer_boot_epoch": 2**64 - 1, "peer_process": "40/1"}
    assert dataclasses.replace(at_client, **server_facts) == at_server
    assert (at_client.version, at_client.session_id, len(at_client.key)) == (1, 2**64 - 1, 32)
    assert (at_client.wires, at_client.window, at_client.max_message_bytes) == (WIRES, 64, 2**31)
    assert (at_client.resume_timeout_s, at_client.same_host, at_client.peer_identity) == (30.5, True, "")


def test_bytes_may_come_one_at_a_time() -> None:
    one, two = client(), server()
    to_server, end = one.start(), None
    while end is None:
        events = [event for byte in to_server for event in two.receive(bytes([byte]))]
        if isinstance(events[-1], HelloClient):
            events = two.welcome(OFFER)
        answer = events[0]
        assert isinstance(answer, bytes)
        for event in [event for byte in answer for event in one.receive(bytes([byte]))]:
            if isinstance(event, bytes):
                to_server = event
            else:
                end = event
    assert isinstance(end, Agreement)


def test_keys_are_fresh_and_secret() -> None:
    """Two sessions never share a key, and no repr contains a key or the secret."""
    first, second = converse(client(), server())[0], converse(client(), server())[0]
    assert isinstance(first, Agreement)
    assert isinstance(second, Agreement)
    assert first.key != second.key
    assert repr(first.key) not in repr(first)
    assert "sixteen" not in repr(SECRET)


def test_the_key_depends_on_the_nonces_and_on_the_key_inside_tls() -> None:
    """Hellos that differ only in the key inside TLS, or in a nonce, have different session keys."""

    def key(*, secure: bool, skip: int = 0) -> bytes:
        random = counting()
        for _ in range(skip):
            random(1)
        two = server(secure=secure, random=counting())
        end = converse(client(secure=secure, random=random), two)[0]
        assert isinstance(end, Agreement)
        return end.key

    keys = {key(secure=False), key(secure=True), key(secure=False, skip=1)}
    assert len(keys) == 3
    assert key(secure=True) == key(secure=True)


@pytest.mark.parametrize("secure", [False, True])
def test_proofs_and_key_are_computed_as_specified(secure: bool) -> None:
    """The computation is spelt out here as another implementation must do it."""
    seen: list[bytes] = []

    def record(data: bytes) -> bytes:
        seen.append(data)
        return data

    end, _ = converse(client(secure=secure), server(secure=secure), between=record)
    assert isinstance(end, Agreement)
    hello, challenge, proof, welcome = seen

    def proven(label: bytes, before: bytes, frame: bytes) -> str:
        value: str = json.loads(frame[9:])["proof"]
        signed = label + before + frame.replace(value.encode(), b"0" * 64)
        assert value == hmac.new(SECRET.secret, signed, hashlib.sha256).hexdigest()
        return value

    assert proven(b"verbena client", hello + challenge, proof)
    assert proven(b"verbena server", hello + challenge + proof, welcome)
    random_key = bytes.fromhex(json.loads(welcome[9:])["key"])
    assert len(random_key) == (32 if secure else 0)
    salt = hashlib.sha256(b"".join(seen)).digest()
    extracted = hmac.new(salt, random_key.ljust(32, b"\0") + SECRET.secret, hashlib.sha256).digest()
    assert end.key == hmac.new(extracted, b"verbena session key\x01", hashlib.sha256).digest()


def test_hkdf_is_that_of_the_rfc() -> None:
    """RFC 5869, appendix A.1 and A.3."""
    salt, info = bytes.fromhex("000102030405060708090a0b0c"), bytes.fromhex("f0f1f2f3f4f5f6f7f8f9")
    first = hkdf(b"\x0b" * 22, salt=salt, info=info, length_bytes=42)
    third = hkdf(b"\x0b" * 22, salt=b"", info=b"", length_bytes=42)
    assert first.hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )
    assert third.hex() == (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )


@pytest.mark.parametrize(("host_id", "same"), [("host one", True), ("host two", False), ("", False)])
def test_the_same_host_is_recognised(host_id: str, same: bool) -> None:
    """Two nodes that do not know their host are not taken for nodes on one host."""
    one = ClientHello(dataclasses.replace(ANNA, host_id=host_id), auth=SECRET, wires=["shm"])
    mine = dataclasses.replace(BERT, host_id=host_id and "host one")
    at_client, at_server = converse(one, ServerHello(mine, auth=SECRET))
    assert isinstance(at_client, Agreement)
    assert isinstance(at_server, Agreement)
    assert at_client.same_host is at_server.same_host is same


def test_the_host_id_is_hashed_with_the_nonce() -> None:
    """The host's id is sent hashed with the nonce: it differs each time and reveals nothing to other
    hosts."""
    one, two = client().start(), client().start()
    (three,) = server().receive(one)
    assert isinstance(three, bytes)
    hosts = {json.loads(frame[9:])["host"] for frame in (one, two, three)}
    assert len(hosts) == 3
    assert b"host one" not in one + three


@pytest.mark.parametrize("host_id", ["host two", ""])
def test_the_process_is_named_to_peers_on_the_same_host_only(host_id: str) -> None:
    """No frame to another host holds it, and a peer that claims one from there is not believed."""
    seen: list[bytes] = []

    def record(data: bytes) -> bytes:
        seen.append(data)
        return data

    elsewhere = ServerHello(dataclasses.replace(BERT, host_id=host_id), auth=SECRET)
    at_client, at_server = converse(client(), elsewhere, between=record)
    assert isinstance(at_client, Agreement)
    assert isinstance(at_server, Agreement)
    assert (at_client.peer_process, at_server.peer_process) == ("", "")
    assert len(seen) == 4
    assert not any(process in frame for frame in seen for process in (b"40/1", b"40/2"))

    one = _Forthcoming(ANNA, auth=SECRET, wires=("shm", "iwarp"))
    elsewhere = ServerHello(dataclasses.replace(BERT, host_id=host_id), auth=SECRET)
    _, at_server = converse(one, elsewhere)
    assert isinstance(at_server, Agreement)
    assert at_server.peer_process == ""


class _Forthcoming(ClientHello):
    """A client that names its process to every server."""

    def _is_own_host(self, peer: dict[str, Any]) -> bool:
        return True


def test_only_wires_that_both_have_are_offered_in_the_servers_order() -> None:
    at_client, at_server = converse(client(wires=("iwarp", "shm", "quic")), server())
    assert isinstance(at_client, Agreement)
    assert [wire.name for wire in at_client.wires] == ["shm", "iwarp"]
    assert isinstance(at_server, Agreement)
    assert at_server.wires == at_client.wires


def test_the_highest_common_version_is_taken() -> None:
    at_client, _ = converse(client(versions=(1, 2, 3, 9)), server(versions=(1, 3, 4)))
    assert isinstance(at_client, Agreement)
    assert at_client.version == 3


def test_a_probe_learns_the_boot_epoch_and_opens_no_session() -> None:
    at_client, at_server = converse(client(purpose="probe", wires=()), server())
    assert at_client == ProbeReply("bert", 7, "")
    assert isinstance(at_server, HelloClient)
    assert (at_server.purpose, at_server.name) == ("probe", "anna")


def test_identity_comes_from_the_certificate() -> None:
    one = client(auth=TLS, secure=True, peer_identity="DNS:bert.example")
    at_client, at_server = converse(one, server(auth=TLS, secure=True, peer_identity="DNS:anna.example"))
    assert isinstance(at_client, Agreement)
    assert isinstance(at_server, Agreement)
    assert (at_client.peer_identity, at_server.peer_identity) == ("DNS:bert.example", "DNS:anna.example")
    assert at_client.key == at_server.key


def test_without_authentication_there_is_still_a_session() -> None:
    at_client, at_server = converse(client(auth=NOBODY), server(auth=NOBODY))
    assert isinstance(at_client, Agreement)
    assert isinstance(at_server, Agreement)
    assert at_client.key == at_server.key


# Refusals


def test_a_wrong_secret_is_refused_by_the_server() -> None:
    """The client receives the server's refusal with the same text."""
    one, two = client(auth=OTHER_SECRET), server()
    (challenge,) = two.receive(one.start())
    (proof,) = one.receive(challenge)
    assert refused(two.receive, proof) == "credentials"
    assert refused(one.receive, two.refusal_frame) == "credentials"
    assert one.refusal_frame == b""


def test_a_server_without_the_secret_is_refused_by_the_client() -> None:
    """An impostor can send a challenge, but no welcome that the client accepts."""
    good = frames()
    one = client()
    one.receive(good[1])
    assert refused(one.receive, good[3]) == "credentials"


@pytest.mark.parametrize(
    ("mine", "theirs", "code"),
    [
        (SECRET, NOBODY, "downgrade"),
        (TLS, NOBODY, "downgrade"),
        (SECRET, TLS, "credentials"),
        (TLS, SECRET, "credentials"),
        (NOBODY, SECRET, "credentials"),
        (NOBODY, TLS, "credentials"),
    ],
)
def test_the_authentication_method_cannot_be_downgraded(
    mine: Authentication, theirs: Authentication, code: str
) -> None:
    """A client answers only a server with its own authentication method, and sends no proof to others."""
    one = client(auth=mine, secure=True)
    two = server(auth=theirs, secure=True, peer_identity="CN:anna")
    (challenge,) = two.receive(one.start())
    assert refused(one.receive, challenge) == code
    assert b"proof" not in one.refusal_frame
    assert refused(two.receive, one.refusal_frame) == code


@pytest.mark.parametrize(("secure", "identity"), [(False, "CN:anna"), (True, ""), (False, "")])
def test_a_client_without_certificate_is_refused_where_one_is_needed(secure: bool, identity: str) -> None:
    two = server(auth=TLS, secure=secure, peer_identity=identity)
    assert refused(lambda: two.receive(client().start())) == "credentials"


def test_certificates_without_tls_are_an_invalid_argument() -> None:
    assert refused(lambda: client(auth=TLS)) == "invalid_argument"


@pytest.mark.parametrize(
    ("method", "secret"),
    [
        ("secret", b""),
        ("secret", b"fifteen bytes.."),
        ("none", b"x" * 16),
        ("tls", b"x" * 16),
        ("plain", b""),
    ],
)
def test_invalid_authentication_settings_are_refused(method: Any, secret: bytes) -> None:
    assert refused(lambda: Authentication(method, secret)) == "invalid_argument"


def test_versions_without_overlap_are_refused_and_named() -> None:
    one, two = client(versions=(1, 2)), server(versions=(3, 4))
    with pytest.raises(errors.ProtocolError, match="this end supports 3, 4, the peer 1, 2"):
        two.receive(one.start())
    with pytest.raises(errors.ProtocolError, match="the peer says: this end supports 3, 4") as caught:
        one.receive(two.refusal_frame)
    assert caught.value.code == "version_mismatch"


def test_a_version_that_was_not_offered_is_refused() -> None:
    assert refused(lambda: client(versions=(2,)).receive(frames()[1])) == "version_mismatch"


def test_no_common_wire_is_refused_and_named() -> None:
    one, two = client(wires=("quic",)), server()
    (challenge,) = two.receive(one.start())
    (proof,) = one.receive(challenge)
    two.receive(proof)
    with pytest.raises(
        errors.UnavailableError, match="the client has quic; the server offers ibv, shm, iwarp"
    ):
        two.welcome(OFFER)
    assert refused(one.receive, two.refusal_frame) == "no_common_wire"


def test_the_server_may_reject_an_authenticated_client() -> None:
    one, two = client(peer="10.0.0.2:7000"), server()
    (challenge,) = two.receive(one.start())
    (proof,) = one.receive(challenge)
    two.receive(proof)
    refusal = two.refuse(setup_error("limit_exceeded", operation="accept", detail="128 sessions\nare enough"))
    with pytest.raises(errors.RejectedError, match=r"the peer says: 128 sessions\?are enough") as caught:
        one.receive(refusal)
    assert caught.value.peer == "10.0.0.2:7000"
    assert refused(lambda: two.welcome(OFFER)) == "limit_exceeded"


def test_welcome_without_a_waiting_client_is_an_invalid_argument() -> None:
    two = server()
    assert refused(lambda: two.welcome(OFFER)) == "invalid_argument"
    assert refused(lambda: two.refuse(setup_error("rejected", operation="accept"))) == "invalid_argument"


def test_a_node_of_another_name_is_refused_on_request() -> None:
    """This detects a client that was directed to its own listener or to another node of the cluster."""
    assert refused(lambda: converse(client(expect_node="carl"), server())) == "credentials"
    assert refused(lambda: converse(client(expect_node="carl", purpose="probe"), server())) == "credentials"
    converse(client(expect_node="bert"), server())


def test_a_wire_that_was_not_asked_for_is_refused() -> None:
    assert refused(lambda: converse(client(wires=("shm",)), _Generous(BERT, auth=SECRET))) == "bad_message"


class _Generous(ServerHello):
    """A server that offers all its wires, whatever the client has."""

    def _on_proof(self, fields: dict[str, Any], raw: bytes) -> list[Any]:
        (client,) = super()._on_proof(fields, raw)
        self._client = dataclasses.replace(client, wires=("ibv", "shm", "iwarp"))
        return [client]


@pytest.mark.parametrize(("mine", "theirs"), [(True, False), (False, True)])
def test_a_key_is_sent_inside_tls_and_nowhere_else(mine: bool, theirs: bool) -> None:
    assert refused(lambda: converse(client(secure=mine), server(secure=theirs))) == "bad_message"


# Replays and modified bytes


def test_a_recorded_client_cannot_be_replayed() -> None:
    hello, _, proof, _ = frames()
    two = server()
    two.receive(hello)
    assert refused(two.receive, proof) == "credentials"


def test_a_recorded_server_cannot_be_replayed() -> None:
    _, challenge, _, welcome = frames()
    one = client()
    one.receive(challenge)
    assert refused(one.receive, welcome) == "credentials"


def test_a_clients_proof_is_no_servers_proof() -> None:
    """A client's own proof, reflected to it in the frame of a server, is refused."""
    one = client(purpose="probe")
    (challenge,) = server().receive(one.start())
    (proof,) = one.receive(challenge)
    assert isinstance(proof, bytes)
    echo = encode(FrameType.ALIVE, {"proof": json.loads(proof[9:])["proof"]})
    assert refused(one.receive, echo) == "credentials"


@pytest.mark.parametrize("auth", [SECRET, NOBODY], ids=["secret", "none"])
def test_one_flipped_bit_anywhere_ends_without_a_session(auth: Authentication) -> None:
    """For every bit of every frame, one at a time: the end that receives it, or its peer, refuses."""
    for position in range(8 * len(b"".join(frames(auth)))):
        passed = 0

        def flip(data: bytes, position: int = position) -> bytes:
            nonlocal passed
            here = position - 8 * passed
            passed += len(data)
            if not 0 <= here < 8 * len(data):
                return data
            damaged = bytearray(data)
            damaged[here // 8] ^= 1 << here % 8
            return bytes(damaged)

        one, two = client(auth=auth), server(auth=auth)
        with pytest.raises(VerbenaError):
            converse(one, two, between=flip)


def test_frames_changed_by_a_man_in_the_middle_are_refused() -> None:
    """With a secret, a man in the middle who rewrites any field with valid values is detected by one end."""
    changes: dict[FrameType, dict[str, Any]] = {
        FrameType.HELLO: {
            "node": "eve",
            "boot_epoch": 1,
            "wires": ["shm"],
            "versions": [1, 2],
            "host": "00" * 32,
        },
        FrameType.CHALLENGE: {"node": "eve", "boot_epoch": 1, "nonce": "00" * 32},
        FrameType.PROOF: {"proof": "00" * 32},
        FrameType.WELCOME: {
            "session_id": 1,
            "same_host": False,
            "wires": [{"name": "shm", "address": "evil"}],
            "window": 1,
            "max_message_bytes": 1,
            "resume_timeout_ms": 0,
            "proof": "00" * 32,
        },
    }
    for kind, fields in changes.items():
        for name, value in fields.items():

            def rewrite(data: bytes, kind: FrameType = kind, name: str = name, value: Any = value) -> bytes:
                return encode(kind, {**json.loads(data[9:]), name: value}) if data[4] == kind else data

            code = refused(lambda: converse(client(), server(), between=rewrite))
            assert code == "credentials", (kind, name)


# Frames out of order, and input after the end


def test_each_frame_is_refused_where_another_is_due() -> None:
    """Past, duplicate and future frames: at every point only one kind of frame, or a refusal, is accepted."""
    good = dict(
        zip((FrameType.HELLO, FrameType.CHALLENGE, FrameType.PROOF, FrameType.WELCOME), frames(), strict=True)
    )
    good[FrameType.ALIVE] = encode(FrameType.ALIVE, {"proof": "00" * 32})

    def client_at(step: int) -> ClientHello:
        one, two = client(), server()
        (challenge,) = two.receive(one.start())
        if step >= 1:
            (proof,) = one.receive(challenge)
        if step >= 2:
            two.receive(proof)
            one.receive(two.welcome(OFFER)[0])
        return one

    def server_at(step: int) -> ServerHello:
        one, two = client(), server()
        if step >= 1:
            (challenge,) = two.receive(one.start())
        if step >= 2:
            (proof,) = one.receive(challenge)
            two.receive(proof)
        if step >= 3:
            two.welcome(OFFER)
        return two

    for steps, make, due in (
        (3, client_at, {0: FrameType.CHALLENGE, 1: FrameType.WELCOME}),
        (4, server_at, {0: FrameType.HELLO, 1: FrameType.PROOF}),
    ):
        for step in range(steps):
            for kind, frame in good.items():
                if kind is not due.get(step):
                    end = make(step)
                    assert refused(end.receive, frame) == "bad_message", (make, step, kind)


def test_an_end_of_file_is_a_rejection() -> None:
    """The error names the frame that was expected, and the hello stays failed."""
    one, two = client(), server()
    two.receive(one.start()[:-1])
    with pytest.raises(errors.RejectedError, match="the peer hung up before HELLO"):
        two.receive_eof()
    with pytest.raises(errors.RejectedError, match=r"the connection broke before CHALLENGE .*ECONNRESET"):
        one.receive_eof(errno.ECONNRESET)
    assert refused(two.receive_eof) == refused(two.receive, b"more") == "rejected"


def test_a_refusal_with_an_unknown_code_is_a_rejection() -> None:
    """A peer cannot choose which error this end raises."""
    for code in ("memlock", "peer_restarted", "", "SUCCESS", "session_unknown"):
        one = client()
        with pytest.raises(errors.RejectedError, match="the peer says: because"):
            one.receive(encode(FrameType.REFUSAL, {"code": code, "reason": "because"}))


def test_a_failed_hello_stays_failed() -> None:
    """After an error, any input raises the same error, even what would have been valid."""
    one, two = client(), server()
    (challenge,) = two.receive(one.start())
    with pytest.raises(VerbenaError) as first:
        one.receive(b"nonsense")
    with pytest.raises(VerbenaError) as second:
        one.receive(challenge)
    assert first.value is second.value
    assert first.value.peer is None
    assert refused(two.receive, one.refusal_frame) == "bad_message"


def test_bytes_behind_the_last_frame_are_refused() -> None:
    one, two = client(), server()
    (challenge,) = two.receive(one.start())
    (proof,) = one.receive(challenge)
    assert isinstance(proof, bytes)
    two.receive(proof)
    welcome = two.welcome(OFFER)[0]
    assert isinstance(welcome, bytes)
    assert refused(lambda: one.receive(welcome + b"V")) == "bad_message"
    assert refused(lambda: two.receive(b"V")) == "bad_message"


def test_an_invalid_name_or_boot_epoch_is_an_invalid_argument() -> None:
    for node in (NodeInfo("", 1), NodeInfo("a b", 1), NodeInfo("a", -1), NodeInfo("a", 2**64)):
        with pytest.raises(VerbenaError) as caught:
            ClientHello(node, auth=SECRET)
        assert caught.value.code == "invalid_argument"


# Fuzz


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return (data[start:end] for start, end in itertools.pairwise(edges))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
framed = st.builds(
    lambda kind, value: body(kind, json.dumps(value, sort_keys=True, separators=(",", ":")).encode()),
    st.sampled_from(FrameType),
    json_values,
)


@given(
    st.binary(max_size=200) | framed | st.lists(framed, max_size=3).map(b"".join),
    st.lists(st.integers(0, 500), max_size=4),
    st.booleans(),
)
def test_garbage_raises_only_verbena_errors(data: bytes, cuts: list[int], known: bool) -> None:
    """At any point of the hello and in any fragments: no other exception, and no agreement."""
    ends: list[ClientHello | ServerHello] = [client(), server()]
    if known:
        one, two = client(), server()
        (challenge,) = two.receive(one.start())
        one.receive(challenge)
        ends = [one, two]
    for end in ends:
        with contextlib.suppress(VerbenaError):
            for piece in pieces(data, cuts):
                assert not [event for event in end.receive(piece) if not isinstance(event, bytes)]
        assert len(end.refusal_frame) < 1500


@given(st.data())
def test_a_good_frame_with_one_field_replaced_never_gives_a_session(data: st.DataObject) -> None:
    kind = data.draw(
        st.sampled_from([FrameType.HELLO, FrameType.CHALLENGE, FrameType.PROOF, FrameType.WELCOME])
    )
    name = data.draw(st.sampled_from(sorted(FIELDS[kind])))
    value = data.draw(json_values)

    def rewrite(frame: bytes) -> bytes:
        if frame[4] != kind or json.loads(frame[9:])[name] == value:
            return frame
        text = json.dumps({**json.loads(frame[9:]), name: value}, sort_keys=True, separators=(",", ":"))
        return body(kind, text.encode())

    sent: list[bytes] = []

    def tap(frame: bytes) -> bytes:
        changed = rewrite(frame)
        sent.append(changed if changed != frame else b"")
        return changed

    try:
        converse(client(), server(), between=tap)
    except VerbenaError:
        return
    assert not any(sent)
