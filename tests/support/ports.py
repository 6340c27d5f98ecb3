"""Free ports for programs that cannot be told to choose one and report it."""

from __future__ import annotations

import secrets
import socket

FIRST, LAST = 30000, 32767  # below Linux's ephemeral ports: no outgoing connection takes one meanwhile


def free_port() -> int:
    while True:
        port = FIRST + secrets.randbelow(LAST - FIRST + 1)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
