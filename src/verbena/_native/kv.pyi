"""The store's engine."""

from collections.abc import Callable, Iterable, Sequence
import enum
from typing import Any

from typing_extensions import Buffer

import verbena._native
import verbena._native.transport

def use_replies(
    error: object, pairs: object, null_array: object, verbatim: object, push: object, no_reply: object
) -> None:
    """Sets the classes of replies for which Python has no type."""

def encode(reply: object | None, version: int = 2) -> bytes:
    """A reply in RESP."""

class Engine:
    """The keyspace, its native commands, and the loop that serves clients."""

    def __init__(self, databases: int = 16, memory: object | None = None) -> None:
        """
        `memory`: a function that returns a writable buffer of the given length. None: the process's own memory.
        """

    def join_cluster(self) -> None:
        """
        Makes the engine a cluster node: from now on it serves only the slots that set_owners() gives it.
        """

    def set_owners(self, owners: bytes, addresses: Sequence[str], *, primary: int = 65535) -> None:
        """
        Sets the owner of each slot, two bytes each: an index into `addresses`; 0: this node, 65535: none.
        """

    def set_slot(self, slot: int, *, migrating_to: int = 0, importing: bool = False) -> None: ...
    def fence(self, slots: object, fenced: bool) -> int:
        """
        Makes commands on these slots wait, or lets them run again. Returns the position of the log.
        """

    def commit(self) -> bool:
        """
        Commits the changes so far as the log guarantees it. False: the commit failed.
        """

    def reserve(self, nbytes: int, *, seconds: float) -> None:
        """
        Reserves memory for `nbytes` of values, as far as possible within the time. StoreError: there is no memory.
        """

    def release_held(self) -> None:
        """Resumes the clients that wait for fenced slots."""

    def check_slot(self, client: int, keys: list[bytes], writes: bool) -> str | None:
        """
        Returns whether this node may run a command on the keys. None: yes; "": it must wait; otherwise the error reply with the redirection.
        """

    def set_lease(self, ends_ns: int) -> None:
        """
        Sets the time of time.monotonic_ns() after which this node serves no command; 0: there is no lease.
        """

    def count_slot(self, slot: int) -> int: ...
    def slot_keys(self, slot: int, most: int) -> list[bytes]: ...
    def read_backlog(self, slots: Iterable[int] | None = None, from_lsn: int | None = None) -> BacklogReader:
        """
        Returns a reader of the log from an LSN, or from now. `slots`: only records of these slots and records without a key. ValueError: the backlog does not reach back to that LSN.
        """

    def base_copy(self, slots: Iterable[int] | None = None) -> BaseCopy:
        """
        Begins a copy of all keys, or of those of some slots; it continues between commands.
        """

    def set_backlog_limits(self, *, keep_bytes: int, max_bytes: int) -> None:
        """
        Sets how many bytes of the log stay in memory: `keep_bytes` for replicas that reconnect, `max_bytes` for readers that are behind.
        """

    def restart_log_at(self, offset: int) -> None:
        """
        Continues the history of another node at this offset. Readers of the former history must start again.
        """

    def backlog_counters(self) -> dict[str, int]: ...
    def counters(self) -> dict[str, int]: ...
    def command_counters(self) -> dict[str, tuple[int, int, int, int, list[int]]]:
        """
        Returns (calls, nanoseconds, rejected, failed, calls by bucket of duration) of each native command.
        """

    def error_counters(self) -> dict[str, int]:
        """Returns the number of error replies of native commands by code."""

    def count_output_disconnection(self) -> None: ...
    def reset_counters(self) -> None: ...
    def take_slow(self) -> list[tuple[int, int, int, list[bytes]]]:
        """
        Returns and removes (client, ns, unix_ms, arguments) of slow native commands.
        """

    def track(self, client: int, prefixes: Iterable[bytes], *, broadcasts: bool, skips_own: bool) -> None:
        """
        Sends the client invalidations of keys that it has read, or in broadcast mode of all keys with these prefixes.
        """

    def untrack(self, client: int) -> None: ...
    def remember(self, client: int, keys: Iterable[bytes]) -> None:
        """Notes that the client has read these keys, if it tracks keys."""

    def invalidate_all(self) -> None:
        """Sends all tracking clients an invalidation of every key."""

    def limit_tracking(self, keys: int) -> None:
        """Sets the maximum number of tracked keys; 0: no limit."""

    @property
    def current_client(self) -> int:
        """The client whose command changes keys at present; 0: none."""

    @current_client.setter
    def current_client(self, arg: int, /) -> None: ...
    def set_handler(self, handler: object | None) -> None:
        """
        Sets the object that runs commands which are not native. None: there is none, and the former is released; only while the loop does not run.
        """

    def run(self) -> None:
        """Serves clients on the calling thread until stop()."""

    def stop(self) -> None:
        """Ends run(). Any thread may call it."""

    def post(self, function: object) -> None:
        """Calls the function on the loop's thread, between commands."""

    def listen(
        self,
        fd: int,
        *,
        certificate: str = "",
        key: str = "",
        authority: str = "",
        require_client_certificate: bool = False,
    ) -> None:
        """
        Accepts clients from a listening socket, of which it keeps a duplicate. With a certificate, clients must use TLS.
        """

    def stop_listening(self) -> None: ...
    def set_timer(self, unix_ms: int) -> None:
        """Sets when the handler's tick() is called next. 0: only periodically."""

    def busy_poll(self, ns: int) -> None:
        """Sets how long the loop polls before it sleeps."""

    def set_new_client_defaults(
        self,
        *,
        python_dispatch: bool,
        unauthenticated: bool,
        protected: bool,
        max_clients: int,
        out_limit: int = 0,
    ) -> None:
        """Sets the flags and limits of clients that connect later."""

    def database(self, number: int) -> Database: ...
    def client(self, id: int) -> Client: ...
    @property
    def client_ids(self) -> list[int]: ...
    def swap(self, one: int, other: int) -> None: ...
    def log(self, database: int, effect: object) -> None:
        """Writes an effect into the log, if there is one."""

    def make_room(self) -> bool:
        """
        Evicts keys if memory is over its limit. False: commands that need memory must be refused.
        """

    def unwatch(self, client: int) -> None: ...
    @property
    def now_ms(self) -> int: ...
    def refresh_time(self) -> None: ...
    @property
    def python_dispatch(self) -> bool: ...
    @python_dispatch.setter
    def python_dispatch(self, arg: bool, /) -> None: ...
    @property
    def notifications(self) -> bool: ...
    @notifications.setter
    def notifications(self, arg: bool, /) -> None: ...
    @property
    def active_expiry(self) -> bool: ...
    @active_expiry.setter
    def active_expiry(self, arg: bool, /) -> None: ...
    def limit_requests(self, *, argument_bytes: int, buffer_bytes: int) -> None:
        """
        Sets the longest argument of a request and the longest input that may wait for one client.
        """

    @property
    def slow_ns(self) -> int: ...
    @slow_ns.setter
    def slow_ns(self, arg: int, /) -> None: ...
    @property
    def keeps_expired(self) -> bool:
        """
        Set on a replica: expired keys are not found, but stay until the primary deletes them.
        """

    @keeps_expired.setter
    def keeps_expired(self, arg: bool, /) -> None: ...
    @property
    def loading(self) -> bool: ...
    @loading.setter
    def loading(self, arg: bool, /) -> None: ...
    @property
    def refusal(self) -> str:
        """The error reply for commands that write. Empty: writes are accepted."""

    @property
    def refuse_writes(self) -> str: ...
    @refuse_writes.setter
    def refuse_writes(self, arg: str, /) -> None: ...
    def limit_memory(self, *, bytes: int, policy: int, samples: int) -> None: ...

