"""The serving side: pieces go from a file into registered memory, and by RDMA WRITE into the requester's
window. This node serves verified blobs of the requested repository, and pieces of blobs it is fetching."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from verbena.registry.digests import Digest
from verbena.registry.nodes import messages, pieces
from verbena.registry.nodes.messages import BadMessage
from verbena.registry.nodes.settings import PIECE
from verbena.registry.service import Registry
from verbena.transport import Node, RemoteRegion, Request, Session

MAX_OPEN = 64
IDLE_S = 30.0
GATHER_S = 0.1
"""How long changes by few pieces are held back, to be reported together."""
FOLLOW_S = 5.0
SENDERS = 4
REQUESTER_TTL_S = 10.0
MAX_REPORTED = 64


@dataclass(frozen=True)
class Holding:
    """What this node can serve of a blob."""

    size: int
    held: int
    whole: bool
    receiving: bool = True
    fd: int = -1
    """The descriptor of an incomplete blob; a whole one is opened by name."""
    owner: object = None
    """Keeps `fd` open."""


@dataclass
class ServedBlob:
    """A blob being served: its descriptor, and which nodes got which piece from here."""

    fd: int
    used_at: float = 0.0
    busy: int = 0
    receivers: dict[int, set[str]] = field(default_factory=dict)
    requesters: dict[str, float] = field(default_factory=dict)
    """Nodes that fetch it, with the time of their last request."""

    def fetchers(self, requester: str, now: float) -> list[str]:
        """Registers `requester`; returns up to MAX_REPORTED other nodes that fetch the blob."""
        self.requesters[requester] = now
        if len(self.requesters) > MAX_REPORTED:
            self.requesters = {node: at for node, at in self.requesters.items() if now - at < REQUESTER_TTL_S}
        others = [
            node for node, at in self.requesters.items() if node != requester and now - at < REQUESTER_TTL_S
        ]
        return random.sample(others, min(MAX_REPORTED, len(others)))

    def least(self, offered: list[int]) -> int:
        return min(offered, key=lambda index: (len(self.receivers.get(index, ())), random.random()))


class Source:
    """Handles FIND, FOLLOW, SEND and SUMS. `partial` returns what this node has of a blob being fetched."""

    def __init__(
        self,
        registry: Registry,
        node: Node,
        *,
        memory_bytes: int,
        partial: Callable[[str, Digest], Holding | None],
        changed: Callable[[Digest], asyncio.Event | None],
    ) -> None:
        self.sent_bytes = 0
        self.sent_pieces = 0
        self._registry = registry
        self._partial = partial
        self._changed = changed
        count = max(1, memory_bytes // PIECE)
        whole = node.allocate(count * PIECE)
        memory = memoryview(whole)
        whole.close()
        self._buffers: asyncio.LifoQueue[memoryview] = asyncio.LifoQueue()
        for index in range(count):
            self._buffers.put_nowait(memory[index * PIECE : (index + 1) * PIECE])
        self._workers = ThreadPoolExecutor(min(SENDERS, count), thread_name_prefix="registry-sender")
        self._given: dict[Digest, ServedBlob] = {}

    def holding(self, repository: str, digest: Digest) -> Holding | None:
        """What this node has of a repository's blob; None if nothing. Starts to recall a blob that is only in
        the bucket."""
        row = self._registry.metadata.blob(repository, digest)
        if row is None:
            return self._partial(repository, digest)
        size, _, name = row
        recall = self._registry.recall
        if recall is None or not name or self._registry.blobs.path_of(digest).exists():
            return Holding(size, pieces.mask_of(size), True)
        active = recall.start(digest, size, name)
        return Holding(size, active.held, False, True, active.incoming.fileno(), active.incoming)

    async def find(self, request: Request) -> bytes:
        """FIND: responds with size and pieces. Writes a blob of one piece at once if the requester lent a
        window."""
        fields = messages.decode(request.payload)
        repository, digest = messages.take_repository(fields), messages.take_digest(fields)
        holding = self.holding(repository, digest)
        if holding is None:
            return messages.encode(found=False)
        requester = messages.take_text(fields, "node_id", 64)
        fetchers = self._open(digest, holding).fetchers(requester, time.monotonic()) if requester else []
        sent = False
        if holding.whole and 0 < holding.size <= PIECE and fields.get("window"):
            remote = messages.take_window(fields)
            if holding.size <= remote.length:
                await self._send(request.session, digest, holding, 0, remote)
                sent = True
        return messages.encode(found=True, sent=sent, fetchers=fetchers, **_described(holding))

    async def follow(self, request: Request) -> bytes:
        """FOLLOW: responds when there is more than the requester knows of, or after FOLLOW_S."""
        fields = messages.decode(request.payload)
        repository, digest = messages.take_repository(fields), messages.take_digest(fields)
        known = messages.take_integer(fields, "known")
        was_receiving = fields.get("receiving") is True
        enough = known
        deadline = time.monotonic() + FOLLOW_S
        while True:
            holding = self.holding(repository, digest)
            if holding is None:
                return messages.encode(found=False)
            count = holding.held.bit_count()
            step = max(4, pieces.count_of(holding.size) // 16)
            if holding.whole or holding.receiving != was_receiving or count >= enough + step:
                break
            if count > known:  # only a few new pieces: wait a little longer for more
                deadline = min(deadline, time.monotonic() + GATHER_S)
            left = deadline - time.monotonic()
            event = self._changed(digest)
            if left <= 0 or event is None:
                break
            try:
                await asyncio.wait_for(event.wait(), left)
            except (asyncio.TimeoutError, TimeoutError):
                break
        return messages.encode(found=True, **_described(self.holding(repository, digest) or holding))

    async def send(self, request: Request) -> bytes:
        """SEND: writes one of the requested pieces into the window. A patient requester gets no piece that
        nodes it knows already got from here, because they can send it."""
        fields = messages.decode(request.payload)
        repository, digest = messages.take_repository(fields), messages.take_digest(fields)
        offered, remote = messages.take_pieces(fields, "pieces"), messages.take_window(fields)
        known, requester = messages.take_nodes(fields, "known"), messages.take_text(fields, "node_id", 64)
        holding = self.holding(repository, digest)
        if holding is None:
            return messages.encode(found=False)
        given = self._open(digest, holding)
        fetchers = given.fetchers(requester, time.monotonic())
        usable = pieces.indexes(offered & holding.held)
        if not usable or fields.get("piece_bytes") != PIECE:
            return messages.encode(found=True, piece=None, fetchers=fetchers, **_described(holding))
        if holding.whole and fields.get("patient") is True:
            new = [
                index for index in usable if not given.receivers.get(index, frozenset()) & known - {requester}
            ]
            if not new:
                described = _described(holding)
                return messages.encode(found=True, piece=None, elsewhere=True, fetchers=fetchers, **described)
            usable = new
        index = given.least(usable)
        receivers = given.receivers.setdefault(index, set())
        receivers.add(requester)
        try:
            await self._send(request.session, digest, holding, index, remote)
        except BaseException:
            receivers.discard(requester)
            raise
        return messages.encode(found=True, piece=index, fetchers=fetchers, **_described(holding))

    async def sums(self, request: Request) -> bytes:
        """SUMS: responds with SHA-256 of every piece of a whole blob, to find differing pieces without
        sending them."""
        fields = messages.decode(request.payload)
        repository, digest = messages.take_repository(fields), messages.take_digest(fields)
        holding = self.holding(repository, digest)
        if holding is None or not holding.whole:
            return messages.encode(found=False)
        loop = asyncio.get_running_loop()
        path = self._registry.blobs.path_of(digest)
        try:
            found = await loop.run_in_executor(self._registry.blobs.workers, piece_sums, path)
        except FileNotFoundError:
            return messages.encode(found=False)  # a cached copy of a blob in the bucket was just evicted
        return messages.encode(found=True, size=holding.size, sums=found)

    def close(self) -> None:
        self._workers.shutdown()
        for given in self._given.values():
            if given.fd >= 0:
                os.close(given.fd)
        self._given.clear()

    async def _send(
        self, session: Session, digest: Digest, holding: Holding, index: int, remote: RemoteRegion
    ) -> None:
        start, length = pieces.bounds(index, holding.size)
        if length > remote.length:
            raise BadMessage(f"a piece of {length} bytes does not fit into {remote.length}")
        given = self._open(digest, holding)
        fd = given.fd if holding.whole else holding.fd
        buffer = await self._buffers.get()
        given.busy += 1
        keep = [holding.owner]
        job = asyncio.get_running_loop().run_in_executor(
            self._workers, send_piece, session, fd, start, buffer[:length], remote
        )

        def ended(job: asyncio.Future[None]) -> None:
            # In the callback, not after the await: a cancelled handler returns while the buffer is still in
            # use.
            given.busy -= 1
            del keep[:]
            given.used_at = time.monotonic()
            self._buffers.put_nowait(buffer)
            if not job.cancelled() and job.exception() is None:
                self.sent_bytes += length
                self.sent_pieces += 1

        job.add_done_callback(ended)
        await asyncio.shield(job)

    def _open(self, digest: Digest, holding: Holding) -> ServedBlob:
        given = self._given.get(digest)
        now = time.monotonic()
        if given is not None and holding.whole and given.fd < 0:
            given.fd = os.open(self._registry.blobs.path_of(digest), os.O_RDONLY | os.O_CLOEXEC)
        elif given is None:
            self._close_idle(now)
            path = self._registry.blobs.path_of(digest)
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if holding.whole else -1
            given = self._given[digest] = ServedBlob(fd)
        given.used_at = now
        return given

    def _close_idle(self, now: float) -> None:
        idle = sorted((g.used_at, d) for d, g in self._given.items() if not g.busy)
        for used_at, digest in idle:
            if now - used_at > IDLE_S or len(self._given) >= MAX_OPEN:
                fd = self._given.pop(digest).fd
                if fd >= 0:
                    os.close(fd)


def send_piece(session: Session, fd: int, start: int, buffer: memoryview, remote: RemoteRegion) -> None:
    """Runs on a worker: reads the file into registered memory, then WRITEs it to the peer, without the
    GIL."""
    done = 0
    while done < len(buffer):
        count = os.preadv(fd, [buffer[done:]], start + done)
        if not count:
            raise EOFError(f"the file ends {len(buffer) - done} bytes before the piece does")
        done += count
    session.sync.write(remote[: len(buffer)], buffer)


def piece_sums(path: os.PathLike[str]) -> list[str]:
    buffer = bytearray(PIECE)
    view = memoryview(buffer)
    sums = []
    with open(path, "rb", buffering=0) as file:
        while length := _fill(file.fileno(), view):
            sums.append(hashlib.sha256(view[:length]).hexdigest())
    return sums


def _fill(fd: int, view: memoryview) -> int:
    done = 0
    while done < len(view) and (count := os.readv(fd, [view[done:]])):
        done += count
    return done


def _described(holding: Holding) -> dict[str, object]:
    held = "" if holding.whole else f"{holding.held:x}"
    return {"size": holding.size, "whole": holding.whole, "held": held, "receiving": holding.receiving}
