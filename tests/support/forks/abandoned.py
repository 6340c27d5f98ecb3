"""A service whose process is killed while a child that it forked lives on.
usage: abandoned.py KIND WIRE ADDRESS    KIND: listener, metrics or store. Prints its address and the child's
number, and waits to be killed."""

from __future__ import annotations

import os
import signal
import socket
import sys

from verbena import sync
from verbena.transport import Settings


def listen(wire: str, address: str) -> str:
    settings = Settings(wires=(wire,))
    kept.append(sync.listen(address, handlers={"echo": lambda one: one.payload}, config=settings))
    return str(kept[-1].address)


def metrics(wire: str, address: str) -> str:
    listen(wire, "127.0.0.1:0")
    return str(kept[-1].node.serve_metrics(address).address)


def store(wire: str, address: str) -> str:
    from verbena.kv.server.server import Server

    host, _, port = address.rpartition(":")
    server = Server()
    with socket.create_server((host, int(port))) as listening:
        listening.setblocking(False)
        server.engine.listen(listening.fileno())
        port = listening.getsockname()[1]
    server.start()
    kept.append(server)
    return f"{host}:{port}"


KINDS = {"listener": listen, "metrics": metrics, "store": store}
kept: list = []

if __name__ == "__main__":
    kind, wire, address = sys.argv[1:]
    address = KINDS[kind](wire, address)
    print(address, flush=True)
    sys.stdin.readline()  # when the peer is connected
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        while True:
            signal.pause()
    print(child, flush=True)
    while True:
        signal.pause()
