"""Smoke test of an installed verbena: a device, a session between two nodes, the store with both kinds of
client."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import verbena
from verbena import kv, verbs

PROGRAM = Path(sysconfig.get_path("scripts"), "verbena")


def main() -> int:
    with verbs.open_device("shm") as context, context.alloc_pd() as pd:
        assert len(pd.allocate(4096)) == 4096
    asyncio.run(_session())
    _store()
    names = ", ".join(provider.name for provider in verbs.providers())
    print(f"verbena {verbena.__version__} on Python {sys.version.split()[0]}: {names}; a session; the store")
    return 0


async def _session() -> None:
    async with verbena.listen("127.0.0.1:0", handlers={"echo": lambda call: call.payload}) as listener:
        exposed = listener.node.allocate(1 << 20)
        memoryview(exposed)[:5] = b"hello"
        async with verbena.connect(listener.address) as session:
            assert bytes(await session.call("echo", b"called")) == b"called"
            assert bytes(await session.read(exposed.remote[:5])) == b"hello"


def _store() -> None:
    command = [PROGRAM, "serve", "--port", "0", "--session-listen-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as store:
        assert store.stdout is not None
        output = ""
        while "try:" not in output:
            line = store.stdout.readline()
            assert line, "the store has exited"
            output += line
        (port,) = re.findall(r"redis +\S+:(\d+)", output)
        (sessions,) = re.findall(r"sessions +(\S+)", output)
        with kv.Client(sessions) as client:
            client.set("key", "by a session")
        with socket.create_connection(("127.0.0.1", int(port))) as plain:
            plain.sendall(b"GET key\r\n")
            assert plain.recv(100) == b"$12\r\nby a session\r\n"
        store.terminate()
        assert store.wait(30) == 0


if __name__ == "__main__":
    sys.exit(main())