class Client:
    """
    A client by its number. Calls for a client that has disconnected have no effect.
    """

    @property
    def id(self) -> int: ...
    @property
    def here(self) -> bool: ...
    @property
    def address(self) -> str: ...
    @property
    def local_address(self) -> str: ...
    @property
    def session_stream(self) -> tuple[int, int]:
        """
        The session and the number of a stream. (0, 0): the client is no stream.
        """

    @property
    def fileno(self) -> int: ...
    @property
    def name(self) -> str: ...
    @name.setter
    def name(self, arg: str, /) -> None: ...
    @property
    def database(self) -> int: ...
    @database.setter
    def database(self, arg: int, /) -> None: ...
    @property
    def version(self) -> int: ...
    @version.setter
    def version(self, arg: int, /) -> None: ...
    @property
    def python_dispatch(self) -> bool: ...
    @python_dispatch.setter
    def python_dispatch(self, arg: bool, /) -> None: ...
    @property
    def unauthenticated(self) -> bool: ...
    @unauthenticated.setter
    def unauthenticated(self, arg: bool, /) -> None: ...
    @property
    def reads_all_keys(self) -> bool: ...
    @reads_all_keys.setter
    def reads_all_keys(self, arg: bool, /) -> None: ...
    @property
    def blocked(self) -> bool: ...
    @blocked.setter
    def blocked(self, arg: bool, /) -> None: ...
    @property
    def out_limit(self) -> int: ...
    @out_limit.setter
    def out_limit(self, arg: int, /) -> None: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def last_ms(self) -> int: ...
    @property
    def commands(self) -> int: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...
    @property
    def asking(self) -> bool: ...
    @asking.setter
    def asking(self, arg: bool, /) -> None: ...
    @property
    def reads_replica(self) -> bool: ...
    @reads_replica.setter
    def reads_replica(self, arg: bool, /) -> None: ...
    @property
    def no_touch(self) -> bool: ...
    @no_touch.setter
    def no_touch(self, arg: bool, /) -> None: ...
    @property
    def last_command(self) -> str: ...
    @last_command.setter
    def last_command(self, arg: str, /) -> None: ...
    @property
    def pending_in(self) -> int: ...
    @property
    def pending_out(self) -> int: ...
    def reply(self, value: object | None) -> None:
        """Sends a reply or a push message in the client's version of RESP."""

    def write(self, raw: bytes) -> None:
        """Sends bytes that are RESP already."""

    def take_out(self, start: int) -> object:
        """Removes and returns the output after this position."""

    def run_native(self, argv: object) -> bool:
        """Runs a native command. False: the command is not native."""

    def watch(self, database: int, key: bytes) -> None: ...
    def resume(self) -> None:
        """Resumes a client that was blocked."""

    def unblock(self) -> None:
        """Unblocks the client and runs the requests that arrived meanwhile."""

    def close(self, *, at_once: bool = False) -> None:
        """
        Disconnects the client after its pending output has been sent, or at once.
        """

