"""Misuse of verbs objects, and features that a provider lacks."""

from __future__ import annotations

from verbena.errors.classes import (
    BrokenLinkError,
    ClosedError,
    DeniedError,
    QueueFullError,
    RegistrationError,
    StateError,
    UnsupportedError,
)
from verbena.errors.explanation import Explanation

ROWS = (
    Explanation(
        "closed",
        ClosedError,
        what="the object has been closed",
        causes=(
            "close() was called, or a `with` block ended, while the object was still in use",
            "the object's parent was closed, which closes all its children",
        ),
        remedy="open a new object, and keep it and its parents open while they are in use",
    ),
    Explanation(
        "forked",
        ClosedError,
        what="the object was opened before this process forked, and stays with the parent process",
        causes=(
            "a library forked the program: multiprocessing with the start method `fork`, gunicorn with"
            " `--preload`, Celery's prefork pool, or a DataLoader with workers",
            "the program called os.fork()",
        ),
        remedy="open it in the child, after the fork (docs/guide/processes.md), or use the start method"
        " `spawn`",
    ),
    Explanation(
        "bad_transition",
        StateError,
        what="the queue pair cannot do that in its current state",
        causes=(
            "the program skipped a state: the order is RESET, INIT, RTR, RTS",
            "the queue pair failed and is in ERR: the only next state is RESET",
            "the program posted a send before RTS, or a receive before INIT",
        ),
        remedy="change the states in order; after an error reset the queue pair or create a new one",
    ),
    Explanation(
        "missing_attribute",
        StateError,
        what="an attribute that this state change needs is missing",
        causes=(
            "the state change was requested without all attributes that verbs requires",
            "the program passed an attribute that this state change does not use instead of the required one",
        ),
        remedy="pass the required attributes: for INIT the port and access flags; for RTR the peer's address,"
        " queue pair number, packet sequence number and path MTU; for RTS the timeout, the retries and the"
        " packet sequence number",
    ),
    Explanation(
        "queue_full",
        QueueFullError,
        what="the queue is full",
        causes=(
            "the program posted more requests than have completed",
            "the program does not poll completions, which free the slots of the queue",
            "all requests were unsignalled: only the next signalled completion frees their slots",
        ),
        remedy="poll completions and post again; signal at least one request per queue length, or create the"
        " queue with a larger depth",
    ),
    Explanation(
        "cq_overrun",
        BrokenLinkError,
        what="the completion queue overflowed, and completions were lost",
        causes=(
            "the completion queue is smaller than the sum of the queues that complete into it",
            "the program polls completions too slowly",
        ),
        remedy="set cq_size to at least the sum of all its send and receive queues, then create the"
        " completion queue and its queue pairs again",
        checks=("add the depths of all queues that complete into it: a sum above cq_size can overflow",),
    ),
    Explanation(
        "foreign_pd",
        DeniedError,
        what="the objects belong to different protection domains",
        causes=(
            "the memory region and the queue pair were created in different domains",
            "the program mixed objects of two devices or contexts",
        ),
        remedy="register the memory in the queue pair's domain; one buffer can be registered in several",
    ),
    Explanation(
        "buffer_readonly",
        RegistrationError,
        what="the buffer is read-only, and the requested access writes to it",
        causes=(
            "the buffer is a bytes object, a read-only array or a read-only mapping",
            "LOCAL_WRITE, REMOTE_WRITE or REMOTE_ATOMIC was requested where REMOTE_READ is enough",
        ),
        remedy="use a bytearray, a writable array or an arena, or request REMOTE_READ only",
    ),
    Explanation(
        "buffer_not_contiguous",
        RegistrationError,
        what="the buffer is not contiguous in memory",
        causes=(
            "the array is a strided, transposed or sliced view",
            "the object exports its data in several pieces",
        ),
        remedy="make a contiguous copy first (numpy.ascontiguousarray), or register the whole array and use"
        " offsets",
    ),
    Explanation(
        "out_of_range",
        StateError,
        what="the offset and length are outside the memory region",
        causes=(
            "offset plus length is past the region's end, or one of them is negative",
            "the region is smaller than the program expects, such as after its buffer was replaced",
        ),
        remedy="keep offset >= 0 and offset + length <= the region's length",
    ),
    Explanation(
        "limit_exceeded",
        StateError,
        what="the request exceeds a limit of the device or queue pair",
        causes=(
            "the request has more scatter/gather entries, inline bytes or queue slots than the object was"
            " created with",
            "the device's maximum is lower than the configured value",
        ),
        remedy="request less, or create the object with larger limits, up to those that `verbena devices -v`"
        " lists",
    ),
    Explanation(
        "invalid_argument",
        StateError,
        what="an argument is not valid",
        causes=(
            "a value has the wrong type or is outside the allowed range",
            "two arguments contradict each other",
        ),
        remedy="correct the argument that the detail names",
    ),
    Explanation(
        "unsupported_opcode",
        UnsupportedError,
        what="the provider does not have this operation",
        causes=(
            "the wire or device lacks it, such as atomics on older iWARP devices",
            "the queue pair's type does not support it, such as READ on UC",
        ),
        remedy="check `capabilities` before use, replace the operation by one that the provider has, or"
        " choose another provider",
    ),
    Explanation(
        "unsupported_provider",
        UnsupportedError,
        what="the provider does not offer the requested feature",
        causes=(
            "only other wires have the feature",
            "the device, its firmware or its library is too old for the feature",
        ),
        remedy="compare the providers' capabilities with `verbena devices -v`, and choose one with the"
        " feature",
    ),
)
