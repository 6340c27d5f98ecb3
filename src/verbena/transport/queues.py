"""The completion queues of a wire. Links share one until the next link's work would not fit: then there is
another, since a queue that overflows breaks every link on it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from verbena import verbs


class CompletionQueues:
    """`link_size` completions of one link may be there at once, at most; from any thread."""

    def __init__(
        self, first: verbs.CompletionQueue, add: Callable[[], verbs.CompletionQueue], *, link_size: int
    ) -> None:
        self._links = {first: 0}  # how many each queue has
        self._add = add
        self._per_queue = max(1, first.capacity // link_size)
        self._taken: dict[verbs.QueuePair, verbs.CompletionQueue] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._links)

    def create_qp(self, create: Callable[[verbs.CompletionQueue], verbs.QueuePair]) -> verbs.QueuePair:
        """A queue pair on the first queue that has room for its work. Say when it is closed: forget()."""
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
        """Its place is free again."""
        with self._lock:
            queue = self._taken.pop(qp, None)
            if queue is not None:
                self._links[queue] -= 1