class ListCursor:
    """Iterates over the elements of a list."""

    def __iter__(self) -> ListCursor: ...
    def __next__(self) -> bytes: ...

class List:
    """A list of bytes, from left to right."""

    def __init__(self, elements: Iterable[bytes] = ()) -> None: ...

    TYPE: str = "list"

    @property
    def memory_bytes(self) -> int:
        """
        The approximate memory use, kept up to date as elements are added and removed.
        """

    def __len__(self) -> int: ...
    def __iter__(self) -> ListCursor: ...
    def __reversed__(self) -> ListCursor: ...
    def __getitem__(self, place: int) -> bytes: ...
    def __setitem__(self, place: int, element: bytes) -> None: ...
    def __eq__(self, other: object) -> bool: ...
    def __repr__(self) -> str: ...
    def append(self, element: bytes) -> None: ...
    def appendleft(self, element: bytes) -> None: ...
    def extend(self, elements: Iterable[bytes]) -> None: ...
    def extendleft(self, elements: Iterable[bytes]) -> None:
        """
        Adds elements at the left, one after another: the last becomes the first.
        """

    def insert(self, place: int, element: bytes) -> None: ...
    def pop(self) -> bytes: ...
    def popleft(self) -> bytes: ...
    def trim(self, start: int, stop: int) -> None:
        """Only these places stay."""

    def clear(self) -> None: ...
    def remove(self, element: bytes, limit: int) -> int:
        """
        Removes elements that equal `element`: `limit` from the left, from the right if negative, all if 0. Returns their number.
        """

    def index(self, element: bytes) -> int:
        """Returns the first index of the element. ValueError: there is none."""

    def places(self, element: bytes, rank: int, count: int, most: int) -> list[int]:
        """
        Returns indexes of the element from its `rank`-th occurrence (negative: from the right): `count` of them (0: all), comparing at most `most` elements (0: all).
        """

    def section(self, start: int, stop: int) -> list[bytes]: ...
    def free_some(self, count: int) -> None: ...

