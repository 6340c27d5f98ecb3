"""One end of the hello as a state machine. The script plays the peer: each message is that of an honest one,
the same with a change, a frame of its own, one with the right checksum, or any bytes."""

from __future__ import annotations

import hmac

from fuzz.python.hello_frames import changed_fields, framed, own_frame, spelt
from fuzz.python.script import Input, bounded_memory, require

from verbena.errors import VerbenaError, setup_error
from verbena.transport.handshake.agreement import (
    Authentication,
    HelloClient,
    NodeInfo,
    Offer,
    WireOffer,
)
from verbena.transport.handshake.frames import FrameReader, FrameType, encode
from verbena.transport.handshake.hello import ClientHello, Event, ServerHello

READ_BYTES = 4096  # as in exchange.py: what an end gets at once
MEMORY_BYTES = 2 << 20
MESSAGES = 16
REFUSALS = {"bad_message", "credentials", "downgrade", "no_common_wire", "rejected", "version_mismatch"}
CODES = REFUSALS | {"limit_exceeded", "tls_handshake"}
SECRET = Authentication("secret", b"sixteen bytes ok")
OTHER_SECRET = Authentication("secret", b"sixteen bytes no")
METHODS = (Authentication(), SECRET, Authentication("tls"), SECRET)
ANNA, BERT = NodeInfo("anna", 2**64 - 1, "host one", "40/1"), NodeInfo("bert", 7, "host one", "40/2")
OFFER = Offer(
    session_id=7,
    wires=(WireOffer("shm", "verbena-7"), WireOffer("iwarp", "10.0.0.2:7001")),
    window=64,
    max_message_bytes=2**31,
    resume_timeout_s=30.5,
)

# The bits of the first byte; two more choose the method. WRONG_SECRET with "tls": no certificate.
CLIENT, PROBE, SECURE, WRONG_SECRET, REFUSES, OTHER_HOST = 4, 8, 16, 32, 64, 128
# What a message is; with BY_BYTES it arrives byte by byte.
HONEST, HONEST_CUT, HONEST_FLIPPED, OWN, RIGHT_CHECKSUM, ANY_BYTES, END_OF_FILE = range(7)
BY_BYTES = 128


class End:
    """An end, its bytes in both directions and in the order in which they went, and how it has ended."""

    def __init__(self, state: ClientHello | ServerHello, *, refuses: bool = False) -> None:
        self.state = state
        self.received, self.sent, self.both = b"", b"", b""
        self.result: Event | None = None
        self.accepted = b""  # what it had received when it had a result
        self.error: VerbenaError | None = None
        self._refuses = refuses
        if isinstance(state, ClientHello):
            self._send(state.start())

    def receive(self, data: bytes) -> None:
        """Takes bytes; none: the end of the connection."""
        self.received += data
        self.both += data
        try:
            for event in self.state.receive(data) if data else self.state.receive_eof():
                self._take(event)
            require(self.error is None, "after an error every call raises it")
        except VerbenaError as error:
            require(self.error in (None, error), "an error is final")
            if self.error is None:
                self._send(self.state.refusal_frame)
            self.error = error

    def _take(self, event: Event) -> None:
        if isinstance(event, bytes):
            self._send(event)
            return
        self.result, self.accepted = event, self.received
        if isinstance(event, HelloClient) and event.purpose == "open":
            assert isinstance(self.state, ServerHello)
            if self._refuses:
                self.state.refuse(setup_error("limit_exceeded", operation="accept"))  # welcome() raises it
            for answer in self.state.welcome(OFFER):
                self._take(answer)

    def _send(self, data: bytes) -> None:
        self.sent += data
        self.both += data


