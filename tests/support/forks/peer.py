"""The peer of programs that fork: echoes, and lends memory that holds a pattern."""

from __future__ import annotations

import sys

from verbena import sync
from verbena.transport import Node, Settings

LENGTH = 1 << 20
PATTERN = bytes(range(256)) * (LENGTH // 256)


def main() -> None:
    with Node(Settings(wires=("shm", "iwarp", "quic"))) as node:
        region = node.allocate(LENGTH)
        region[:] = PATTERN
        counters = node.allocate(4096)
        handlers = {
            "echo": lambda request: request.payload,
            "pattern": lambda request: region.remote.to_bytes(),
            "counters": lambda request: counters.remote.to_bytes(),
        }
        with sync.listen("127.0.0.1:0", handlers=handlers, node=node) as listener:
            print(listener.address, flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main()
