"""The backlog (the log in memory) as Python uses it: base copies, readers and appliers, with every type of
value."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kv.storage.keeping import contents, kept
from support.kv.resp import Connection

from verbena._native import kv
from verbena.errors import VerbenaError
from verbena.kv.replication.log_applier import make_applier
from verbena.kv.server.server import Server


@contextlib.contextmanager
def served(server: Server) -> Iterator[Callable[..., None]]:
    """Runs commands on one connection in sequence and waits for their replies."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        server.engine.listen(listener.fileno())
        server.start()
        with Connection(listener.getsockname()[1]) as connection:

            def run(*commands: str) -> None:
                connection.run(b"SELECT", b"0")
                for command in commands:
                    reply = connection.run(*command.encode().split())
                    assert not str(reply).startswith(("ERR", "WRONGTYPE")), (command, reply)

            run.connection = connection  # type: ignore[attr-defined]
            yield run
        server.stop()


FILL = (
    "SET string value",
    "SET timed value EX 1000",
    "RPUSH list a b c",
    "SADD set x y z",
    "HSET hash f 1 g 2",
    "ZADD zset 1 one 2 two",
    "SELECT 3",
    "RPUSH elsewhere 1 2 3",
)
MORE = (
    "APPEND string more",
    "RPUSH list d",
    "LPOP list",
    "HINCRBY hash f 41",
    "ZINCRBY zset 5 one",
    "SPOP set",
    "MULTI",
    "INCR counter",
    "RPUSH list e",
    "EXEC",
    "RENAME string renamed",
    "SWAPDB 0 3",
    "COPY list copy",
)


def test_a_copy_and_the_log_after_it_make_the_same_contents_of_every_type() -> None:
    """Values are copied between commands; records after the copy arrive once and in order."""
    source, target = Server(), Server()
    applied = make_applier(target)
    with served(source) as run:
        run(*FILL)
        copy = source.base_copy()
        while piece := copy.read(100):
            applied.apply(piece)
        assert copy.complete
        assert applied.complete
        assert contents(target) == contents(source)
        follower = copy.take_reader()
        run(*MORE)
        assert follower.lag() > 5
        pieces = []
        while follower.lag():
            piece, _next = follower.read(200)
            pieces.append(piece)
    for piece in pieces:
        applied.apply(piece)
    assert applied.failed == 0, applied.first_failure
    assert applied.idle
    assert contents(target) == contents(source)
    assert applied.offset == source.engine.backlog_counters()["offset"]
    before = applied.applied
    for piece in pieces:  # a second time
        applied.apply(piece)
    assert applied.applied == before
    assert contents(target) == contents(source)


def test_some_slots() -> None:
    """A reader of slots gets only the records of those slots, and an applier of other slots refuses them."""
    source, target = Server(), Server()
    follower = source.follow([kv.key_slot(b"list")])
    with served(source) as run:
        run(*FILL)
        piece, next_lsn = follower.read()
    assert next_lsn == len(FILL)  # SELECT is no record
    applied = make_applier(target, slots=[kv.key_slot(b"list")])
    assert applied.apply(piece) == 3
    assert list(contents(target)) == [(0, b"list")]
    with pytest.raises(VerbenaError, match="another slot"):
        make_applier(target, slots=[1]).apply(piece)


def test_the_log_on_disk_and_in_memory_have_the_same_lsns(tmp_path: Path) -> None:
    """With persistence the backlog's positions are those of the log; effects of an applier are stored,
    too."""
    with kept(tmp_path / "source", fsync="no") as (source, persistence, _), served(source) as run:
        run("SET a 1", "SET b 2")
        assert persistence.lsn == 2
        follower = source.follow()
        assert follower.next_lsn == 3
        run(*FILL, *MORE)
        assert source.engine.backlog_counters()["lsn"] == persistence.lsn
        piece, next_lsn = follower.read(1 << 20)
        assert next_lsn == persistence.lsn + 1
        with pytest.raises(ValueError, match="base copy"):
            source.follow(from_lsn=1)
        copy = source.base_copy()
        with kept(tmp_path / "target", fsync="no") as (target, _persistence, _):
            applied = make_applier(target)
            while piece := copy.read():
                applied.apply(piece)
            applied.close()
            assert contents(target) == contents(source)
        with kept(tmp_path / "target", fsync="no") as (again, _persistence, said):
            assert contents(again) == contents(source), said


def test_a_reader_too_far_behind_gets_an_error() -> None:
    """The backlog is bounded; a reader that is too far behind needs a base copy."""
    source = Server()
    source.engine.set_backlog_limits(keep_bytes=70_000, max_bytes=70_000)
    follower = source.follow()
    with served(source) as run:
        run(*[f"SET key{i} {'x' * 1000}" for i in range(500)])
    with pytest.raises(ValueError, match="base copy"):
        follower.read(1 << 20)
