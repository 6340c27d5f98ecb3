"""The blocking form of a session. Its operations poll without the GIL, then sleep; Ctrl-C interrupts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from verbena import _native
from verbena._closing import Closing
from verbena.errors import DeniedError, VerbenaError
from verbena.transport import lifetime
from verbena.transport.codecs.calls import decoded_reply, encoded_call
from verbena.transport.handshake.principal import Principal
from verbena.transport.memory.owners import owner_of
from verbena.transport.memory.region import RemoteRegion
from verbena.transport.named import messages
from verbena.transport.named.client import Pull
from verbena.transport.named.messages import NameRequest
from verbena.transport.operations import documented
from verbena.transport.requests import FOREVER, Offsets, Progress, atomic_payload, method_number
from verbena.verbs import Opcode

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from verbena.transport import session as asyncio_form
    from verbena.transport.failover.policy import LinkState
    from verbena.transport.node import Node


@documented
class Session(Closing):
    """Created by verbena.sync.connect(); `session.sync` is the blocking form of an asyncio session. Any
    thread may use it, several at a time. A context manager."""

    def __init__(self, session: asyncio_form.Session) -> None:
        self._session = session
        self._native = session._native
        self._call_native = session._native.call

    # Operations: documented in operations.py

    def call(self, method: str, payload: Any = None, *, timeout_s: float | None = None) -> Any:
        codec = self._session._codec
        if codec is not None:
            reply = self._call(*encoded_call(codec, method, payload), timeout_s)
            return decoded_reply(codec, method, reply, self.peer)
        return self._call(method_number(method), b"" if payload is None else payload, timeout_s)

    def read(self, remote: RemoteRegion, *, timeout_s: float | None = None) -> bytes:
        try:
            found = self._native.read(remote, FOREVER if timeout_s is None else timeout_s)
        except VerbenaError as error:
            raise self._map(error) from None
        return self._read_long(remote, timeout_s) if found is None else found

    def read_into(
        self,
        remote: RemoteRegion,
        buffer: Buffer,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._transfer(False, remote, buffer, timeout_s, progress)

    def write(
        self,
        remote: RemoteRegion,
        buffer: Buffer,
        *,
        timeout_s: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._transfer(True, remote, buffer, timeout_s, progress)

    def read_many(
        self,
        remote: RemoteRegion | Sequence[RemoteRegion],
        offsets: Offsets | None = None,
        *,
        into: Buffer,
        timeout_s: float | None = None,
    ) -> None:
        self._many(False, remote, offsets, into, timeout_s)

    def write_many(
        self,
        remote: RemoteRegion | Sequence[RemoteRegion],
        offsets: Offsets | None = None,
        *,
        buffer: Buffer,
        timeout_s: float | None = None,
    ) -> None:
        self._many(True, remote, offsets, buffer, timeout_s)

    def compare_swap(
        self, remote: RemoteRegion, expected: int, desired: int, *, timeout_s: float | None = None
    ) -> int:
        return self._atomic(remote, Opcode.COMPARE_SWAP, expected, desired, timeout_s)

    def fetch_add(self, remote: RemoteRegion, delta: int, *, timeout_s: float | None = None) -> int:
        return self._atomic(remote, Opcode.FETCH_ADD, delta, 0, timeout_s)

    def region(self, name: str, *, timeout_s: float | None = None) -> RemoteRegion:
        reply = self._call_own(messages.REGION, NameRequest(name), timeout_s)
        return messages.parse_region(reply, self.peer)

    def regions(self, *, timeout_s: float | None = None) -> list[str]:
        return messages.parse_names(self._call_own(messages.REGIONS, None, timeout_s), self.peer)

    def pull(self, source: str | RemoteRegion, *, into: Any = None, timeout_s: float | None = None) -> Any:
        pull = Pull(source, into, timeout_s)
        while True:
            if pull.remote is None:
                pull.remote = self.region(pull.name, timeout_s=pull.timeout_s)
            remote, target = pull.remote, pull.target(self._native)
            try:
                if target is None:
                    return self.read(remote, timeout_s=pull.timeout_s)
                self.read_into(remote, target, timeout_s=pull.timeout_s)
            except DeniedError as error:
                if not pull.tries_again(error):
                    raise
            else:
                return target

    def watch(self, name: str, *, timeout_s: float | None = None) -> Iterator[int]:
        version = 0
        while True:
            reply = self._call_own(messages.WATCH, NameRequest(name, version), timeout_s)
            version = messages.parse_version(reply, self.peer)
            yield version

    # State

    @property
    def node(self) -> Node:
        return self._session.node

    @property
    def id(self) -> int:
        return self._session.id

    @property
    def peer(self) -> str:
        return self._session.peer

    @property
    def peer_name(self) -> str:
        return self._session.peer_name

    @property
    def peer_identity(self) -> str:
        return self._session.peer_identity

    @property
    def principal(self) -> Principal:
        """What the peer has proved in the handshake."""
        return self._session.principal

    @property
    def state(self) -> LinkState:
        return self._session.state

    @property
    def wire(self) -> str | None:
        return self._session.wire

    @property
    def reason(self) -> str:
        """Why this wire is used, or why there is none."""
        return self._session.reason

    @property
    def max_message_bytes(self) -> int:
        return self._session.max_message_bytes

    @property
    def links(self) -> int:
        """The number of links so far. If it changed, unacknowledged one-sided writes may be lost."""
        return self._session.links

    @property
    def closed(self) -> bool:
        return self._session.closed

    @property
    def sync(self) -> Session:
        """This session, so that code which takes either form may use `session.sync`."""
        return self

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Counters and latency histograms, by wire."""
        return self._session.metrics()

    def binding(self, label: bytes) -> bytes:
        """As binding() of the asyncio form."""
        return self._session.binding(label)

    def wait_for(self, state: LinkState, timeout_s: float | None = None) -> bool:
        """Blocks until the session is in `state`; False after `timeout_s`."""
        self._check_process("wait_for")
        session = self._session
        with session._changed:
            return session._changed.wait_for(lambda: session.state is state, timeout_s)

    def break_link(self, *, rest_s: float = 0.0) -> None:
        """Breaks the current link to exercise failover. The wire is not used again for `rest_s`."""
        self._session.break_link(rest_s=rest_s)

    def close(self) -> None:
        """Closes the session at both ends: waits briefly for the peer's acknowledgement. Idempotent."""
        if not self._inherited:
            lifetime.close_blocking(self._session._close)

    def __repr__(self) -> str:
        return repr(self._session)

    # Inside

    def _call_own(self, method: str, request: NameRequest | None, timeout_s: float | None) -> bytes:
        payload = b"" if request is None else request.encode(method)
        return self._call(method_number(method), payload, timeout_s)

    def _atomic(
        self, remote: RemoteRegion, opcode: Opcode, compare_add: int, swap: int, timeout_s: float | None
    ) -> int:
        payload = atomic_payload(self._native, remote, opcode, compare_add, swap)
        return int.from_bytes(self._call(_native.transport.METHOD_ATOMIC, payload, timeout_s), "little")

    def _call(self, method: int, payload: Buffer, timeout_s: float | None) -> bytes:
        try:
            return self._call_native(method, payload, FOREVER if timeout_s is None else timeout_s)
        except VerbenaError as error:
            raise self._map(error) from None

    def _read_long(
        self, remote: RemoteRegion, timeout_s: float | None, progress: Progress | None = None
    ) -> bytes:
        settings = self._session.node.settings
        try:
            return self._native.read_long(
                remote,
                timeout_s=FOREVER if timeout_s is None else timeout_s,
                fragment_bytes=min(settings.max_send_size, settings.fragment_bytes),
                depth=settings.num_memory_regions,
                progress=progress,
            )
        except VerbenaError as error:
            raise self._map(error) from None

    def _transfer(
        self,
        is_write: bool,
        remote: RemoteRegion,
        buffer: Buffer,
        timeout_s: float | None,
        progress: Progress | None,
    ) -> None:
        settings = self._session.node.settings
        limit = FOREVER if timeout_s is None else timeout_s
        short = self._native.write if is_write else self._native.read_into
        try:
            if not short(remote, buffer, limit):
                self._native.transfer(
                    is_write,
                    buffer,
                    remote,
                    timeout_s=limit,
                    fragment_bytes=min(settings.max_send_size, settings.fragment_bytes),
                    depth=settings.num_memory_regions,
                    progress=progress,
                    owner=self._keeper_of(buffer),
                )
        except VerbenaError as error:
            raise self._map(error) from None
        if progress is not None:
            progress(self._native.buffer_length(buffer, "write", False))

    def _many(
        self,
        is_write: bool,
        remote: RemoteRegion | Sequence[RemoteRegion],
        offsets: Offsets | None,
        buffer: Buffer,
        timeout_s: float | None,
        progress: Progress | None = None,
    ) -> None:
        try:
            self._native.many(
                is_write,
                remote,
                offsets,
                buffer,
                timeout_s=FOREVER if timeout_s is None else timeout_s,
                progress=progress,
                owner=self._keeper_of(buffer),
            )
        except VerbenaError as error:
            raise self._map(error) from None

    def _keeper_of(self, buffer: object) -> object | None:
        """The owner of the memory if the wire keeps registrations, because they cost a system call."""
        session = self._session
        return owner_of(buffer) if session.wire in session.node.wires.keeping else None

    def _map(self, error: VerbenaError) -> VerbenaError:
        """Replaces the native error of a failed session by the session's own error."""
        return self._session._session_error(error.operation) if error.code == "session_failed" else error