def untrack(objects: list[object]) -> None:
    """Excludes these objects from Python's garbage collection."""

def use_kinds(hash: object, list: object, set: object, sorted_set: object, wrong_type: object) -> None:
    """
    Sets the classes of values that Python holds, and the error for a value of the wrong type.
    """

class Database:
    """One database. Only for the engine's thread, within a command."""

    @property
    def index(self) -> int: ...
    def get(self, key: bytes, kind: object) -> object: ...
    def obtain(self, key: bytes, kind: object) -> object: ...
    def string(self, key: bytes) -> object: ...
    def any(self, key: bytes) -> object: ...
    def type_of(self, key: bytes) -> str: ...
    def put(self, key: bytes, value: object, *, expires_ms: int = 0, keep_expiry: bool = False) -> None: ...
    def delete(self, key: bytes) -> bool: ...
    def changed(self, key: bytes) -> bool:
        """
        Notes that a key has changed: for WATCH, for the memory of a collection, and to remove an empty one. True: the key was removed.
        """

    def exists(self, key: bytes) -> bool: ...
    def expires_ms(self, key: bytes) -> int: ...
    def set_expires_ms(self, key: bytes, expires_ms: int) -> None: ...
    def scan(self, cursor: int, count: int, details: bool = False) -> tuple[int, list[object]]:
        """
        Returns the next cursor and keys, or (key, value, expires_ms) with `details`.
        """

    def random_key(self) -> object: ...
    def details(self, key: bytes) -> object:
        """
        Returns (type, bytes, idle seconds, frequency). None: the key does not exist.
        """

    def clear(self) -> None: ...
    @property
    def volatile_keys(self) -> int: ...
    def __len__(self) -> int: ...

class Absent:
    """The result of a look-up for a key that does not exist."""

    def __repr__(self) -> str: ...

ABSENT: Absent = ...

class SessionFrontend:
    """
    Serves the sessions of a node. Keep engine and node alive longer than this object.
    """

    def __init__(
        self,
        engine: Engine,
        node: verbena._native.transport.Node,
        audience: verbena._native.transport.Audience,
    ) -> None: ...
    def add_region(self, key: int) -> None:
        """Sets the region key of the engine's next chunk of memory."""

    @property
    def requests(self) -> int: ...
    def counters(self) -> dict[str, int]:
        """
        Returns the calls received, the clients, and the memory leases: now, and all that were granted.
        """

class OneSidedReader:
    """Reads strings from the memory of a store over a session."""

    def __init__(
        self, session: verbena._native.transport.Session, database: int = 0, timeout_s: float = -1.0
    ) -> None:
        """`timeout_s`: how long one call may take; negative: no limit."""

    def load(self, layout: bytes) -> bool:
        """Uses the reply to kv.layout. False: it is not valid."""

    def get(self, key: bytes) -> bytes | Absent | None:
        """Returns the string or ABSENT. None: send the command to the server."""

    def get_many(self, keys: Iterable[str | bytes]) -> tuple[list[bytes | None], list[int]]:
        """
        Returns the strings, None for keys that do not exist, and the indexes of the keys to request from the server.
        """

    def get_into(self, key: bytes, buffer: object) -> int | Absent | None:
        """
        Returns the length of the string. If it exceeds the buffer, nothing was written.
        """

    @property
    def denied(self) -> bool:
        """
        Whether the server refused a read: it has not lent its memory, or not any longer.
        """

    @property
    def reads(self) -> int: ...

def use_command_error(type: object) -> None: ...
def encode_command(arguments: object) -> bytes:
    """
    Encodes a command in RESP. Arguments are bytes, str, int, float or buffers.
    """

def decode(data: bytes, most: int = ...) -> tuple[list[object], int]:
    """
    Decodes the complete replies at the start of the data. Returns them and their length in bytes.
    """

STREAM_CLOSED: str = "the store has closed the stream"

REQUEST_METHOD: str = "kv"

RECEIVE_METHOD: str = "kv.receive"

CLOSE_METHOD: str = "kv.close"

LAYOUT_METHOD: str = "kv.layout"

def next_stream() -> int:
    """Returns the number of a new stream."""

class StreamState:
    """What a stream's own commands have made of it."""

    def __init__(self) -> None: ...
    def note(self, words: Sequence[object]) -> None: ...
    @property
    def is_fresh(self) -> bool:
        """Whether a new stream would be the same."""

