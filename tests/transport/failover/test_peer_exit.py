"""The watch over the processes of peers: what counts as their end, and what does not."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from support.leaks import descriptors
from support.stopped import stopped

from verbena import _native
from verbena.transport.failover.peer_exit import ExitWatch, own_process

NAMESPACE = own_process().partition("/")[0]


class Ends:
    """Counts reports."""

    def __init__(self) -> None:
        self.count = 0
        self.first = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self.first.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self.first.wait(), 10)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until its input ends."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as started:
        yield started


def name(process: subprocess.Popen[bytes]) -> str:
    return f"{NAMESPACE}/{process.pid}"


async def test_the_end_of_a_process_is_reported_once_to_each_watch(process: subprocess.Popen[bytes]) -> None:
    """It counts as ended before its parent has waited for it, and all watches of a process share a
    descriptor."""
    before = descriptors()
    ends = [Ends() for _ in range(50)]
    watches = [ExitWatch(name(process), 7, one) for one in ends]
    assert descriptors() == before + 1
    process.kill()
    for one in ends:
        await one.wait()
    assert [one.count for one in ends] == [1] * 50
    assert not any(watch.is_active for watch in watches)
    assert descriptors() == before


async def test_a_closed_watch_reports_nothing(process: subprocess.Popen[bytes]) -> None:
    """Closing the last watch of a process closes its descriptor."""
    before = descriptors()
    closed, open_ = Ends(), Ends()
    first, second = ExitWatch(name(process), 7, closed), ExitWatch(name(process), 7, open_)
    first.close()
    process.kill()
    await open_.wait()
    second.close()
    assert (closed.count, open_.count) == (0, 1)

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as another:
        watch = ExitWatch(name(another), 7, closed)
        watch.close()
        watch.close()
        assert not watch.is_active
    assert descriptors() == before


async def test_a_watch_that_another_one_closes_reports_nothing(process: subprocess.Popen[bytes]) -> None:
    """A report may close other sessions with the same process."""
    watches: list[ExitWatch] = []
    reports = 0

    def close_all() -> None:
        nonlocal reports
        reports += 1
        for watch in watches:
            watch.close()

    watches += [ExitWatch(name(process), 7, close_all) for _ in range(3)]
    last = Ends()
    ExitWatch(name(process), 8, last)
    process.kill()
    await last.wait()
    assert reports == 1


async def test_a_process_that_has_ended_already_is_reported(process: subprocess.Popen[bytes]) -> None:
    """It ended after it sent its name, and its parent has waited for it."""
    process.kill()
    process.wait()
    ended = Ends()
    watch = ExitWatch(name(process), 7, ended)
    assert ended.count == 0, "not before the caller is ready"
    await ended.wait()
    ExitWatch(name(process), 7, ended).close()
    await asyncio.sleep(0)
    assert (ended.count, watch.is_active) == (1, False)


async def test_a_stopped_process_has_not_ended(process: subprocess.Popen[bytes]) -> None:
    ended = Ends()
    watch = ExitWatch(name(process), 7, ended)
    with stopped(process.pid):
        other = Ends()
        with subprocess.Popen(["true"]) as short:
            ExitWatch(name(short), 8, other)
        await other.wait()
        assert (ended.count, watch.is_active) == (0, True)
        process.send_signal(signal.SIGKILL)
        await ended.wait()


async def test_a_later_process_with_the_same_pid_is_another_one(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions with the later one are not ended by the end of the former."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as later:
        pids = iter([process.pid, later.pid])
        open_pidfd = _native.transport.open_pidfd
        monkeypatch.setattr(_native.transport, "open_pidfd", lambda pid: open_pidfd(next(pids)))
        former_ended, later_ended = Ends(), Ends()
        ExitWatch(f"{NAMESPACE}/1234567", 7, former_ended)
        process.kill()
        process.wait()
        watch = ExitWatch(f"{NAMESPACE}/1234567", 8, later_ended)
        await former_ended.wait()
        assert (later_ended.count, watch.is_active) == (0, True)
        watch.close()


async def test_a_process_that_cannot_be_watched_is_left_alone() -> None:
    """None was sent, it is in another PID namespace, it is this process, or the name is malformed."""
    pids = ("", "-1", "0x1", "1 ", "²", "0", "9" * 30)
    before, ended = descriptors(), Ends()
    for claimed in ("", "/", "/1", "99/1", own_process(), *(f"{NAMESPACE}/{pid}" for pid in pids)):
        assert not ExitWatch(claimed, 7, ended).is_active, claimed
    await asyncio.sleep(0)
    assert (ended.count, descriptors()) == (0, before)


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.EPERM, errno.EMFILE])
async def test_without_pidfds_nothing_is_watched(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    """An old kernel, a seccomp filter, or no free descriptor: sessions end as those of other hosts do."""

    def refuse(pid: int) -> int:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(_native.transport, "open_pidfd", refuse)
    ended = Ends()
    watch = ExitWatch(name(process), 7, ended)
    await asyncio.sleep(0)
    assert (ended.count, watch.is_active) == (0, False)
