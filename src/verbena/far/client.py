"""Client of a memory node. The calls block, as those of Array do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from verbena.errors import setup_error
from verbena.far import messages
from verbena.far.array import BLOCK_BYTES, CACHE_BYTES, Array
from verbena.far.lazy import numpy
from verbena.transport import RemoteRegion, Session

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from verbena.transport.blocking.session import Session as BlockingSession


def zeros(
    session: Session | BlockingSession,
    shape: int | Sequence[int],
    dtype: DTypeLike = float,
    *,
    name: str | None = None,
    cache_bytes: int = CACHE_BYTES,
    block_bytes: int = BLOCK_BYTES,
    timeout_s: float | None = None,
) -> Array:
    """Allocates a zeroed array on the memory node. Without a name it belongs to this session and is freed
    when the session ends; a named one stays until free(), and other sessions can attach() to it. Raises
    BusyError if there is no room, StateError if the name is taken, and the errors of Session.call()."""
    np = numpy()
    lengths = (shape,) if isinstance(shape, int) else tuple(int(length) for length in shape)
    kind = np.dtype(dtype)
    nbytes = kind.itemsize
    for length in lengths:
        nbytes *= length
    note = {"dtype": np.lib.format.dtype_to_descr(kind), "shape": lengths}
    answer = _ask(session, messages.ALLOCATE, timeout_s, nbytes=nbytes, name=name, note=note)
    try:
        region = _region(session, answer)
        array = Array(
            session,
            region,
            kind,
            lengths,
            cache_bytes=cache_bytes,
            block_bytes=block_bytes,
            timeout_s=timeout_s,
        )
    except BaseException:
        _ask(session, messages.FREE, timeout_s, id=answer["id"])
        raise
    array.name, array._allocation = name, answer["id"]
    return array


def attach(
    session: Session | BlockingSession,
    name: str,
    *,
    cache_bytes: int = CACHE_BYTES,
    block_bytes: int = BLOCK_BYTES,
    timeout_s: float | None = None,
) -> Array:
    """Opens the named array with its original dtype and shape. Raises StateError if there is none."""
    answer = _ask(session, messages.ATTACH, timeout_s, name=name)
    note = answer.get("note")
    try:
        dtype = numpy().lib.format.descr_to_dtype(_tuples(note["dtype"]))  # type: ignore[index]
        shape = tuple(note["shape"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed(session, messages.ATTACH, str(error)) from error
    region = _region(session, answer)
    array = Array(
        session, region, dtype, shape, cache_bytes=cache_bytes, block_bytes=block_bytes, timeout_s=timeout_s
    )
    array.name, array._allocation = name, answer["id"]
    return array


def free(array: Array) -> None:
    """Frees the array's memory on its memory node; closes the array and discards unflushed bytes. Raises
    StateError if it is already freed or did not come from zeros() or attach()."""
    if array._allocation is None:
        raise setup_error(
            "far_unknown", operation=messages.FREE, detail="the array was not allocated on a memory node"
        )
    if not array._closed:
        array.invalidate(discard=True)
        array.close()
    _ask(array.session, messages.FREE, array.timeout_s, id=array._allocation)


def stat(session: Session | BlockingSession, *, timeout_s: float | None = None) -> dict[str, Any]:
    """Returns the memory node's size and free bytes, its number of allocations, and names with their
    sizes."""
    return _ask(session, messages.STAT, timeout_s)


def _ask(
    session: Session | BlockingSession, method: str, timeout_s: float | None, **fields: Any
) -> dict[str, Any]:
    payload = session.sync.call(method, messages.encode(**fields), timeout_s=timeout_s)
    try:
        answer = messages.decode(payload)
    except ValueError as error:
        raise _malformed(session, method, str(error)) from error
    messages.raise_refusal(answer, operation=method, peer=session.peer)
    return answer


def _region(session: Session | BlockingSession, answer: dict[str, Any]) -> RemoteRegion:
    try:
        return RemoteRegion.from_bytes(bytes.fromhex(answer["region"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _malformed(session, messages.ALLOCATE, str(error)) from error


def _malformed(session: Session | BlockingSession, method: str, detail: str) -> Exception:
    return setup_error("bad_message", operation=method, peer=session.peer, detail=detail)


def _tuples(description: Any) -> Any:
    """Restores the tuples in dtype descriptions of structured types, which JSON turned into lists."""
    if isinstance(description, str):
        return description
    return [(name, _tuples(kind), *(tuple(shape) for shape in more)) for name, kind, *more in description]