class Stream:
    """
    A stream to a store over a session. One thread at a time uses it; others wait. `map_error` gets each error and returns the one to raise. After a command that failed or timed out, the next one begins a new stream with the commands of `greeting`.
    """

    def __init__(
        self,
        session: verbena._native.transport.Session,
        map_error: Callable[..., Exception],
        greeting: Sequence[Sequence[object]],
    ) -> None: ...
    @property
    def number(self) -> int: ...
    def greet(self, timeout_s: float) -> None:
        """
        Runs the commands of the greeting; raises CommandError for an error reply.
        """

    def execute(self, words: Sequence[object], timeout_s: float) -> object:
        """
        Runs one command and returns its reply; raises CommandError for an error reply.
        """

    def set(self, key: object, value: object, timeout_s: float) -> None:
        """Runs SET without options; raises CommandError for an error reply."""

    def run(self, commands: Sequence[Sequence[object]], timeout_s: float) -> list[object]:
        """
        Runs several commands at once. Returns their replies in order; error replies are items of the list.
        """

    def close(self) -> None: ...

class ReplyBuffer:
    """
    A stream to a store over a session, with the members of redis-py's SocketBuffer. `timeout`: None for no limit; an object that is no number stands for the timeout of the connection. `map_error` gets each error and returns the one to raise.
    """

    def __init__(self, session: verbena._native.transport.Session, map_error: object) -> None: ...
    @property
    def number(self) -> int: ...
    @property
    def socket_timeout(self) -> float | None: ...
    @socket_timeout.setter
    def socket_timeout(self, timeout: float | None) -> None: ...
    def send(self, data: object) -> None:
        """
        Sends packed commands: bytes, or a list of pieces. TimeoutError if it takes too long.
        """

    def recv(self, size: int, peeks: bool) -> bytes | None:
        """
        Returns up to `size` bytes; waits if there are none. None: there were none in time.
        """

    def start_send(
        self, data: object, spins: bool, queue: verbena._native.transport.EventQueue, token: int
    ) -> int:
        """
        Sends packed commands for an event loop, at most a message. Returns the number of the call, whose end the queue reports; 0: the reply has been received already. `spins` must be False while a kv.receive is open.
        """

    def feed(self, received: bytes) -> None:
        """Adds bytes that were received otherwise."""

    def try_read(self, length: int) -> bytes | None:
        """As read() of what has been received. None: it is incomplete."""

    def try_readline(self) -> bytes | None:
        """As readline() of what has been received. None: it is incomplete."""

    def unread_bytes(self) -> int: ...
    def can_read(self, timeout: object = 0) -> bool: ...
    def read(self, length: int, timeout: object = "") -> bytes: ...
    def readline(self, timeout: object = "") -> bytes: ...
    def get_pos(self) -> int: ...
    def rewind(self, pos: int) -> None: ...
    def purge(self) -> None: ...
    def close(self) -> None: ...

class ValkeyRdmaLink:
    """The buffers of a connection, created before it is connected."""

    def __init__(
        self,
        pd: verbena._native.ProtectionDomain,
        cq: verbena._native.CompletionQueue,
        srq: verbena._native.SharedReceiveQueue,
        window_bytes: int,
    ) -> None: ...

VALKEY_RDMA_RECEIVES: int = 1024

VALKEY_RDMA_SENDS: int = 512

class RdmaFrontend:
    """Accepts clients that speak Valkey over RDMA."""

    def __init__(self, engine: Engine) -> None: ...
    def rejection(self, address: str) -> str:
        """The error reply for a new client at this address; empty: accept it."""

    def admit(
        self,
        link: ValkeyRdmaLink,
        qp: verbena._native.QueuePair,
        connection: verbena._native.Connection,
        kept: object,
    ) -> None:
        """
        Adds an established connection; keeps `kept` alive as long as the connection.
        """

    @property
    def clients(self) -> int: ...
    def close(self) -> None: ...

