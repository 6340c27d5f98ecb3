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
    """The classes of replies that have no type of Python's own."""

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
        Who owns each slot: two bytes each, an index into `addresses`; 0: this node, 65535: nobody.
        """

    def set_slot(self, slot: int, *, migrating_to: int = 0, importing: bool = False) -> None: ...
    def fence(self, slots: object, fenced: bool) -> int:
        """
        Commands on these slots wait, or need not any more. The log's position now.
        """

    def commit(self) -> bool:
        """What has happened is kept as the log promises; False: it cannot be."""

    def reserve(self, nbytes: int, *, seconds: float) -> None:
        """
        Makes room for so many bytes of values, as far as that can be done within the time. StoreError: there is no memory.
        """

    def release_held(self) -> None:
        """Those who wait try again."""

    def check_slot(self, client: int, keys: list[bytes], writes: bool) -> str | None:
        """
        May it be served here? None: yes; "": it has to wait; else the error that says where to go.
        """

    def set_lease(self, ends_ns: int) -> None:
        """
        By time.monotonic_ns(): nothing is served after that; 0: there is no lease.
        """

    def count_slot(self, slot: int) -> int: ...
    def slot_keys(self, slot: int, most: int) -> list[bytes]: ...
    def read_backlog(self, slots: Iterable[int] | None = None, from_lsn: int | None = None) -> BacklogReader:
        """
        The log from an LSN on, or from now on; `slots`: records of these, and of no key. ValueError: it is not kept from there on.
        """

    def base_copy(self, slots: Iterable[int] | None = None) -> BaseCopy:
        """
        Begins a copy of everything, or of some slots, which goes on between commands.
        """

    def set_backlog_limits(self, *, keep_bytes: int, hold_bytes: int) -> None:
        """
        How much of the log stays in memory: for those who come back, and for those who are behind.
        """

    def count_log_from(self, offset: int) -> None:
        """
        Where another node's history ended, this one goes on. Who followed is lost.
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
        The client hears of keys that it has read, or of all with these prefixes if it broadcasts.
        """

    def untrack(self, client: int) -> None: ...
    def remember(self, client: int, keys: Iterable[bytes]) -> None:
        """It has read them, if it tracks."""

    def invalidate_all(self) -> None:
        """Whoever tracks hears that all it has may be out of date."""

    def limit_tracking(self, keys: int) -> None:
        """So many are remembered at most; 0: no bound."""

    @property
    def current_client(self) -> int:
        """Whose command changes keys now; 0: nobody's."""

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
    """A client by its number. One that is gone answers with nothing."""

    @property
    def id(self) -> int: ...
    @property
    def here(self) -> bool: ...
    @property
    def address(self) -> str: ...
    @property
    def local_address(self) -> str: ...
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
        """Answers, or pushes, in the protocol that it speaks."""

    def write(self, raw: bytes) -> None:
        """The same for what is RESP already."""

    def take_out(self, start: int) -> object:
        """What has been answered from there on, taken back."""

    def run_native(self, argv: object) -> bool:
        """False: native code has no such command."""

    def watch(self, database: int, key: bytes) -> None: ...
    def resume(self) -> None:
        """The same for one that is not blocked any more, but was."""

    def unblock(self) -> None:
        """It goes on with what it has said meanwhile."""

    def close(self, *, at_once: bool = False) -> None:
        """After it has heard what there is, or at once."""

class ListCursor:
    """Elements of a list, one after another."""

    def __iter__(self) -> ListCursor: ...
    def __next__(self) -> bytes: ...

class List:
    """Elements, left to right."""

    def __init__(self, elements: Iterable[bytes] = ()) -> None: ...

    TYPE: str = "list"

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes, counted as elements come and go."""

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
        """The last one is the first then."""

    def insert(self, place: int, element: bytes) -> None: ...
    def pop(self) -> bytes: ...
    def popleft(self) -> bytes: ...
    def trim(self, start: int, stop: int) -> None:
        """Only these places stay."""

    def clear(self) -> None: ...
    def remove(self, element: bytes, limit: int) -> int:
        """
        Takes away what equals it: so many from the left, or (negative) from the right, or (0) all. How many there were.
        """

    def index(self, element: bytes) -> int:
        """The first place of what equals it, or ValueError."""

    def places(self, element: bytes, rank: int, count: int, most: int) -> list[int]:
        """
        Places of what equals it, from the rank-th on (negative: from the right): `count` of them, or (0) all, among the first `most` that are looked at, or (0) all.
        """

    def section(self, start: int, stop: int) -> list[bytes]: ...
    def free_some(self, count: int) -> None: ...

def untrack(objects: list[object]) -> None:
    """Python's collector does not look into these any more."""

