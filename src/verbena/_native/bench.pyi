"""Measuring loops and raw baselines; all run without the GIL."""

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
    Registered memory of a conversation: one slot to send, the rest to receive.
    """

    def __init__(self, *, addr: int, lkey: int, message_bytes: int, receives: int) -> None: ...
    @property
    def size_bytes(self) -> int: ...

class OneSided:
    """One READ, WRITE or atomic, to be done over and over."""

    def __init__(
        self, *, opcode: int, addr: int, length: int, lkey: int, remote_addr: int, rkey: int
    ) -> None: ...

class RingPair:
    """
    The bare message ring between two processes, in a zeroed shared mapping.
    """

    def __init__(self, memory: object, *, payload_bytes: int, slots: int, side: int) -> None: ...
    @staticmethod
    def size_bytes(payload_bytes: int, slots: int) -> int: ...
    def ping(self, samples_ns: object, *, rounds: int = 1, patience_ns: int = 10000000000) -> int: ...
    def pong(self, rounds: int, *, patience_ns: int = 10000000000) -> int: ...
    def produce(self, messages: int, *, patience_ns: int = 10000000000) -> int: ...
    def consume(self, messages: int, *, patience_ns: int = 10000000000) -> int: ...

def copy_loop(target: object, source: object, samples_ns: object) -> None:
    """memcpy once per sample."""

class TcpPair:
    """One end of a bare TCP connection, by its descriptor."""

    def __init__(self, fd: int, *, message_bytes: int) -> None: ...
    def ping(self, samples_ns: object, *, rounds: int = 1, patience_ns: int = 10000000000) -> int: ...
    def pong(self, rounds: int, *, patience_ns: int = 10000000000) -> int: ...
    def produce(self, messages: int, *, patience_ns: int = 10000000000) -> int: ...
    def consume(self, messages: int, *, patience_ns: int = 10000000000) -> int: ...

class RespResult:
    """What became of a server's load."""

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
    One kind of request of a RESP server, on connected sockets, by their descriptors; keys are numbers of 12 digits.
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
    def run(self, samples_ns: object, *, patience_ns: int = 10000000000) -> RespResult:
        """A batch per sample: the time until all of it was answered."""

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
def timer_reading_ns() -> float:
    """What one clock reading costs; already taken off every sample."""
