"""A program that opens an object, forks, and goes on using it while the child tries to disturb it.
usage: disturbed.py SUBJECT END [ADDRESS]    END: how the child ends"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.forks.subject import Subject
from support.forks.subjects import SUBJECTS
from verbena.errors import ClosedError

LIMIT_S = 1.0


def refused(name: str, use: Callable[[], object]) -> str:
    """What is wrong with a use that must raise `forked` at once; "": nothing."""
    began = time.monotonic()
    try:
        result = use()
    except ClosedError as error:
        if error.code != "forked":
            return f"{name}: {error!r}"
    except Exception as error:
        return f"{name}: {error!r}"
    else:
        return f"{name}: returned {result!r}"
    took = time.monotonic() - began
    return f"{name}: after {took:.1f} s" if took > LIMIT_S else ""


def disturb(subject: Subject) -> list[str]:
    found = [refused(name, use) for name, use in subject.refused.items()]
    for name, use in subject.allowed.items():
        try:
            use()
        except Exception:
            found.append(f"{name}: {traceback.format_exc()}")
    began = time.monotonic()
    subject.close()
    subject.close()
    gc.collect()
    if (took := time.monotonic() - began) > LIMIT_S:
        found.append(f"close: after {took:.1f} s")
    return list(filter(None, found))


def end(how: str) -> None:
    if how == "exit":
        sys.exit(0)
    if how == "os._exit":
        os._exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exec":
        os.execv("/bin/true", ["true"])
    if how == "subprocess":
        subprocess.run(["/bin/true"], check=True)
        os._exit(0)
    raise ValueError(how)


def main(name: str, how: str, address: str = "") -> None:
    subject = SUBJECTS[name][1](address)
    subject.check(0)
    child = os.fork()
    if child == 0:
        if found := disturb(subject):
            print(*found, sep="\n", file=sys.stderr, flush=True)
            os._exit(1)
        end(how)
    number = 0
    while not (done := os.waitpid(child, os.WNOHANG))[0]:
        number += 1
        subject.check(number)
    ended = os.waitstatus_to_exitcode(done[1])
    for _ in range(20):
        number += 1
        subject.check(number)
    subject.close()
    assert ended == (-signal.SIGKILL if how == "kill" else 0), f"the child ended with {ended}"
    print(number, "answers")


if __name__ == "__main__":
    main(*sys.argv[1:])
