"""Measuring loops and baselines; all run without the GIL."""

from collections.abc import Sequence

import verbena._native

class LoopResult:
    """How a measuring loop ended."""

    @property
    def done(self) -> int: ...
    @property
    def elapsed_ns(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def post_error(self) -> int: ...
    @property
    def timed_out(self) -> bool: ...
    @property
    def corrupted(self) -> bool: ...
    @property
    def finished(self) -> bool: ...

class Mailbox:
    """
    Registered memory for messages: one slot to send from, the rest to receive into.
    """

    def __init__(self, *, addr: int, lkey: int, message_bytes: int, receives: int) -> None: ...
    @property
    def size_bytes(self) -> int: ...

class OneSided:
    """One READ, WRITE or atomic operation, which a loop repeats."""

    def __init__(
        self, *, opcode: int, addr: int, length: int, lkey: int, remote_addr: int, rkey: int
    ) -> None: ...

class RingPair:
    """A bare message ring between two processes, in a zeroed shared mapping."""

    def __init__(self, memory: object, *, payload_bytes: int, slots: int, side: int) -> None: ...
    @staticmethod
    def size_bytes(payload_bytes: int, slots: int) -> int: ...
    def ping(self, samples_ns: object, *, rounds: int = 1, timeout_ns: int = 10000000000) -> int: ...
    def pong(self, rounds: int, *, timeout_ns: int = 10000000000) -> int: ...
    def produce(self, messages: int, *, timeout_ns: int = 10000000000) -> int: ...
    def consume(self, messages: int, *, timeout_ns: int = 10000000000) -> int: ...

def copy_loop(target: object, source: object, samples_ns: object) -> None:
    """memcpy once per sample."""

class TcpPair:
    """One end of a bare TCP connection, given by its file descriptor."""

    def __init__(self, fd: int, *, message_bytes: int) -> None: ...
    def ping(self, samples_ns: object, *, rounds: int = 1, timeout_ns: int = 10000000000) -> int: ...
    def pong(self, rounds: int, *, timeout_ns: int = 10000000000) -> int: ...
    def produce(self, messages: int, *, timeout_ns: int = 10000000000) -> int: ...
    def consume(self, messages: int, *, timeout_ns: int = 10000000000) -> int: ...

class RespResult:
    """The result of a load."""

    @property
    def done(self) -> int: ...
    @property
    def errors(self) -> int: ...
    @property
    def reply_bytes(self) -> int: ...
    @property
    def elapsed_ns(self) -> int: ...
    @property
    def finished(self) -> bool: ...

class RespLoad:
    """
    Sends one kind of request to a RESP server, on connected sockets (file descriptors); keys are numbers of 12 digits.
    """

    def __init__(
        self,
        fds: Sequence[int],
        request: bytes,
        *,
        keys_at: Sequence[int],
        keys: int,
        in_order: bool = False,
        depth: int = 1,
        seed: int = 1,
    ) -> None: ...
    def run(self, samples_ns: object, *, timeout_ns: int = 10000000000) -> RespResult:
        """Runs one batch per sample: the time until all its replies have come."""

def post_receives(
    qp: verbena._native.QueuePairCore, cq: verbena._native.CompletionQueueCore, mailbox: Mailbox
) -> LoopResult: ...
def ping(
    qp: verbena._native.QueuePairCore,
    cq: verbena._native.CompletionQueueCore,
    mailbox: Mailbox,
    samples_ns: object,
    *,
    rounds: int = 1,
) -> LoopResult: ...
def pong(
    qp: verbena._native.QueuePairCore, cq: verbena._native.CompletionQueueCore, mailbox: Mailbox, rounds: int
) -> LoopResult: ...
def send_rate(
    qp: verbena._native.QueuePairCore,
    cq: verbena._native.CompletionQueueCore,
    mailbox: Mailbox,
    messages: int,
    *,
    depth: int,
) -> LoopResult: ...
def receive_rate(
    qp: verbena._native.QueuePairCore,
    cq: verbena._native.CompletionQueueCore,
    mailbox: Mailbox,
    messages: int,
) -> LoopResult: ...
def one_sided_latency(
    qp: verbena._native.QueuePairCore,
    cq: verbena._native.CompletionQueueCore,
    work: OneSided,
    samples_ns: object,
    *,
    rounds: int = 1,
) -> LoopResult: ...
def one_sided_rate(
    qp: verbena._native.QueuePairCore,
    cq: verbena._native.CompletionQueueCore,
    work: OneSided,
    operations: int,
    *,
    depth: int,
    sleeps: bool = False,
) -> LoopResult: ...
