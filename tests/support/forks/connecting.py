"""A program that forks again and again while its threads open and close sessions; each child opens one.
usage: connecting.py ADDRESS WIRE CHILDREN"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback

from verbena import sync
from verbena.transport import Settings

TIMEOUT_S = 20.0
THREADS = 4


def use(address: str, settings: Settings) -> None:
    with sync.connect(address, config=settings) as session:
        assert session.call("echo", b"once", timeout_s=TIMEOUT_S) == b"once"


def run_child(address: str, settings: Settings) -> None:
    faulthandler.dump_traceback_later(TIMEOUT_S, exit=True)
    try:
        use(address, settings)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(address: str, wire: str, children: int) -> None:
    settings = Settings(wires=(wire,))
    stop = threading.Event()
    counts: list[int] = []

    def connect_and_close() -> None:
        count = 0
        while not stop.is_set():
            use(address, settings)
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=connect_and_close) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    statuses = []
    for _ in range(children):
        child = os.fork()
        if child == 0:
            run_child(address, settings)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    assert statuses == [0] * children, statuses
    assert len(counts) == THREADS, "a thread has failed"
    print(sum(counts), "sessions")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
