"""Names after a restart of the publisher: keys end with its process, names are looked up again."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from verbena import errors, sync

PUBLISHER = """
import sys
import numpy
import verbena

with verbena.sync.listen(sys.argv[1]) as listener:
    listener.publish("weights", numpy.full(3, int(sys.argv[2])))
    print(listener.address, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def publisher(address: str, value: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PUBLISHER, address, str(value)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize("wire", ["shm", "iwarp"])
def test_a_new_session_finds_the_name_at_the_new_process(wire: str) -> None:
    """The session of the former process fails with an error that says so; its regions are worthless to the
    new one."""
    with publisher("127.0.0.1:0", 1) as (process, address), sync.connect(address, wire=wire) as session:
        remote = session.region("weights")
        assert session.pull(remote).tolist() == [1, 1, 1]
        process.kill()
        process.wait()
        with publisher(address, 2) as (_, same):
            assert same == address
            with pytest.raises(errors.BrokenLinkError):
                session.pull("weights", timeout_s=30)
            with sync.connect(address, wire=wire) as again:
                assert again.pull("weights").tolist() == [2, 2, 2]
                with pytest.raises(errors.DeniedError, match="an earlier run"):
                    again.pull(remote)
