"""Sessions: what moves their bytes."""

import verbena._native

class EventQueue:
    """What native code has to tell an event loop."""

    def __init__(self) -> None: ...
    def fileno(self) -> int: ...
    def take(self) -> list[tuple[int, int, int, int, int, int, int, bytes]]:
        """
        (kind, session, call, token, outcome, status, method, payload) of each event.
        """

    def deliver(self, futures: object, on_request: object) -> None:
        """
        Ends futures with the answer, or with (outcome, status, detail); calls on_request(session, call, method, payload) for requests, with None for those that were cancelled.
        """

    def set_quiet(self, quiet: bool) -> None:
        """
        While its loop looks again and again, the descriptor need not say that there is something.
        """

class Link:
    """A queue pair that is becoming a session's link."""

    def say_ready(self) -> None:
        """Tells the peer that nothing of a former link can land here any more."""

    @property
    def heard(self) -> bool:
        """The peer has said something."""

    def drop(self) -> None:
        """It did not: the queue pair was closed."""

class Port:
    """One wire of a node."""

    @property
    def links(self) -> int: ...
    def pools(self) -> tuple[int, int, int, int]:
        """
        Slots to send from and how many are in use, slots to receive into and how many are.
        """

    def add_queue(self, cq: verbena._native.CompletionQueue) -> None:
        """One more completion queue for queue pairs of its links."""

    def prepare(self, qp: verbena._native.QueuePair) -> Link:
        """Before the queue pair is connected."""

class Exposed:
    """Memory that peers may use."""

    @property
    def key(self) -> int: ...
    @property
    def addr(self) -> int: ...
    @property
    def length(self) -> int: ...
    def revoke(self) -> None:
        """Afterwards its key is refused and nobody touches the memory."""

class Capture:
    """Messages as pcapng blocks, until they are taken."""

    def __init__(self, *, snap_bytes: int, room_bytes: int) -> None: ...

class Node:
    """One program's end of all its sessions."""

    def __init__(
        self,
        *,
        busy_poll_us: int,
        sleeps: bool,
        poll_batch: int,
        by_loop: bool,
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
        slot_bytes: int,
        pool_slots: int,
        window: int,
        huge_pages: bool,
        pin: bool,
    ) -> Port: ...
    def add_session(
        self,
        id: int,
        peer: str,
        *,
        control: EventQueue,
        requests: EventQueue | None,
        max_message_bytes: int,
        max_serving: int,
        max_waiting: int,
        fragment_bytes: int,
    ) -> Session: ...
    def remove_session(self, session: Session) -> None: ...
    def expose(self, buffer: object, *, access: int, only_session: int) -> Exposed: ...
    @property
    def regions(self) -> int: ...
    def sweep_registrations(self) -> None:
        """Lets go of memory that nobody else has any more."""

    def registrations(self) -> tuple[int, int, int, int, int]:
        """
        Kept registrations: hits, misses, evictions, and how many there are of how many bytes.
        """

    def set_capture(self, capture: Capture | None) -> None:
        """Messages go there; None: nowhere."""

    def take_captured(self, capture: Capture) -> tuple[bytes, int, int]:
        """
        Whole blocks, once each; how many messages there were, and how many of them found no room.
        """

    def fileno(self) -> int: ...
    def drive(self, spin_us: int, queue: EventQueue, enough: int) -> bool: ...
    def acknowledge(self) -> None: ...
    def rest(self) -> bool: ...
    def close(self) -> None: ...

def method_number(name: str) -> int: ...
def histogram_bound_ns(bucket: int) -> int: ...

METHOD_ECHO: int = 1

METHOD_ATOMIC: int = 5

class Session:
    """A conversation with one peer that outlives its links."""

    @property
    def id(self) -> int: ...
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
    def slot_bytes(self) -> int: ...
    def attach(self, link: Link, *, received: int, told: int, window: int, peer_slot_bytes: int) -> None: ...
    def lose_link(self, links: int, why: str) -> None:
        """The link with this number is gone; a later one is not meant."""

    def detach(self) -> None:
        """The link is about to be replaced or closed on purpose."""

    def release_link(self) -> None:
        """The lost link's queue pair was closed."""

    def end(self, why: str) -> None: ...
    def say_goodbye(self) -> None: ...
    def call(self, method: int, payload: object, timeout_s: float) -> bytes: ...
    def start_call(self, method: int, payload: object, queue: EventQueue, token: int) -> int: ...
    def cancel(self, call: int) -> None: ...
    def reply(self, call: int, payload: object) -> None: ...
    def fail(self, call: int, outcome: int, why: str) -> None: ...
    def read(self, region: int, offset: int, length: int, timeout_s: float) -> bytes: ...
    def write(self, region: int, offset: int, data: object, timeout_s: float) -> None: ...
    def start_read(self, region: int, offset: int, length: int, queue: EventQueue, token: int) -> int: ...
    def start_write(self, region: int, offset: int, data: object, queue: EventQueue, token: int) -> int: ...
    def transfer(
        self,
        is_put: bool,
        buffer: object,
        region: int,
        offset: int,
        *,
        fragment_bytes: int,
        depth: int,
        progress: object | None,
        owner: object | None,
    ) -> None:
        """
        With an owner of the memory its registration is kept for the next time.
        """

    def deliver(
        self,
        buffer: object,
        region: int,
        offset: int,
        method: int,
        payload: object,
        timeout_s: float,
        link: int,
        *,
        fragment_bytes: int,
        depth: int,
        owner: object | None,
    ) -> bytes: ...
    def metrics(self) -> dict[str, dict[str, object]]: ...
