"""A memory node: lends parts of one block of memory to sessions. An unnamed allocation is accessible to its
session only and is freed when the session ends; a named one is accessible to all until it is freed."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from verbena.far import messages
from verbena.far.allocator import FirstFit
from verbena.far.messages import Refusal
from verbena.transport import Handler, Node, Region, Request, Session
from verbena.verbs import Access


@dataclass(frozen=True)
class _Piece:
    id: int
    offset: int
    nbytes: int
    name: str | None
    note: Any
    owner: int  # the session's id
    region: Region


class MemoryNode:
    """Pass `handlers` to listen() on the event loop that uses it; close() it before its node."""

    def __init__(self, node: Node, size: int) -> None:
        self.size = size
        self._node = node
        whole = node.allocate(size)
        self._memory = memoryview(whole.memory).cast("B")
        whole.revoke()  # the memory stays allocated; parts of it are exposed one by one
        self._space = FirstFit(size)
        self._pieces: dict[int, _Piece] = {}
        self._names: dict[str, _Piece] = {}
        self._ids = itertools.count(1)
        self._watched: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            messages.ALLOCATE: self._allocate,
            messages.ATTACH: self._attach,
            messages.FREE: self._free,
            messages.STAT: self._stat,
        }

    def stat(self) -> dict[str, Any]:
        """Returns size, free and largest contiguous free bytes, the number of allocations, and names with
        their sizes."""
        return {
            "size": self.size,
            "free": self._space.free_bytes,
            "largest_free": self._space.largest_free,
            "allocations": len(self._pieces),
            "names": {name: piece.nbytes for name, piece in sorted(self._names.items())},
        }

    async def close(self) -> None:
        """Revokes all access to the memory; returns when that is done."""
        for piece in list(self._pieces.values()):
            self._remove(piece)
        while self._tasks:
            watchers = [task for task in self._tasks if task.get_name() == "watch"]
            for task in watchers:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # Handlers

    def _allocate(self, request: Request) -> bytes:
        fields = messages.decode(request.payload)
        nbytes, name = messages.take_integer(fields, "nbytes"), messages.take_name(fields)
        note = messages.take_note(fields)
        if name is not None and name in self._names:
            return messages.refusal(Refusal("far_name_taken", name))
        offset = self._space.allocate(nbytes)
        if offset is None:
            space = self._space
            detail = f"{nbytes} bytes; {space.free_bytes} are free, {space.largest_free} in one piece"
            return messages.refusal(Refusal("far_full", detail))
        # An empty region cannot be exposed, so an empty allocation exposes one byte.
        memory = self._memory[offset : offset + max(nbytes, 1)]
        region = self._node.expose(
            memory,
            access=Access.ALL,
            session=request.session if name is None else None,
        )
        piece = _Piece(next(self._ids), offset, nbytes, name, note, request.session.id, region)
        self._pieces[piece.id] = piece
        if name is not None:
            self._names[name] = piece
        else:
            self._watch(request.session)
        return _describe(piece)

    def _attach(self, request: Request) -> bytes:
        name = messages.take_name(messages.decode(request.payload))
        piece = self._names.get(name or "")
        if piece is None:
            return messages.refusal(Refusal("far_unknown", f"{name!r}"))
        return _describe(piece)

    async def _free(self, request: Request) -> bytes:
        fields = messages.decode(request.payload)
        name = messages.take_name(fields)
        piece = self._names.get(name) if name else self._pieces.get(messages.take_integer(fields, "id"))
        if piece is None or (piece.name is None and piece.owner != request.session.id):
            return messages.refusal(Refusal("far_unknown", repr(name) if name else f"number {fields['id']}"))
        await asyncio.shield(self._remove(piece))
        return messages.encode()

    def _stat(self, request: Request) -> bytes:
        return messages.encode(**self.stat())

    def _watch(self, session: Session) -> None:
        if session.id not in self._watched:
            self._watched.add(session.id)
            self._start(self._free_at_end_of(session), "watch")

    async def _free_at_end_of(self, session: Session) -> None:
        async for _ in session.states():
            pass
        self._watched.discard(session.id)
        for piece in list(self._pieces.values()):
            if piece.owner == session.id and piece.name is None:
                self._remove(piece)

    def _remove(self, piece: _Piece) -> asyncio.Task[None]:
        """Removes an allocation from the tables at once; a task revokes access, zeroes the memory and frees
        it."""
        del self._pieces[piece.id]
        if piece.name is not None:
            del self._names[piece.name]
        return self._start(self._clear(piece), "clear")

    async def _clear(self, piece: _Piece) -> None:
        await asyncio.to_thread(self._revoke_and_zero, piece)
        self._space.free(piece.offset)

    def _revoke_and_zero(self, piece: _Piece) -> None:
        piece.region.revoke()
        memory = self._memory[piece.offset : piece.offset + piece.nbytes]
        if memory:
            ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0, len(memory))

    def _start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _describe(piece: _Piece) -> bytes:
    remote = piece.region.remote[: piece.nbytes]
    return messages.encode(id=piece.id, region=remote.to_bytes().hex(), note=piece.note)
