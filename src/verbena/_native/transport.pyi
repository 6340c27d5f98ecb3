"""Sessions: the native data path."""

import enum

import verbena._native

class EventKind(enum.IntEnum):
    """What an event reports."""

    FINISHED = 0
    """A call or operation of this side has ended."""

    REQUEST = 1
    """The peer calls a method."""

    CANCELLED = 2
    """The peer no longer waits for its call."""

    LINK_LOST = 3
    """The session has lost its link."""

    PEER_CLOSED = 4
    """The peer ends the session."""

class Outcome(enum.IntEnum):
    """How a call or an operation ended."""

    OK = 0

    REMOTE_FAILURE = 1

    NO_SUCH_METHOD = 2

    BUSY = 3

    DENIED = 4

    OUT_OF_RANGE = 5

    TOO_LONG = 6

    DAMAGED = 7

    FAILED_STATUS = 8
    """The work request failed: see its completion status."""

    SESSION_FAILED = 9

SPARE_RECEIVES: int = 8

MESSAGE_HEADER_BYTES: int = 40

def open_pidfd(pid: int) -> int:
    """
    os.pidfd_open(), which a Python that was built with old kernel headers lacks.
    """

class EventQueue:
    """Events from native code to an event loop."""

    def __init__(self) -> None: ...
    def fileno(self) -> int: ...
    def take(self) -> list[tuple[int, int, int, int, int, int, int, bytes]]:
        """
        (kind, session, call, token, outcome, status, method, payload) of each event.
        """

    def deliver(self, futures: object, on_request: object) -> None:
        """
        Ends futures with the reply, or with (outcome, status, detail); calls on_request(session, call, method, payload) for requests, with None for those that were cancelled.
        """

    def set_wakeups_suppressed(self, suppressed: bool) -> None:
        """
        True: the loop polls the queue, so that its descriptor need not become readable.
        """

class Link:
    """A queue pair that is becoming a session's link."""

    def send_ready(self) -> None:
        """
        Sends the peer the message that no operation of a former link can arrive here.
        """

    @property
    def has_received(self) -> bool:
        """Whether a message of the peer has arrived."""

    def drop(self) -> None:
        """Gives the link up. Close the queue pair first."""

class Port:
    """One wire of a node."""

    @property
    def links(self) -> int: ...
    def pools(self) -> tuple[int, int, int, int]:
        """
        Send buffers, send buffers in use, receive buffers, receive buffers in use.
        """

    def add_queue(self, cq: verbena._native.CompletionQueue) -> None:
        """Adds a completion queue for queue pairs of further links."""

    def prepare(self, qp: verbena._native.QueuePair) -> Link:
        """Makes a queue pair a link. Call it before the queue pair is connected."""

class Capture:
    """Records messages as pcapng blocks until they are taken."""

    def __init__(self, *, snap_bytes: int, room_bytes: int) -> None: ...

class Audience:
    """The sessions to which memory is lent: all, or those that are added."""

    def __init__(self, *, of_everybody: bool) -> None: ...
    @property
    def group(self) -> verbena._native.MemoryGroup:
        """The group of memory that is allocated for this audience."""

class Node:
    """A process's end of all its sessions."""

    def __init__(
        self,
        *,
        busy_poll_us: int,
        sleeps: bool,
        poll_batch: int,
        loop_driven: bool,
        heartbeat_s: float,
        silence_s: float,
        max_region_bytes: int,
    ) -> None: ...
    def add_port(
        self,
        pd: verbena._native.ProtectionDomain,
        cq: verbena._native.CompletionQueue,
        srq: verbena._native.SharedReceiveQueue,
        *,
        name: str,
        buffer_bytes: int,
        pool_buffers: int,
        window: int,
        huge_pages: bool,
        pin: bool,
    ) -> Port: ...
    def retire_port(self, port: Port) -> None:
        """Stops using a wire whose device was removed."""

    def add_session(
        self,
        id: int,
        peer: str,
        *,
        peer_epoch: int,
        control: EventQueue,
        requests: EventQueue | None,
        max_message_bytes: int,
        max_serving: int,
        max_waiting: int,
        fragment_bytes: int,
    ) -> Session: ...
    def remove_session(self, session: Session) -> None: ...
    def admit(self, audience: Audience, session: int) -> None:
        """Adds a session to an audience."""

    def revoke(self, audience: Audience, session: int) -> None:
        """Removes a session from an audience, and ends what was lent to it."""

    @property
    def regions(self) -> int: ...
    def sweep_registrations(self) -> None:
        """Drops cached registrations of memory that has no other owner."""

    def registrations(self) -> tuple[int, int, int, int, int]:
        """The registration cache: hits, misses, evictions, entries, bytes."""

    def set_capture(self, capture: Capture | None) -> None:
        """Records messages there; None: stops recording."""

    def take_captured(self, capture: Capture) -> tuple[bytes, int, int]:
        """
        Whole blocks since the last call; messages recorded and messages dropped, ever.
        """

    def fileno(self) -> int: ...
    def drive(self, spin_us: int, queue: EventQueue, enough: int) -> bool: ...
    def acknowledge(self) -> None: ...
    def arm_and_poll(self) -> bool: ...
    def close(self) -> None: ...