class RdmaStream:
    """A client's connection. One thread at a time."""

    def __init__(
        self, link: ValkeyRdmaLink, qp: verbena._native.QueuePair, connection: verbena._native.Connection
    ) -> None: ...
    def send(self, data: object, timeout_s: float = -1.0) -> None:
        """Sends all of the data, or raises TimedOutError or ClosedError."""

    def receive(self, most: int, timeout_s: float = -1.0) -> bytes | None:
        """
        Returns the bytes that have arrived. b"": the peer has ended the connection; None: nothing came in time.
        """

def key_slot(key: bytes) -> int:
    """Returns the slot of a key, or of its {hash tag}."""

def examine(path: str, *, snapshot: bool = False) -> dict[str, Any]:
    """
    Reads every record of a segment or snapshot. Reports which are complete and the first fault.
    """

class Log:
    """
    The log of an engine on disk. It receives the engine's changes until it is closed.
    """

    def __init__(self, engine: Engine, *, directory: str, fsync: str, next_lsn: int, epoch: int) -> None: ...
    def close(self) -> None:
        """Writes everything to the disk, then closes the log."""

    def flush(self) -> bool:
        """Writes all changes to the disk. False: it failed."""

    def clear_sync_failure(self) -> None:
        """
        Clears an earlier fsync failure, because a complete snapshot is on the disk.
        """

    def set_fsync(self, fsync: str) -> None: ...
    @property
    def write_error(self) -> str: ...
    def counters(self) -> dict[str, int]: ...

class Snapshot:
    """A snapshot of all keys, written between commands."""

    def __init__(self, log: Log, *, path: str, epoch: int) -> None: ...
    def finish(self) -> bool:
        """Writes the rest of the snapshot at once. False: it failed."""

    def close(self) -> None:
        """Discards the snapshot if it is not complete."""

    @property
    def state(self) -> str:
        """The state: scanning, writing, done or failed."""

    @property
    def error(self) -> str: ...
    def counters(self) -> dict[str, int]: ...