def use_kinds(hash: object, list: object, set: object, sorted_set: object, wrong_type: object) -> None:
    """
    The classes of values that Python holds, and the error for the wrong one.
    """

class Database:
    """One keyspace. For the engine's thread, within a command."""

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
        Tells those who watch it, counts a collection's memory, and removes an empty one; True: there is no such key any more.
        """

    def exists(self, key: bytes) -> bool: ...
    def expires_ms(self, key: bytes) -> int: ...
    def set_expires_ms(self, key: bytes, expires_ms: int) -> None: ...
    def scan(self, cursor: int, count: int, details: bool = False) -> tuple[int, list[object]]:
        """The next cursor and keys, or (key, value, expires_ms) with `details`."""

    def random_key(self) -> object: ...
    def details(self, key: bytes) -> object:
        """(type, bytes, idle seconds, frequency), or None."""

    def clear(self) -> None: ...
    @property
    def volatile_keys(self) -> int: ...
    def __len__(self) -> int: ...

class Absent:
    """What a lookup in vain returns."""

    def __repr__(self) -> str: ...

ABSENT: Absent = ...

class SessionFrontend:
    """Lets sessions of a node into an engine. Outlived by neither."""

    def __init__(self, engine: Engine, node: verbena._native.transport.Node) -> None: ...
    def add_region(self, key: int) -> None:
        """The engine's next chunk of memory can be read by this key."""

    @property
    def requests(self) -> int: ...

class OneSidedReader:
    """Reads a store's strings from its memory, by a session."""

    def __init__(self, session: verbena._native.transport.Session, database: int = 0) -> None: ...
    def load(self, layout: bytes) -> bool:
        """What the server's kv.layout said; False: it was not that."""

    def get(self, key: bytes) -> bytes | Absent | None:
        """The string, ABSENT, or None: the server must be asked."""

    def get_many(self, keys: Iterable[str | bytes]) -> tuple[list[bytes | None], list[int]]:
        """
        The strings, None where there is no such key, and which the server must be asked for.
        """

    def get_into(self, key: bytes, buffer: object) -> int | Absent | None:
        """Its length; if it is longer than the buffer, nothing was written."""

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

REQUEST_METHOD: str = "kv"

RECEIVE_METHOD: str = "kv.receive"

CLOSE_METHOD: str = "kv.close"

LAYOUT_METHOD: str = "kv.layout"

class Stream:
    """
    A stream to a store over a session. One thread at a time uses it; others wait.
    """

    def __init__(self, session: verbena._native.transport.Session, number: int) -> None: ...
    @property
    def number(self) -> int: ...
    def execute(self, *arguments: object) -> object:
        """
        Runs one command and returns its reply; raises CommandError for an error reply.
        """

    def set(self, key: object, value: object) -> None:
        """Runs SET without options; raises CommandError for an error reply."""

    def run(self, commands: object, timeout_s: float = -1.0) -> list[object]:
        """
        Runs several commands at once. Returns their replies in order; error replies are items of the list.
        """

    def send(self, data: object, timeout_s: float = -1.0) -> bytes:
        """
        Sends bytes of RESP. Returns the output that the store has for this stream by then.
        """

    def receive(self, timeout_s: float = -1.0) -> bytes | None:
        """
        Waits until the store has output for this stream and returns it. None: there was none in time.
        """

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
    """The slot of a key, or of its {hash tag}."""

def examine(path: str, *, snapshot: bool = False) -> dict[str, Any]:
    """
    Reads every record of a segment or snapshot: what is whole, and what is wrong.
    """

class Log:
    """
    The log of an engine's effects; it is the engine's journal until closed.
    """

    def __init__(self, engine: Engine, *, directory: str, fsync: str, next_lsn: int, epoch: int) -> None: ...
    def close(self) -> None:
        """All of it goes to the disk first."""

    def flush(self) -> bool:
        """All that has happened goes to the disk; False: it could not."""

    def clear_sync_failure(self) -> None:
        """
        A snapshot of everything is safe: what could not be synced before does not matter.
        """

    def set_fsync(self, fsync: str) -> None: ...
    @property
    def write_error(self) -> str: ...
    def counters(self) -> dict[str, int]: ...

