"""Fills the file system of a store, kills the store, and starts it again: `python full_disk.py MOUNT`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from kv.storage.keeping import serving
from support.kv.resp import Connection

VALUE = b"v" * 5000
ROOM_BYTES = 100_000


def fill(path: Path) -> None:
    """Leaves no free block."""
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while file.write(bytes(1 << 10)):
            pass


def main(mount: Path) -> None:
    store = mount / "store"
    with serving(store, "no") as (process, port):
        fill(mount / "filler")
        os.truncate(mount / "filler", os.path.getsize(mount / "filler") - ROOM_BYTES)
        written = write(port)
        process.kill()
        process.wait()
    log = max(store.glob("log-*"))
    os.truncate(log, log.stat().st_size - len(VALUE) // 2)  # the end of the last record was not written
    fill(mount / "more")
    with serving(store, "no") as (process, port):
        with Connection(port) as connection:
            found = [key for key in written if connection.run(b"EXISTS", key)]
        assert written[-2:-1] == found[-1:], f"{len(found)} keys of {len(written)}"
        assert write(port) == []
        (mount / "filler").unlink()
        deadline = time.monotonic() + 10
        while not write(port, 1):  # the log is written again within a second
            assert time.monotonic() < deadline
            time.sleep(0.05)


def write(port: int, limit: int = 1000) -> list[bytes]:
    """SETs new keys until one is refused, and returns those that were acknowledged."""
    written: list[bytes] = []
    with Connection(port) as connection, contextlib.suppress(ConnectionError):
        for number in range(limit):
            key = b"key%d" % number
            if connection.run(b"SET", key, VALUE) != "OK":
                break
            written.append(key)
    return written


if __name__ == "__main__":
    main(Path(sys.argv[1]))