def check_end(script: Input) -> str:
    """An end raises only the errors of the hello, and the first one is final. All that it sends are frames,
    at most one before the peer has proved itself. With a secret, it accepts a peer only after exactly the
    bytes of an honest one that has the secret."""
    options = script.byte()
    victim, honest = ends(options)
    with bounded_memory(MEMORY_BYTES):
        stream = converse(script, victim, honest)
    check_errors(victim)
    sent = [kind for kind, _, _ in FrameReader().feed(victim.sent)]
    own = sent if victim.error is None else [kind for kind in sent if kind is not FrameType.REFUSAL]
    require(len(own) <= 2, "an end sends two frames, and a refusal")
    if victim.result is None and isinstance(victim.state, ServerHello):
        require(len(own) <= 1, "a server sends its challenge only before it knows the client")
    if METHODS[options % 4] is SECRET and victim.result is not None:
        require(not options & WRONG_SECRET, "a peer without the secret is not accepted")
        require(
            stream.startswith(victim.accepted), "a peer is accepted for exactly the bytes of an honest one"
        )
    end = "client" if options & CLIENT else "server"
    result = type(victim.result).__name__ if victim.result is not None else "nothing"
    return f"{end}: {result} {victim.error.code if victim.error else ''}".strip()


def ends(options: int) -> tuple[End, End]:
    """The end under test, and an honest peer for it."""
    auth = METHODS[options % 4]
    peers = OTHER_SECRET if options & WRONG_SECRET and auth.secret else auth
    secure = bool(options & SECURE) or auth.method == "tls"
    identity = "DNS:peer" if secure and not options & WRONG_SECRET else ""
    of_client, of_server = (auth, peers) if options & CLIENT else (peers, auth)
    client = ClientHello(
        ANNA,
        auth=of_client,
        wires=("shm", "iwarp"),
        purpose="probe" if options & PROBE else "open",
        secure=secure,
        peer_identity=identity,
        expect_node="bert",
        random=lambda length: b"\x11" * length,
    )
    host = NodeInfo("bert", 7, "host two", "9/2") if options & OTHER_HOST else BERT
    server = ServerHello(
        host, auth=of_server, secure=secure, peer_identity=identity, random=lambda length: b"\x22" * length
    )
    refuses = bool(options & REFUSES)
    if options & CLIENT:
        return End(client), End(server, refuses=refuses)
    return End(server, refuses=refuses), End(client)


def converse(script: Input, victim: End, honest: End) -> bytes:
    """Sends the messages of the script to the victim. Returns all that the honest peer would have sent."""
    heard = given = 0
    for _ in range(MESSAGES):
        if script.empty:
            break
        if heard < len(victim.sent) and honest.error is None:
            honest.receive(victim.sent[heard:])
            heard = len(victim.sent)
        what = script.byte()
        due = honest.sent[given:]
        data = due
        if what % 8 == HONEST_CUT:
            data = due[: script.number(2)]
        elif what % 8 == HONEST_FLIPPED and due:
            at = script.number(2) % len(due)
            data = due[:at] + bytes([due[at] ^ (1 + script.byte() % 255)]) + due[at + 1 :]
        elif what % 8 == OWN:
            data = own_frame(script)
        elif what % 8 == RIGHT_CHECKSUM:
            data = with_checksum(script, victim)
        elif what % 8 == ANY_BYTES:
            data = script.take(script.number(2))
        elif what % 8 == END_OF_FILE:
            victim.receive(b"")
            continue
        if what % 8 <= HONEST_FLIPPED:
            given += len(data)
        step = 1 if what & BY_BYTES else READ_BYTES
        for at in range(0, len(data), step):
            victim.receive(data[at : at + step])
    return honest.sent


def with_checksum(script: Input, victim: End) -> bytes:
    """The frame that the victim expects, its fields changed, with the checksum of an end without a secret."""
    if isinstance(victim.state, ServerHello):
        kind, label = FrameType.PROOF, b"verbena client"
    else:
        kind, label = (FrameType.ALIVE, FrameType.WELCOME)[script.byte() % 2], b"verbena server"
    fields = changed_fields(script, kind) | {"proof": "00" * 32}
    unsigned = framed(kind, spelt(fields, 0))
    fields["proof"] = hmac.digest(b"", label + victim.both + unsigned, "sha256").hex()
    return framed(kind, spelt(fields, 0))


def check_errors(victim: End) -> None:
    error = victim.error
    if error is None:
        return
    require(error.code in CODES, f"{error.code} is a code of the hello")
    require(error.detail.isprintable(), "an error can be shown")
    refusal = victim.state.refusal_frame
    if refusal:
        ((kind, fields, _),) = FrameReader().feed(refusal)
        require(kind is FrameType.REFUSAL and fields["code"] in REFUSALS, "a refusal says why")
        require(encode(kind, fields) == refusal, "a refusal is one frame")