class Snapshot:
    """A copy of everything, made while commands go on."""

    def __init__(self, log: Log, *, path: str, epoch: int) -> None: ...
    def finish(self) -> bool:
        """Makes the rest of it at once; False: it failed."""

    def close(self) -> None:
        """Gives it up if it is not done."""

    @property
    def state(self) -> str:
        """scanning, writing, done or failed"""

    @property
    def error(self) -> str: ...
    def counters(self) -> dict[str, int]: ...

class Loader:
    """
    Applies snapshots and segments to an engine, which is loading meanwhile.
    """

    def __init__(self, engine: Engine, apply: object) -> None:
        """
        `apply` is called with (database, words) of what native code does not know.
        """

    @property
    def client(self) -> Client:
        """Whose commands they are; nobody hears the replies."""

    def begin(self, phase: str, path: str, whole_bytes: int, last_lsn: int) -> None:
        """`phase`: survey, snapshot or log."""

    def step(self, seconds: float) -> bool:
        """Works for so long; False: the file is through."""

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
    """The sum of what slots hold, kept up to date while it changes."""

    def __init__(self, engine: Engine, slots: object) -> None: ...
    def work(self, seconds: float, *, still: bool = False) -> bool:
        """
        Some of the work; True: nothing is left for now. `still`: nothing changes any more, so large values that changed too often are summed as well.
        """

    def finish(self, now_ms: int, left_out: Sequence[int] = ...) -> tuple[int, int, list[int]]:
        """
        The sum, how many keys, and names of large values that are not through: only their type, length and expiry are in it, as of those that the other end leaves out.
        """

    @property
    def summed(self) -> int:
        """Bytes of strings, and elements, that were read so far."""

    @property
    def pending(self) -> int: ...
    def close(self) -> None: ...

class SlotSweep:
    """Takes the keys of slots out of the store, and logs it."""

    def __init__(self, engine: Engine, slots: object) -> None: ...
    def work(self, seconds: float) -> bool:
        """True: none is left."""

    @property
    def removed(self) -> int: ...

class BacklogReader:
    """Reads the log's records as they come. One thread at a time."""

    def read(self, max_bytes: int = 1048576) -> tuple[bytes, int]:
        """
        Whole records, as many as there are and fit (one at least), and the LSN of what comes next. ValueError: they are gone, as this reader was too slow.
        """

    def lag(self) -> int:
        """How many records it is behind."""

    @property
    def lag_bytes(self) -> int: ...
    @property
    def next_lsn(self) -> int: ...
    @property
    def offset(self) -> int: ...
    def wait(self, seconds: float) -> bool:
        """Until there is something to read, at most so long; True: there is."""

    def close(self) -> None: ...

class BaseCopy:
    """
    Everything, or some slots, as records that an LogApplier applies in order.
    """

    def read(self, max_bytes: int = 1048576) -> bytes:
        """
        The next records, about so many bytes: images, and what was logged meanwhile. Empty: it is whole. Never from within a command. ValueError: it has failed.
        """

    def fill(self, into: object) -> int:
        """
        The same straight into memory, to its end, or to where a long value would have to be cut, unless the copy ends: a record may go on in the next piece. How many bytes there are.
        """

    @property
    def complete(self) -> bool: ...
    @property
    def values(self) -> int: ...
    @property
    def fraction(self) -> float: ...
    @property
    def first_lsn(self) -> int:
        """Of the first record that may be among the images."""

    def take_reader(self) -> BacklogReader:
        """What comes after a complete copy: nothing between them is missing."""

    def close(self) -> None: ...

class LogApplier:
    """Applies what a base copy and a reader of another engine gave."""

    def __init__(self, engine: Engine, run: object, *, lsn: int = 0, slots: object | None = None) -> None:
        """
        `run` is called with (client, database, words) of what native code does not know, and says whether it went well. `lsn`: what the source had up to there is here.
        """

    def apply(self, records: object, *, checked: bool = False) -> int:
        """
        Any piece of the stream; the last LSN of the source's that is here now. What has been applied is passed over. `checked`: a sum over all of it has been. LogError: the piece is damaged.
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
        """A base copy's end has been seen."""

    @property
    def idle(self) -> bool:
        """No part of a command is waited for."""

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
    """Takes the pieces of one base copy from windows of memory."""

    @property
    def taken(self) -> int:
        """Bytes that have been applied."""

    @property
    def failure(self) -> str:
        """Why nothing more is applied; empty: nothing is wrong."""

    def close(self) -> None:
        """
        Nothing is applied any more when this returns, and who waits is refused. Never from within a command: it waits for its thread.
        """

