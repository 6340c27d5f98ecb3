"""A node as its own process, of any user, that lends memory: to all sessions for reading, and to the first
session for writing. Takes its options as JSON; prints JSON when it is ready, and again for each line of its
input, which is a command: "" or "revoke"."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
from typing import Any

import verbena
from support.security.shm_peer import gid_of_listener
from support.security.users import become
from verbena.transport import Region, Session, Settings
from verbena.verbs import Access, QuicOptions, Tls

SECRET = b"a value in the private memory of the node"
READABLE, WRITABLE = b"memory that may be read", b"memory that may be written"


def settings_of(options: dict[str, Any]) -> Settings:
    """`secret`, `wires`, `devices` by wire, `tls`: the files of a certificate, for quic."""
    tls = Tls(**options["tls"]) if options.get("tls") else None
    return Settings(
        secret=options.get("secret", "").encode(),
        wires=tuple(options.get("wires", ("shm", "iwarp"))),
        devices=options.get("devices", {}),
        quic=QuicOptions(tls=tls) if tls else None,
        recv_buffer_pool_size=256,
        resume_timeout_s=5,
        connection_timeout_ms=2000,
        connection_retries=1,
        retry_delay_ms=20,
    )


class Victim:
    def __init__(self) -> None:
        self.private = ctypes.create_string_buffer(SECRET)
        self.lent: dict[int, Region] = {}
        self.views: list[memoryview] = []  # of all regions; they stay valid after close()
        self.another = asyncio.Event()

    async def serve(self, options: dict[str, Any]) -> None:
        handlers = {"echo": lambda request: request.payload}
        listening = await verbena.listen(
            f"{options.get('host', '127.0.0.1')}:0",
            handlers=handlers,
            config=settings_of(options),
            on_session=self.lend,
        )
        async with listening as listener:
            self.node = listener.node
            self.readable = self.allocate(READABLE, Access.REMOTE_READ)
            gid = gid_of_listener(listener).hex() if "shm" in self.node.wires.names else ""
            await self.report(address=listener.address, pid=os.getpid(), gid=gid)
            while line := await asyncio.to_thread(sys.stdin.readline):
                if line.strip() == "revoke":
                    await asyncio.to_thread(self.readable.close)
                    self.views[0][:] = READABLE.upper()
                    for region in self.lent.values():
                        await asyncio.to_thread(region.close)
                await self.report()

    def allocate(self, content: bytes, access: Access, session: Session | None = None) -> Region:
        region = self.node.allocate(len(content), access=access, session=session)
        region[:] = content
        self.views.append(memoryview(region))
        return region

    def lend(self, session: Session) -> None:
        self.lent[session.id] = self.allocate(WRITABLE, Access.ALL, session)
        self.another.set()

    async def report(self, **more: Any) -> None:
        while any(session.links and session.id not in self.lent for session in self.node.sessions):
            await self.another.wait()  # a new session, which the callback has not seen yet
            self.another.clear()
        regions = [self.readable, *self.lent.values()]
        print(
            json.dumps(
                {
                    "private": self.private.value.decode(),
                    "private_at": ctypes.addressof(self.private),
                    "memory": [bytes(view).decode() for view in self.views],
                    "regions": [region.remote.to_bytes().hex() for region in regions if not region.closed],
                    **more,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    become(given.get("uid"))
    asyncio.run(Victim().serve(given))
