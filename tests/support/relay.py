"""A datagram relay between a client and a server that loses, delays, reorders, duplicates and corrupts
datagrams, with a seeded random generator. It can change its address, as a NAT does."""

from __future__ import annotations

import heapq
import math
import random
import select
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True)
class Path:
    """What happens to a datagram: probabilities, and seconds."""

    loss: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0  # added to the delay: datagrams overtake each other
    duplicated: float = 0.0
    corrupted: float = 0.0


class Relay:
    """Relays datagrams between the first sender to `port` and the port `to` on this host."""

    def __init__(self, to: int, path: Path | None = None, *, seed: int = 1) -> None:
        self.counts: Counter[str] = Counter()
        self._target = ("127.0.0.1", to)
        self._path = path or Path()
        self._random = random.Random(seed)
        self._front, self._back = self._socket(), self._socket()
        self._client: tuple[str, int] | None = None
        self._waiting: list[tuple[float, int, bool, bytes]] = []
        self._bell, self._rope = socket.socketpair()
        self._wants_move = threading.Event()
        self._moved = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="relay")
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._front.getsockname()[1])

    def move(self) -> None:
        """From now on the server sees another source port, and datagrams that it sends to the old one are
        lost."""
        self._wants_move.set()
        self._rope.send(b"!")
        assert self._moved.wait(10)
        self._moved.clear()

    def close(self) -> None:
        self._is_over = True
        self._rope.send(b"!")
        self._thread.join()
        for each in (self._front, self._back, self._bell, self._rope):
            each.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _socket() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.bind(("127.0.0.1", 0))
        made.setblocking(False)
        return made

    def _run(self) -> None:
        while not self._is_over:
            timeout = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            readable = self._readable(timeout)
            if self._bell in readable:
                self._bell.recv(64)
            if self._wants_move.is_set():
                self._back.close()
                self._back = self._socket()
                self._wants_move.clear()
                self._moved.set()
                continue
            for from_socket in readable:
                if from_socket is not self._bell:
                    self._take(from_socket)
            self._deliver()

    def _readable(self, timeout_s: float | None) -> list[socket.socket]:
        """Uses poll(), because descriptors may be above select()'s limit."""
        sockets = {each.fileno(): each for each in (self._front, self._back, self._bell)}
        poll = select.poll()
        for descriptor in sockets:
            poll.register(descriptor, select.POLLIN)
        ready = poll.poll(None if timeout_s is None else math.ceil(timeout_s * 1000))
        return [sockets[descriptor] for descriptor, _ in ready]

    def _take(self, from_socket: socket.socket) -> None:
        is_from_client = from_socket is self._front
        for _ in range(64):
            try:
                content, sender = from_socket.recvfrom(65536)
            except (BlockingIOError, ConnectionError):
                return
            if is_from_client:
                self._client = sender
            self._meet(is_from_client, content)

    def _meet(self, is_from_client: bool, content: bytes) -> None:
        path, chance = self._path, self._random.random
        if chance() < path.loss:
            self.counts["lost"] += 1
            return
        if chance() < path.corrupted:
            self.counts["corrupted"] += 1
            at = self._random.randrange(len(content))
            content = (
                content[:at] + bytes([content[at] ^ (1 << self._random.randrange(8))]) + content[at + 1 :]
            )
        copies = 1
        if chance() < path.duplicated:
            self.counts["duplicated"] += 1
            copies = 2
        for _ in range(copies):
            self.counts["passed"] += 1
            due = time.monotonic() + path.delay_s + chance() * path.jitter_s
            heapq.heappush(self._waiting, (due, self.counts["passed"], is_from_client, content))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, number, is_from_client, content = heapq.heappop(self._waiting)
            if number < self.counts["last"]:
                self.counts["reordered"] += 1
            self.counts["last"] = max(self.counts["last"], number)
            try:
                if is_from_client:
                    self._back.sendto(content, self._target)
                elif self._client:
                    self._front.sendto(content, self._client)
            except OSError:
                self.counts["lost"] += 1
