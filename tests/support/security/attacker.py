"""A hostile process, of any user, container or machine. Its first argument names what it does, the second one
has the options as JSON; prints the result as JSON. Each function here is one thing that it does."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import json
import mmap
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verbena
from support.security.shm_peer import ShmPeer
from support.security.users import become
from support.security.victim import settings_of
from verbena.errors import VerbenaError
from verbena.transport import RemoteRegion

libc = ctypes.CDLL(None, use_errno=True)


def refusal_of(error: Exception) -> str:
    return error.code if isinstance(error, VerbenaError) else errno.errorcode.get(error.errno, str(error))  # type: ignore[attr-defined]


async def use(options: dict[str, Any]) -> Any:
    """Opens a session and reads the regions. Returns the wire, and the contents or the codes of errors."""
    try:
        session = await verbena.connect(
            options["address"], wire=options.get("wire"), config=settings_of(options)
        )
    except (VerbenaError, OSError) as error:
        return {"refused": refusal_of(error)}
    async with session:
        found = []
        for region in options.get("regions", ()):
            try:
                content = await session.read(RemoteRegion.from_bytes(bytes.fromhex(region)))
                found.append(bytes(content).decode())
            except VerbenaError as error:
                found.append(error.code)
        return {"wire": session.wire, "found": found}


async def connect_to_shm(options: dict[str, Any]) -> Any:
    """Connects to the socket of the shm wire. Returns the kinds of the messages that come, and the number of
    descriptors with them."""
    try:
        with ShmPeer(bytes.fromhex(options["gid"])) as peer:
            messages = peer.receive_all()
            with contextlib.suppress(OSError):  # refused: the socket is closed
                peer.hello()
            messages += peer.receive_all()
            return {
                "kinds": [message.kind for message in messages],
                "descriptors": sum(len(message.descriptors) for message in messages),
            }
    except OSError as error:
        return {"refused": refusal_of(error)}


class Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


async def trace(options: dict[str, Any]) -> Any:
    """Reads and writes the node's private memory with process_vm_readv and process_vm_writev."""
    local = ctypes.create_string_buffer(64)
    pieces = Piece(ctypes.addressof(local), 8), Piece(options["at"], 8)
    arguments = (options["pid"], ctypes.byref(pieces[0]), 1, ctypes.byref(pieces[1]), 1, 0)
    if libc.process_vm_readv(*arguments) != 8:
        return {"refused": errno.errorcode[ctypes.get_errno()]}
    read = local.raw[:8].decode()
    local.raw = b"ATTACKED".ljust(64)
    libc.process_vm_writev(*arguments)
    return {"read": read}


async def open_descriptors(options: dict[str, Any]) -> Any:
    """Opens the node's shared memory through /proc/PID/fd, searches it and writes to it where that is
    possible. Returns the texts that were found in memory that can only be read, and in memory that was
    written."""
    texts = [text.encode() for text in options["texts"]]
    folder = Path(f"/proc/{options['pid']}/fd")
    found: dict[str, list[str]] = {"read": [], "written": []}
    try:
        names = list(folder.iterdir())
    except OSError as error:
        return {"refused": refusal_of(error)}
    for name in names:
        if "memfd:verbena-arena" not in os.readlink(name):
            continue
        with contextlib.ExitStack() as stack:
            file = os.open(name, os.O_RDWR)
            stack.callback(os.close, file)
            access, kind = mmap.PROT_READ | mmap.PROT_WRITE, "written"
            try:
                memory = mmap.mmap(file, 0, mmap.MAP_SHARED, access)
            except OSError:
                memory, kind = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ), "read"
            stack.enter_context(memory)
            for text in texts:
                if (at := memory.find(text)) >= 0:
                    found[kind].append(text.decode())
                    if kind == "written":
                        memory[at : at + len(text)] = text.upper()
    return found


async def kill(options: dict[str, Any]) -> Any:
    try:
        os.kill(options["pid"], signal.SIGKILL)
    except OSError as error:
        return {"refused": refusal_of(error)}
    return {}


async def read_file(options: dict[str, Any]) -> Any:
    try:
        return {"read": Path(options["path"]).read_text(errors="replace")}
    except OSError as error:
        return {"refused": refusal_of(error)}


def mappings(name: str) -> Iterator[tuple[str, str]]:
    """Span and permissions of the mappings of shared memory of this kind."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if match := re.match(rf"(\S+) (\S+) .*/memfd:verbena-{name}", line):
            yield match[1], match[2]


async def keep(options: dict[str, Any]) -> Any:
    """Opens a session over shm. For a line with regions, it reads them, and keeps a mapping of its own of all
    that it has mapped. For a second line, it searches `texts` there, writes where it can, and tries to read
    the regions again."""
    async with verbena.connect(options["address"], wire="shm", config=settings_of(options)) as session:
        await session.call("echo", b"the node has the link, too")
        print(json.dumps({"wire": session.wire}), flush=True)
        regions = json.loads(await asyncio.to_thread(sys.stdin.readline))
        for region in regions:
            await session.read(RemoteRegion.from_bytes(bytes.fromhex(region)))
        kept: list[tuple[str, mmap.mmap]] = []
        for span, permissions in mappings("arena"):
            file = os.open(f"/proc/self/map_files/{span}", os.O_RDWR)
            access = mmap.PROT_READ | (mmap.PROT_WRITE if permissions[1] == "w" else 0)
            with contextlib.suppress(PermissionError):  # its own memory, which others may only read
                kept.append((permissions, mmap.mmap(file, 0, mmap.MAP_SHARED, access)))
            os.close(file)
        print(json.dumps({"kept": len(kept)}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        found: dict[str, list[str]] = {"read": [], "written": [], "again": []}
        for text in options["texts"]:
            for permissions, memory in kept:
                if (at := memory.find(text.encode())) < 0:
                    continue
                found["written" if permissions[1] == "w" else "read"].append(text)
                if permissions[1] == "w":
                    memory[at : at + len(text)] = text.upper().encode()
        for region in regions:
            try:
                await session.read(RemoteRegion.from_bytes(bytes.fromhex(region)))
                found["again"].append("read")
            except VerbenaError as error:
                found["again"].append(error.code)
        return found


async def hold(options: dict[str, Any]) -> Any:
    """Opens a session and keeps it until a line comes."""
    wire = options.get("wire")
    async with verbena.connect(options["address"], wire=wire, config=settings_of(options)) as session:
        await session.call("echo", b"the node has the link, too")
        print(json.dumps({"wire": session.wire}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    return {}


async def keys(options: dict[str, Any]) -> Any:
    """Opens a session over shm and counts the keys in the node's table that it maps, and the arenas whose
    bytes it maps."""
    async with verbena.connect(options["address"], wire="shm", config=settings_of(options)) as session:
        await session.call("echo", b"hello")
        found = 0
        for span, permissions in mappings("regions"):
            if permissions[1] == "w":
                continue  # its own
            file = os.open(f"/proc/self/map_files/{span}", os.O_RDONLY)
            with mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ) as table:
                found += sum(table[at : at + 4] != bytes(4) for at in range(0, len(table), 64))
            os.close(file)
        return {"keys": found}


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    socket.setdefaulttimeout(20)
    become(given.get("uid"))
    print(json.dumps(asyncio.run(globals()[sys.argv[1]](given))), flush=True)
