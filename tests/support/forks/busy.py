"""A program that forks again and again while its threads use sessions, and its children use sessions of their
own, and fork too.  usage: busy.py ADDRESS WIRE CHILDREN"""

from __future__ import annotations

import os
import sys
import threading
import traceback

import pytest

from verbena import errors, sync
from verbena.transport import Settings

TIMEOUT_S = 20.0
failures: list[str] = []
answers = 0


def hammer(session: sync.Session, number: int, stop: threading.Event) -> None:
    global answers  # noqa: PLW0603
    count = 0
    while not stop.is_set():
        count += 1
        payload = b"parent %d %d" % (number, count)
        try:
            if session.call("echo", payload, timeout_s=TIMEOUT_S) != payload:
                failures.append(f"another's answer for {payload!r}")
        except Exception:
            failures.append(traceback.format_exc())
            return
    answers += count


def open_own(address: str, settings: Settings, depth: int) -> None:
    """Uses a session of this process, and forks a child that may not use it."""
    with sync.connect(address, config=settings) as own:
        payload = b"child %d" % os.getpid()
        assert own.call("echo", payload, timeout_s=TIMEOUT_S) == payload
        if depth > 0:
            child = os.fork()
            if child == 0:
                end_child(own, address, settings, depth - 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert own.call("echo", payload, timeout_s=TIMEOUT_S) == payload


def end_child(inherited: sync.Session, address: str, settings: Settings, depth: int) -> None:
    status = 0
    try:
        with pytest.raises(errors.ClosedError, match=r"\[forked\]"):
            inherited.call("echo", b"child")
        open_own(address, settings, depth)
    except BaseException:
        traceback.print_exc()
        status = 1
    os._exit(status)


def main(address: str, wire: str, children: int) -> None:
    settings = Settings(wires=(wire,))
    sessions = [sync.connect(address, config=settings) for _ in range(2)]
    stop = threading.Event()
    threads = [
        threading.Thread(target=hammer, args=(session, 2 * at + turn, stop))
        for at, session in enumerate(sessions)
        for turn in range(2)
    ]
    for thread in threads:
        thread.start()
    statuses = []
    for _ in range(children):
        child = os.fork()
        if child == 0:
            end_child(sessions[0], address, settings, depth=1)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    for session in sessions:
        session.close()
    assert statuses == [0] * children, statuses
    assert not failures, failures
    print(answers, "answers")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
