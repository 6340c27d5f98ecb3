"""Access to a peer's memory below the session's API, with any key, as a hostile program does it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass

from verbena.transport import Listener, Region, Session
from verbena.verbs import Access, MemoryRegion, Opcode, RemoteMemory, SendWorkRequest

ECHO, RESOLVE = 1, 2  # native methods of every node; by RESOLVE a session asks for the key of a region
CONTENT = b"lent to one session only"  # 24 bytes, so that an atomic word is aligned
MESSAGE_ID = 2 << 56  # an id that the session takes for a message of its own


@dataclass(frozen=True)
class Lent:
    """What a session learns of a region: enough to access it below the session's API."""

    addr: int
    length: int
    rkey: int


async def resolve(session: Session, region: Region | int) -> Lent:
    """`region`: the region, or its name (RemoteRegion.key)."""
    payload = struct.pack("<Q", region if isinstance(region, int) else region.key)
    reply = await asyncio.to_thread(session._native.call, RESOLVE, payload, 5.0)
    return Lent(*struct.unpack("<QQII", reply)[:3])


async def holds(condition: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    """Returns whether the condition becomes true in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.002)
    return True


async def linked(session: Session) -> None:
    """Waits until the session has a link; an access with a wrong key ends it."""
    assert await holds(lambda: session._native.has_link and session._link is not None, 20)


async def read_directly(session: Session, lent: Lent) -> bytes | None:
    """READs with a key through the session's queue pair. None: it was refused, and the queue pair has
    failed."""
    return await _access(session, lent, Opcode.READ, bytes(lent.length))


async def write_directly(session: Session, lent: Lent, content: bytes) -> None:
    """WRITEs, and returns when the request was executed or the queue pair has failed."""
    await _access(session, lent, Opcode.WRITE, content)


async def add_directly(session: Session, lent: Lent) -> bytes | None:
    """FETCH_ADD on the first word. Returns what it was; None: it was refused."""
    return await _access(session, Lent(lent.addr, 8, lent.rkey), Opcode.FETCH_ADD, bytes(8))


async def is_accepted(session: Session, lent: Lent, opcode: Opcode, content: bytes) -> bool:
    """Tries an access and returns whether it was executed. False: it was refused, and the queue pair has
    failed."""
    links = (await _post(session, lent, opcode, content))[1]
    # Requests are executed in order, so the reply comes after the access, or on the session's next link.
    await asyncio.to_thread(session._native.call, ECHO, b"behind it", 20.0)
    return session._native.links == links


async def _access(session: Session, lent: Lent, opcode: Opcode, content: bytes) -> bytes | None:
    local, links = await _post(session, lent, opcode, content)

    def is_lost() -> bool:
        return session._native.links != links or not session._native.has_link

    if opcode is Opcode.WRITE:  # requests are executed in order: a reply comes after it
        await asyncio.gather(session.call("echo", b"behind it"), return_exceptions=True)
        await holds(is_lost, 0.2)
        return None
    await holds(lambda: is_lost() or bytes(memoryview(local)) != content)
    found = bytes(memoryview(local))
    return None if found == content else found


async def _post(session: Session, lent: Lent, opcode: Opcode, content: bytes) -> tuple[MemoryRegion, int]:
    """Posts the request. Returns its local memory and the number of the link that carries it."""
    await linked(session)
    link = session._link
    assert link is not None
    local = link.wire.pd.allocate(len(content), access=Access.LOCAL_WRITE)
    memoryview(local)[:] = content
    links = session._native.links
    request = SendWorkRequest(
        opcode,
        local=local,
        remote=RemoteMemory(lent.addr, lent.rkey, lent.length),
        wr_id=MESSAGE_ID,
        add=1 if opcode is Opcode.FETCH_ADD else 0,
    )
    link.qp._native.post_send((request,))
    return local, links


def expose(
    listener: Listener,
    session: Session | None = None,
    *,
    access: Access = Access.REMOTE_READ,
    allocated: bool = True,
) -> Region:
    """A region at the listener; `session`: the client's end of the only session that may use it."""
    there = listener.node._sessions[session.id] if session is not None else None
    if not allocated:
        return listener.node.expose(bytearray(CONTENT), access=access, session=there)
    region = listener.node.allocate(len(CONTENT), access=access, session=there)
    memoryview(region)[:] = CONTENT
    return region
