"""A memory node: allocates memory for sessions, up to a limit. An unnamed allocation is accessible to its
session only and is freed when the session ends; a named one is accessible to all until it is freed."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from verbena import _threads
from verbena.errors import VerbenaError, setup_error
from verbena.far import messages
from verbena.far.messages import RequestRefused
from verbena.transport import Handler, Node, Region, Request, Session
from verbena.verbs import Access

_PAGE = 4096


@dataclass(frozen=True)
class _Piece:
    id: int
    nbytes: int
    name: str | None
    note: Any
    owner: int  # the session's id
    region: Region


class MemoryNode:
    """Pass `handlers` to listen() on the event loop that uses it; close() it before its node. StateError if
    the machine has less memory than `size`."""

    def __init__(self, node: Node, size: int) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size > memory:
            detail = f"a size of {size} bytes, but this machine has {memory} bytes of memory"
            raise setup_error("invalid_argument", operation="start a memory node", detail=detail)
        self.size = size
        self._node = node
        self._free_bytes = size
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
        """Returns size and free bytes, the number of allocations, and names with their sizes."""
        return {
            "size": self.size,
            "free": self._free_bytes,
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
            return messages.refusal(RequestRefused("far_name_taken", name))
        if _pages(nbytes) > self._free_bytes:
            return messages.refusal(
                RequestRefused("far_full", f"{nbytes} bytes; {self._free_bytes} are free")
            )
        # Memory of its own for each session, so that no wire shows it to another one. An empty region cannot
        # be allocated, so an empty allocation takes one byte.
        owner = request.session if name is None else None
        try:
            region = self._node.allocate(max(nbytes, 1), access=Access.ALL, session=owner)
        except VerbenaError as error:
            return messages.refusal(
                RequestRefused("far_full", f"{nbytes} bytes: {error.detail or error.what}")
            )
        self._free_bytes -= _pages(nbytes)
        piece = _Piece(next(self._ids), nbytes, name, note, request.session.id, region)
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
            return messages.refusal(RequestRefused("far_unknown", f"{name!r}"))
        return _describe(piece)

    async def _free(self, request: Request) -> bytes:
        fields = messages.decode(request.payload)
        name = messages.take_name(fields)
        piece = self._names.get(name) if name else self._pieces.get(messages.take_integer(fields, "id"))
        if piece is None or (piece.name is None and piece.owner != request.session.id):
            return messages.refusal(
                RequestRefused("far_unknown", repr(name) if name else f"number {fields['id']}")
            )
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
        """Removes an allocation from the tables at once; a task revokes access and frees the memory."""
        del self._pieces[piece.id]
        if piece.name is not None:
            del self._names[piece.name]
        return self._start(self._clear(piece), "clear")

    async def _clear(self, piece: _Piece) -> None:
        await _threads.workers.run(piece.region.close)
        self._free_bytes += _pages(piece.nbytes)

    def _start(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _pages(nbytes: int) -> int:
    """Returns how much memory an allocation takes: whole pages, and at least one."""
    return max(1, -(-nbytes // _PAGE)) * _PAGE


def _describe(piece: _Piece) -> bytes:
    remote = piece.region.remote[: piece.nbytes]
    return messages.encode(id=piece.id, region=remote.to_bytes().hex(), note=piece.note)
