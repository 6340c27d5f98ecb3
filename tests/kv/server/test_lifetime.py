"""A server that was closed is freed together with its engine."""

from __future__ import annotations

import gc
import weakref

from verbena.kv.server.server import Server


def test_a_closed_server_is_freed() -> None:
    server = Server()
    server.start()
    server.close()
    server.close()
    there = weakref.ref(server)
    del server
    gc.collect()
    assert there() is None
