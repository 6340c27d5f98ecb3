"""The completion queues of a wire. Each queue serves as many links as fit into its capacity; then another
queue is created. A queue that overflows would break every link on it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from verbena import verbs


class CompletionQueues:
    """`link_size` is the maximum number of pending completions of one link. Thread-safe."""

    def __init__(
        self, first: verbs.CompletionQueue, add: Callable[[], verbs.CompletionQueue], *, link_size: int
    ) -> None:
        self._links = {first: 0}  # number of links per queue
        self._add = add
        self._per_queue = max(1, first.capacity // link_size)
        self._taken: dict[verbs.QueuePair, verbs.CompletionQueue] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._links)

    def create_qp(self, create: Callable[[verbs.CompletionQueue], verbs.QueuePair]) -> verbs.QueuePair:
        """Creates a queue pair on the first queue with room. Call forget() after closing it."""
        with self._lock:
            queue = next((queue for queue, links in self._links.items() if links < self._per_queue), None)
            if queue is None:
                queue = self._add()
                self._links[queue] = 0
            qp = create(queue)
            self._taken[qp] = queue
            self._links[queue] += 1
            return qp

    def forget(self, qp: verbs.QueuePair) -> None:
        """Releases the capacity that a closed queue pair used."""
        with self._lock:
            queue = self._taken.pop(qp, None)
            if queue is not None:
                self._links[queue] -= 1