class ExposedRegion:
    """Memory that peers may use."""

    def __init__(self, node: Node, buffer: object, *, access: int, audience: Audience) -> None: ...
    @property
    def key(self) -> int:
        """0: it was revoked."""

    @property
    def addr(self) -> int: ...
    @property
    def length(self) -> int: ...
    def revoke(self) -> None:
        """Afterwards the key is refused, and no peer accesses the memory."""

class RemoteRegion:
    """
    A peer's memory, or a part of it: a value to be passed around. [a:b] is a part that must lie inside.
    `key` is unguessable and dies with the region; `epoch` is the run of the program that exposed it.
    """

    def __init__(self, addr: int, length: int, key: int, epoch: int, offset: int = 0) -> None: ...
    @property
    def key(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def offset(self) -> int: ...
    def __repr__(self) -> str: ...
    @property
    def addr(self) -> int: ...
    @property
    def length(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, part: slice) -> RemoteRegion:
        """A part of it, [start:stop], which must lie inside."""

    def to_bytes(self) -> bytes:
        """40 bytes to give to the peer by any means."""

    @staticmethod
    def from_bytes(data: bytes) -> RemoteRegion:
        """The value that to_bytes() described; else ValueError."""

    def __eq__(self, other: object | None) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type, tuple[int, ...]]: ...

def method_number(name: str) -> int: ...
def histogram_bound_ns(bucket: int) -> int:
    """The exclusive upper bound of a histogram's bucket."""

HISTOGRAM_BUCKETS: int = 160

def counter_names() -> list[str]:
    """The counters of Session.metrics(), in order."""

def histogram_names() -> list[str]:
    """
    The timed operations: Session.metrics() has their histograms as NAME_ns.
    """

METHOD_ECHO: int = 1

METHOD_ATOMIC: int = 5

def atomic_request(
    key: int, offset: int, opcode: verbena._native.Opcode, compare_add: int, swap: int
) -> bytes:
    """The payload of a call of METHOD_ATOMIC."""

class Session:
    """A conversation with one peer that outlives its links."""

    @property
    def id(self) -> int: ...
    @property
    def audience(self) -> Audience:
        """This session alone."""

    @property
    def received(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def acknowledged(self) -> int: ...
    @property
    def links(self) -> int: ...
    @property
    def serving(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def has_link(self) -> bool: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def buffer_bytes(self) -> int: ...
    def attach(
        self, link: Link, *, received: int, acknowledged: int, window: int, peer_buffer_bytes: int
    ) -> None: ...
    def lose_link(self, links: int, why: str) -> None:
        """
        Handles what has arrived, then loses the link with this number, if it is still in use.
        """

    def detach(self) -> None:
        """The link is about to be replaced or closed on purpose."""

    def release_link(self) -> None:
        """The lost link's queue pair was closed."""

    def end(self, why: str) -> None: ...
    def send_close(self) -> None: ...
    def call(self, method: int, payload: object, timeout_s: float) -> bytes: ...
    def start_call(self, method: int, payload: object, queue: EventQueue, token: int) -> int: ...
    def cancel(self, call: int) -> None: ...
    def reply(self, call: int, payload: object) -> None: ...
    def fail(self, call: int, outcome: Outcome, why: str) -> None: ...
    def metrics(self) -> dict[str, dict[str, object]]: ...
    def check(self, remote: RemoteRegion, operation: str, length: int) -> None:
        """
        Raises unless the region belongs to the running process of the peer and has this length.
        """

    def read(self, remote: RemoteRegion, timeout_s: float) -> bytes | None:
        """None: it is longer than a message buffer."""

    def read_into(self, remote: RemoteRegion, buffer: object, timeout_s: float) -> bool:
        """False: it is longer than a message buffer."""

    def write(self, remote: RemoteRegion, buffer: object, timeout_s: float) -> bool:
        """False: it is longer than a message buffer."""

    def start_read(self, remote: RemoteRegion, queue: EventQueue, token: int) -> int: ...
    def start_read_into(self, remote: RemoteRegion, buffer: object, queue: EventQueue, token: int) -> int:
        """
        The caller keeps a view of the buffer until the operation has ended or cancel() has returned.
        """

    def start_write(self, remote: RemoteRegion, buffer: object, queue: EventQueue, token: int) -> int: ...
    def transfer(
        self,
        is_write: bool,
        buffer: object,
        remote: RemoteRegion,
        *,
        timeout_s: float,
        fragment_bytes: int,
        depth: int,
        progress: object | None,
        owner: object | None,
    ) -> None:
        """
        With an owner of the memory its registration is kept for the next time.
        """

    def read_long(
        self,
        remote: RemoteRegion,
        *,
        timeout_s: float,
        fragment_bytes: int,
        depth: int,
        progress: object | None,
    ) -> bytes:
        """A region of any length."""

    def region_length(self, remote: RemoteRegion, operation: str) -> int:
        """
        The length of a region that belongs to the running process of the peer; raises for others.
        """

    @staticmethod
    def buffer_length(buffer: object, operation: str, writable: bool) -> int:
        """
        The length in bytes of a contiguous buffer; raises an error that names the argument for others.
        """

    def many(
        self,
        is_write: bool,
        remote: object,
        offsets: object,
        buffer: object,
        *,
        timeout_s: float,
        progress: object | None,
        owner: object | None,
    ) -> None:
        """Without offsets, `remote` is a sequence of regions."""
