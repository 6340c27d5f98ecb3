"""One end of a measured connection: device, queues, a mailbox for messages, a window for one-sided access."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from verbena import errors, verbs
from verbena._native import bench

Mode = Literal["native", "python", "async"]
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Shape:
    """The parameters that both ends of a link must share."""

    provider: str
    mode: Mode = "native"
    message_bytes: int = 64
    window_bytes: int = 64
    receives: int = 64
    max_send: int = 128
    settings: dict[str, str] = field(
        default_factory=dict
    )  # environment variables, set while the device is opened

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Link:
    """Opens the resources of one end; close() releases them. Connect it, then call ready() before any
    SEND."""

    def __init__(self, shape: Shape, *, context: verbs.Context | None = None) -> None:
        self.shape = shape
        with contextlib.ExitStack() as stack:
            with _environment(shape.settings):
                self.context = context or stack.enter_context(verbs.open_device(shape.provider))
            self.pd = stack.enter_context(self.context.alloc_pd())
            depth = shape.max_send + shape.receives
            self.cq = stack.enter_context(self.context.create_cq(depth=depth))
            # Native loops poll one queue for both directions; Python uses a separate one to identify
            # receives.
            own = shape.mode != "native"
            self.recv_cq = stack.enter_context(self.context.create_cq(depth=depth)) if own else self.cq
            self.qp = stack.enter_context(
                self.pd.create_qp(
                    send_cq=self.cq,
                    recv_cq=self.recv_cq,
                    max_send=shape.max_send,
                    max_recv=shape.receives,
                )
            )
            stride = -(-shape.message_bytes // 64) * 64
            self.mail = stack.enter_context(self.pd.allocate(stride * (shape.receives + 1)))
            self.window = stack.enter_context(self.pd.allocate(shape.window_bytes))
            self.mailbox = bench.Mailbox(
                addr=self.mail.addr,
                lkey=self.mail.lkey,
                message_bytes=shape.message_bytes,
                receives=shape.receives,
            )
            self._stride = stride
            self._stack = stack.pop_all()

    def ready(self) -> None:
        """Posts all receives. The peer may send once both ends have done so."""
        if self.shape.mode == "native":
            check(bench.post_receives(*self.native, self.mailbox), "post receives")
            return
        for slot in range(1, self.shape.receives + 1):
            self.repost(slot)

    def slot(self, index: int) -> verbs.MemorySlice:
        """Returns a slot of the mailbox: 0 is for sending, the others are for receiving."""
        start = index * self._stride
        return self.mail[start : start + self.shape.message_bytes]

    def repost(self, slot: int) -> None:
        self.qp.post_recv(verbs.RecvWorkRequest(self.slot(slot), wr_id=slot))

    @property
    def native(self) -> tuple[Any, Any]:
        """The queue pair and completion queue as the native loops take them."""
        return self.qp._native.core, self.cq._native.core

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def view(region: Any) -> memoryview:
    """The bytes of a memory region."""
    return memoryview(region).cast("B")


def check(result: bench.LoopResult, operation: str) -> bench.LoopResult:
    """Returns the result of a native loop that finished; raises VerbenaError for one that failed."""
    if result.finished:
        return result
    if result.status:
        raise errors.completion_error(result.status, operation=operation)
    if result.timed_out:
        raise errors.setup_error(
            "connect_timeout",
            operation=operation,
            detail=f"no response from the peer after {result.done} rounds",
        )
    if result.corrupted:
        raise errors.setup_error(
            "bad_message", operation=operation, detail="a message arrived with wrong bytes"
        )
    raise errors.setup_error(
        "invalid_argument", operation=operation, detail=f"post error {result.post_error}"
    )
