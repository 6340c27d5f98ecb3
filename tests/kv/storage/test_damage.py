"""Files of a store that are truncated, changed, lost or of another version. A torn end is cut off and
reported. Damage is refused with file, offset and LSN, without any change, and `verbena kv` checks and repairs
it."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
from kv.storage.keeping import contents, kept, serving
from support.kv.resp import Connection

from verbena.cli import main
from verbena.errors import StateError, VerbenaError
from verbena.kv.server.server import Server

HEADER = 64


def store(server: Server, key: bytes, value: bytes) -> None:
    server.databases[0].put(key, value)
    server.engine.log(0, (b"SET", key, value))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A directory with a snapshot of two keys and a log of two more, closed in order."""
    directory = tmp_path / "store"
    with kept(directory, fsync="always") as (server, persistence, _):
        store(server, b"a", b"1")
        store(server, b"b", b"22")
        persistence.save()
        store(server, b"c", b"333")
        persistence._log.flush()  # each record is synced separately, and a mark confirms it
        store(server, b"d", b"4444")
    return directory


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The same keys in the log of a server that was killed, without a sync."""
    directory = tmp_path / "store"
    with serving(directory, "no") as (process, port), Connection(port) as connection:
        for key, value in ((b"a", b"1"), (b"b", b"22"), (b"c", b"333"), (b"d", b"4444")):
            connection.run(b"SET", key, value)
        process.kill()
        process.wait()
    return directory


def keys(directory: Path) -> dict[bytes, Any]:
    with kept(directory) as (server, _, _):
        return {key: value for (_, key), (_, value, _) in contents(server).items()}


ALL = {b"a": b"1", b"b": b"22", b"c": b"333", b"d": b"4444"}


def test_a_log_cut_anywhere_gives_the_commands_before_it(killed: Path, tmp_path: Path) -> None:
    """After a crash a prefix is recovered, the rest is cut off, and the next start finds no error."""
    log = max(killed.glob("log-*"))
    counts = set()
    for size in range(
        0, log.stat().st_size + 1, 4
    ):  # for every byte, see tests/native/kv/journal/kv_log_test.cc
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(killed, copy)
        os.truncate(copy / log.name, size)
        found = keys(copy)
        assert found == dict(list(ALL.items())[: len(found)])
        counts.add(len(found))
        assert keys(copy) == found
    assert counts == {0, 1, 2, 3, 4}


def test_a_transaction_is_kept_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """Wherever its log was cut: native commands, others, and one with several effects belong together."""
    directory = tmp_path / "store"
    with serving(directory, "no") as (process, port), Connection(port) as connection:
        connection.run(b"SET", b"before", b"1")
        begins = max(directory.glob("log-*")).stat().st_size
        connection.run(b"MULTI")
        for words in (
            (b"SET", b"a", b"1"),
            (b"LPUSH", b"list", b"x", b"y"),
            (b"MSET", b"b", b"2", b"c", b"3"),
        ):
            assert connection.run(*words) == "QUEUED"
        assert connection.run(b"EXEC") == ["OK", 2, "OK"]
        process.kill()
        process.wait()
    log = max(directory.glob("log-*"))
    seen = []
    for size in range(begins, log.stat().st_size + 1, 3):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(directory, copy)
        os.truncate(copy / log.name, size)
        seen.append(sorted(keys(copy)))
    assert keys(directory) == {b"before": b"1", b"a": b"1", b"b": b"2", b"c": b"3", b"list": [b"y", b"x"]}
    assert [b"before"] in seen
    assert all(found in ([b"before"], [b"a", b"b", b"before", b"c", b"list"]) for found in seen)


def test_a_log_that_ended_in_order_and_is_shorter_now_is_refused(small: Path) -> None:
    log = max(small.glob("log-*"))
    whole = log.read_bytes()
    for size in range(0, len(whole) - 24, 16):
        log.write_bytes(whole[:size])
        with pytest.raises(StateError) as caught:
            keys(small)
        assert caught.value.code == "log_corrupt"
        assert log.read_bytes() == whole[:size]


@pytest.mark.parametrize("kind", ["log", "snapshot"])
def test_a_changed_byte_is_refused_by_file_offset_and_lsn(small: Path, kind: str) -> None:
    """Wherever it is. Only damage in the last mark, which carries no data, is cut off instead."""
    path = max(small.glob(f"{kind}-*"))
    whole = path.read_bytes()
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        if kind == "log" and at >= len(whole) - 24:
            continue  # tested below
        with pytest.raises(StateError) as caught:
            keys(small)
        assert path.name in caught.value.detail
        assert "LSN" in caught.value.detail
        assert "verbena kv repair" in caught.value.remedy
    path.write_bytes(whole)
    assert keys(small) == ALL


def test_a_changed_mark_at_the_end_costs_nothing(small: Path) -> None:
    path = max(small.glob("log-*"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\xff")
    assert keys(small) == ALL


def test_other_versions_and_a_missing_manifest_are_refused(small: Path) -> None:
    manifest = small / "manifest.json"
    right = manifest.read_text()
    for wrong, why in (
        (right.replace('"format": 1', '"format": 2'), "format 2"),
        (right.replace('"epoch": 1', '"epoch": 7'), "checksum"),
        ("{", "not what a store wrote"),
    ):
        manifest.write_text(wrong)
        with pytest.raises(StateError, match="log_corrupt") as caught:
            keys(small)
        assert why in caught.value.detail
    manifest.unlink()
    with pytest.raises(StateError, match="is missing, but there are log-"):
        keys(small)
    manifest.write_text(right)
    log = max(small.glob("log-*"))
    whole = log.read_bytes()
    log.write_bytes(whole[:8] + b"\x02\0\0\0" + whole[12:])
    with pytest.raises(StateError, match="only version 1 is known here"):
        keys(small)


def test_a_file_that_is_gone_is_noticed(small: Path) -> None:
    for path in [*small.glob("log-*"), *small.glob("snapshot-*")]:
        aside = path.rename(small / "aside")
        with pytest.raises(StateError, match="missing"):
            keys(small)
        aside.rename(path)
    assert keys(small) == ALL


def test_check_and_repair(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The damage is reported, then cut off, and the removed part is kept."""
    assert main(["kv", "check", str(small)]) == 0
    assert "intact: 4 records, next LSN 5" in capsys.readouterr().out
    log = max(small.glob("log-*"))
    whole = log.read_bytes()
    damaged = whole[: HEADER + 30] + b"?" + whole[HEADER + 31 :]
    log.write_bytes(damaged)
    assert main(["kv", "check", str(small)]) == 1
    said = capsys.readouterr().out
    assert f"damaged: {log.name} at byte {HEADER}, where LSN 3 is expected: the checksum is" in said
    assert "1 intact records follow" in said
    assert main(["kv", "check", "--json", str(small)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["damage"]["offset"] == HEADER
    assert log.read_bytes() == damaged
    assert main(["kv", "repair", "--yes", str(small)]) == 0
    assert "repaired: 2 records are intact" in capsys.readouterr().out
    assert max(small.glob("*.cut-*")).read_bytes() == damaged[HEADER:]
    assert keys(small) == {b"a": b"1", b"b": b"22"}
    assert main(["kv", "repair", str(small)]) == 0
    assert "nothing to repair" in capsys.readouterr().out


def test_repair_asks_first(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = max(small.glob("log-*"))
    log.write_bytes(log.read_bytes()[: HEADER + 40])
    before = log.read_bytes()
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert main(["kv", "repair", str(small)]) == 1
    assert "no changes made" in capsys.readouterr().out
    assert log.read_bytes() == before
    monkeypatch.setattr("builtins.input", lambda question: "y")
    assert main(["kv", "repair", str(small)]) == 0
    assert keys(small) == {b"a": b"1", b"b": b"22"}


def test_a_lost_manifest_is_made_again(small: Path) -> None:
    (small / "manifest.json").unlink()
    assert main(["kv", "repair", "--yes", str(small)]) == 0
    assert keys(small) == ALL


def test_check_needs_a_directory_that_is_not_in_use(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kv", "check", str(tmp_path / "none")]) == 1
    assert "no directory" in capsys.readouterr().err
    with kept(small):
        assert main(["kv", "check", str(small)]) == 1
    assert "another process uses the store's directory" in capsys.readouterr().err


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_full_disk_stops_writes_until_there_is_room(tmp_path: Path, fsync: str) -> None:
    """No write is acknowledged that was not stored; reads continue; nothing acknowledged is lost."""
    value = b"x" * 1000
    answered = -1
    with serving(tmp_path, fsync, "20000") as (process, port):
        with Connection(port) as connection:
            try:
                for number in range(100):
                    assert connection.run(b"SET", b"k%d" % number, value) == "OK"
                    answered = number
                pytest.fail("the disk was not full")
            except ConnectionError:
                pass  # whether the last one is stored is unknown
        with Connection(port) as connection:
            assert connection.run(b"SET", b"other", b"1").startswith(
                "MISCONF Errors writing to the log: write"
            )
            assert connection.run(b"RPUSH", b"list", b"1").startswith("MISCONF ")
            assert connection.run(b"GET", b"k0") == value
            assert connection.run(b"BGSAVE").startswith("ERR the snapshot cannot be begun")
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            while connection.run(b"SET", b"other", b"1") != "OK":
                pass
            process.kill()
            process.wait()
    found = keys(tmp_path)
    assert {b"k%d" % number for number in range(answered + 1)} | {b"other"} <= found.keys()


def test_nothing_is_changed_by_a_refusal(small: Path) -> None:
    log = max(small.glob("log-*"))
    log.write_bytes(log.read_bytes()[:HEADER] + b"?" * 40)
    before = {path.name: path.read_bytes() for path in small.iterdir() if path.name != "lock"}
    with pytest.raises(VerbenaError):
        keys(small)
    assert {path.name: path.read_bytes() for path in small.iterdir() if path.name != "lock"} == before