class CopySender:
    """Sends a base copy, piece by piece, into windows of a peer's memory."""

    def __init__(
        self,
        copy: BaseCopy,
        header: bytes,
        regions: Iterable[int],
        piece_bytes: int,
        *,
        observer: Callable[[str, bytes], None] | None = None,
    ) -> None:
        """
        `header`: an envelope's, with what all have in common, and the first one's sequence. `observer` is shown each envelope before it leaves, and by which wire.
        """

    def run(self, session: verbena._native.transport.Session, link: int, *, patience_s: float) -> bool:
        """
        Until all of it is acknowledged (True) or stop() is called (False). Raises if it cannot go on by this session, or, with a `link` other than 0, by this link: then it may be run again. Blocks.
        """

    def stop(self) -> None:
        """run() returns soon, from any thread."""

    @property
    def acknowledged(self) -> int:
        """Bytes that the target has applied."""

    @property
    def pieces(self) -> int: ...
    @property
    def refusal(self) -> bytes:
        """
        The answer by which the target has refused a piece; empty: none. Not while it runs.
        """

class CopyReceivers:
    """Notices that pieces of base copies have landed."""

    def __init__(self, node: verbena._native.transport.Node) -> None: ...
    def open(
        self,
        engine: Engine,
        migration: bytes,
        windows: Iterable[Buffer],
        applier: LogApplier,
        *,
        observer: Callable[[bytes, bytes], None] | None = None,
    ) -> CopyReceiver:
        """
        For the pieces of this migration, instead of any receiver before. `observer` is shown each notice and the piece that it is about, on another thread.
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

    STATUS = 8

    NOTICE = 9

    YIELD = 10

ENVELOPE_ANSWER: int = 1

ENVELOPE_LAST: int = 2

ENVELOPE_REFUSED: int = 4

ENVELOPE_HEADER_BYTES: int = 112

NOTICE_METHOD: str = "shards.landed"

def pack_envelope_header(
    kind: EnvelopeKind,
    source: bytes,
    target: bytes,
    first_shard: int,
    last_shard: int,
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

def parse_envelope(
    data: Buffer,
) -> tuple[EnvelopeKind, bytes, bytes, int, int, bytes, int, int, int, int, int, int]:
    """
    Parses exactly one envelope: its fields in the order of pack_envelope_header, without the payload. ProtocolError names the fault.
    """

REPLICA_POSITION_BYTES: int = 16

class ReplicationSender:
    """Sends a replica what it lacks, and the log as it grows."""

    def __init__(
        self,
        engine: Engine,
        session: verbena._native.transport.Session,
        *,
        ring_key: int,
        mark: int,
        ring_bytes: int,
        by_write: bool,
        place: object | None,
        max_inline: int,
        lsn: int | None,
        offset: int,
        on_receipt: object,
    ) -> None:
        """
        Behind `lsn` and `offset` if the log is kept from there on; else with a copy of everything. `place`: lent to the replica, so that it tells how far it is.
        """

    @property
    def full(self) -> bool:
        """It began with a copy of everything."""

    @property
    def lsn(self) -> int:
        """Behind which the stream begins."""

    @property
    def offset(self) -> int: ...
    def counters(self) -> dict[str, Any]: ...
    def set_eager(self, eager: bool) -> None:
        """Somebody waits for receipts."""

    def close(self) -> None:
        """Never from within a command: it waits for its thread."""

class ReplicationReceiver:
    """Takes a primary's log from a session, and applies it."""

    def __init__(
        self, engine: Engine, session: verbena._native.transport.Session, ring: object, applier: LogApplier
    ) -> None: ...
    def begin(self, *, full: bool, offset: int, place_key: int) -> None:
        """
        As the primary has answered; `full`: all that is here goes. `place_key`: of memory where it wants to see how far this is; 0: it does not.
        """

    @property
    def mark(self) -> int:
        """The primary is to add it to the positions of its pieces."""

    def counters(self) -> dict[str, Any]: ...
    def close(self) -> None:
        """Nothing is applied any more: counters() are the last."""