class Loader:
    """
    Applies snapshots and log segments to an engine whose `loading` is set.
    """

    def __init__(self, engine: Engine, apply: object) -> None:
        """
        Calls `apply` with (database, arguments) for commands that are not native.
        """

    @property
    def client(self) -> Client:
        """
        The client as which the records are applied. Its replies are discarded.
        """

    def begin(self, phase: str, path: str, whole_bytes: int, last_lsn: int) -> None:
        """`phase`: survey, snapshot or log."""

    def step(self, seconds: float) -> bool:
        """Applies records for the given time. False: the file is finished."""

    def close(self) -> None: ...
    @property
    def fraction(self) -> float: ...
    @property
    def applied(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def first_failure(self) -> str: ...

class SlotDigest:
    """A digest of the keys of some slots, kept up to date while they change."""

    def __init__(self, engine: Engine, slots: object) -> None: ...
    def work(self, seconds: float, *, still: bool = False) -> bool:
        """
        Does some of the work. True: nothing is left for now. `still`: the slots no longer change, so that large values which changed too often are included too.
        """

    def finish(self, now_ms: int, left_out: Sequence[int] = ...) -> tuple[int, int, list[int]]:
        """
        Returns the digest, the number of keys, and the numbers of large values that are not included completely: the digest has only their type, length and expiry, as of those in `left_out`, which the other end could not include.
        """

    @property
    def summed(self) -> int:
        """The number of bytes of strings and of elements that have been read."""

    @property
    def pending(self) -> int: ...
    def close(self) -> None: ...

class SlotSweep:
    """Deletes the keys of some slots and logs the deletion."""

    def __init__(self, engine: Engine, slots: object) -> None: ...
    def work(self, seconds: float) -> bool:
        """True: none is left."""

    @property
    def removed(self) -> int: ...

class BacklogReader:
    """
    Reads the records of the log as they are appended. Used by one thread at a time.
    """

    def read(self, max_bytes: int = 1048576) -> tuple[bytes, int]:
        """
        Returns complete records, at least one and as many as fit, and the LSN after them. ValueError: the backlog no longer has them, because this reader was too slow.
        """

    def lag(self) -> int:
        """The number of records that have not been read yet."""

    @property
    def lag_bytes(self) -> int: ...
    @property
    def next_lsn(self) -> int: ...
    @property
    def offset(self) -> int: ...
    def wait(self, seconds: float) -> bool:
        """
        Waits until records can be read, at most for the given time. Returns whether there are any.
        """

    def close(self) -> None: ...

class BaseCopy:
    """
    A copy of all keys, or of those of some slots, as records that a LogApplier applies in order.
    """

    def read(self, max_bytes: int = 1048576) -> bytes:
        """
        Returns about `max_bytes` of the next records: values, and changes that were logged meanwhile. Empty: the copy is complete. Must not be called from within a command. ValueError: the copy has failed.
        """

    def fill(self, into: object) -> int:
        """
        Writes the next records into a buffer and returns their length. A record may continue in the next buffer; a long value is not cut unless it begins the buffer.
        """

    @property
    def complete(self) -> bool: ...
    @property
    def values(self) -> int: ...
    @property
    def fraction(self) -> float: ...
    @property
    def first_lsn(self) -> int:
        """
        The LSN of the first record that the copied values may already include.
        """

    def take_reader(self) -> BacklogReader:
        """
        Returns the reader of the records after a complete copy; none between them is missing.
        """

    def close(self) -> None: ...

class LogApplier:
    """
    Applies records of a base copy or of a backlog reader of another engine.
    """

    def __init__(self, engine: Engine, run: object, *, lsn: int = 0, slots: object | None = None) -> None:
        """
        Calls `run` with (client, database, arguments) for commands that are not native; it returns whether the command succeeded. `lsn`: the last record of the source that this engine has.
        """

    def apply(self, records: object, *, checked: bool = False) -> int:
        """
        Applies a piece of the stream, skips records that have been applied, and returns the last LSN that this engine has. `checked`: the caller has verified a checksum of the whole piece. LogError: the piece is damaged.
        """

    def close(self) -> None: ...
    @property
    def lsn(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def complete(self) -> bool:
        """Whether the end of a base copy has been applied."""

    @property
    def idle(self) -> bool:
        """Whether no command is incomplete."""

    @property
    def applied(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def values(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def first_failure(self) -> str: ...

class NativeCommand:
    """One command that the engine runs without Python."""

    @property
    def name(self) -> str: ...
    @property
    def arity(self) -> int:
        """Counts the name; negative: the minimum."""

    @property
    def flags(self) -> str:
        """Redis's names, separated by spaces."""

    @property
    def keys(self) -> tuple[int, int, int]:
        """First, last, step; (0, 0, 0): the command has no keys."""

    @property
    def key_flags(self) -> str:
        """What the command does with each key."""

    @property
    def group(self) -> str: ...
    @property
    def since(self) -> str: ...
    @property
    def summary(self) -> str: ...

def native_commands() -> list[NativeCommand]:
    """Returns the rows of all native commands."""

class CopyReceiver:
    """
    Applies the pieces of one base copy that a peer writes into windows of memory.
    """

    @property
    def taken(self) -> int:
        """The number of bytes that have been applied."""

    @property
    def failure(self) -> str:
        """The reason why no further piece is applied; empty: there is none."""

    def lend(self, session: int, windows: Iterable[Buffer]) -> None:
        """
        Lends windows to the session with this id, which must be the source's, in place of those lent before. They must be as many and as long as the first ones.
        """

    def withdraw(self) -> None:
        """Refuses further pieces until lend()."""

    def close(self) -> None:
        """
        Stops applying pieces and refuses those that wait. Must not be called from within a command, because it waits for the receiver's thread.
        """

class CopySender:
    """Sends a base copy, piece by piece, into windows of a peer's memory."""

    def __init__(
        self,
        copy: BaseCopy,
        header: bytes,
        windows: int,
        piece_bytes: int,
        *,
        observer: Callable[[str, bytes], None] | None = None,
    ) -> None:
        """
        `header`: the fields that all envelopes share, with the sequence number of the first. `windows`: their number. `observer` is called with the wire and each envelope before it is sent.
        """

    def run(
        self,
        session: verbena._native.transport.Session,
        link: int,
        regions: Iterable[int],
        *,
        answer_timeout_s: float,
    ) -> bool:
        """
        Sends until everything is acknowledged (True) or stop() is called (False). `regions`: the keys of the windows that the target has lent to this session. Raises if the session, or the given `link` if it is not 0, cannot be used; run() may then be called again. Blocks.
        """

    def stop(self) -> None:
        """Makes run() return soon. Any thread may call it."""

    @property
    def acknowledged(self) -> int:
        """The number of bytes that the target has applied."""

    @property
    def pieces(self) -> int: ...
    @property
    def refusal(self) -> bytes:
        """
        The answer by which the target refused a piece; empty: none. Must not be read while run() runs.
        """

class CopyReceivers:
    """Handles notices that pieces of base copies have been written."""

    def __init__(self, node: verbena._native.transport.Node) -> None: ...
    def open(
        self,
        engine: Engine,
        migration: bytes,
        source: bytes,
        applier: LogApplier,
        *,
        observer: Callable[[bytes, bytes], None] | None = None,
    ) -> CopyReceiver:
        """
        Returns the receiver of this migration's pieces from the member `source`; it replaces an earlier one and has no windows yet. `observer` is called with each notice and its piece, on another thread.
        """

    @property
    def refused(self) -> int:
        """
        The number of notices that were refused because of the session that sent them.
        """

class EnvelopeKind(enum.IntEnum):
    """The type of a message. docs/reference/wire-formats.md explains each."""

    OFFER = 1

    SEGMENT = 2

    TAIL = 3

    DIGEST = 4

    OWN = 5

    ABORT = 6

    GOSSIP = 7

    WINDOWS = 8

    NOTICE = 9

    YIELD = 10

ENVELOPE_ANSWER: int = 1

ENVELOPE_LAST: int = 2

ENVELOPE_REFUSED: int = 4

ENVELOPE_HEADER_BYTES: int = 112

NOTICE_METHOD: str = "shards.notice"

def pack_envelope_header(
    kind: EnvelopeKind,
    source: bytes,
    target: bytes,
    first_slot: int,
    last_slot: int,
    migration: bytes,
    payload: Buffer,
    flags: int,
    segment: int,
    offset: int,
    total: int,
    sequence: int,
    boot_epoch: int,
) -> bytes:
    """
    The header of an envelope with this payload, with the checksum over both.
    """

def answer_envelope(message: Buffer, payload: Buffer, refused: bool) -> bytes:
    """
    The answer to a message, of which the header is enough. Refused: the payload is the reason.
    """

def parse_envelope(
    data: Buffer,
) -> tuple[EnvelopeKind, bytes, bytes, int, int, bytes, int, int, int, int, int, int]:
    """
    Parses exactly one envelope: its fields in the order of pack_envelope_header, without the payload. ProtocolError names the fault.
    """

REPLICA_POSITION_BYTES: int = 16

class ReplicationSender:
    """Sends a replica the data that it lacks, then the log as it grows."""

    def __init__(
        self,
        engine: Engine,
        session: verbena._native.transport.Session,
        *,
        ring_key: int,
        ring_tag: int,
        ring_bytes: int,
        by_write: bool,
        position: object | None,
        max_inline: int,
        lsn: int | None,
        offset: int,
        on_receipt: object,
    ) -> None:
        """
        Continues after `lsn` and `offset` if the backlog reaches back that far; otherwise begins with a base copy. `position`: memory into which the replica writes its position.
        """

    @property
    def full(self) -> bool:
        """Whether it began with a base copy."""

    @property
    def lsn(self) -> int:
        """The LSN after which the stream begins."""

    @property
    def offset(self) -> int: ...
    def counters(self) -> dict[str, Any]: ...
    def set_eager(self, eager: bool) -> None:
        """
        Requests receipts without delay, because a client waits for them (WAIT).
        """

    def stop(self, why: str) -> None:
        """
        Ends the stream at once, without waiting for the thread: close() must follow.
        """

    def close(self) -> None:
        """
        Ends the thread. Must not be called from within a command, because it waits for the thread.
        """

class ReplicationReceiver:
    """Receives a primary's log over a session and applies it."""

    def __init__(
        self, engine: Engine, session: verbena._native.transport.Session, ring: object, applier: LogApplier
    ) -> None: ...
    def begin(self, *, full: bool, offset: int, position_key: int) -> None:
        """
        Starts with the values of the primary's answer. `full`: all present keys are deleted first. `position_key`: the region into which the position is written; 0: none.
        """

    @property
    def ring_tag(self) -> int:
        """The number that the primary adds to the positions of its pieces."""

    def counters(self) -> dict[str, Any]: ...
    def close(self) -> None:
        """Stops applying; counters() then keep their last values."""
