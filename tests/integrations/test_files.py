"""fsspec's file system over sessions: fsspec's own abstract tests, ranges, uploads, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

import verbena
from verbena.integrations.file_server import UPLOADS, FileServer
from verbena.integrations.files import FileSystem

MiB = 1 << 20


@contextlib.contextmanager
def served(folder: Path, *, writable: bool = True) -> Iterator[str]:
    """A server on a thread with a loop of its own, as another program would be; its address."""
    ready: threading.Event = threading.Event()
    found: dict[str, object] = {}

    async def serve() -> None:
        server = FileServer(folder, writable=writable)
        async with verbena.listen("127.0.0.1:0", handlers=server.handlers) as listener:
            stop = asyncio.Event()
            found.update(address=listener.address, loop=asyncio.get_running_loop(), stop=stop)
            ready.set()
            await stop.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    try:
        yield str(found["address"])
    finally:
        found["loop"].call_soon_threadsafe(found["stop"].set)  # type: ignore[attr-defined]
        thread.join(20)


@contextlib.contextmanager
def opened(folder: Path, *, writable: bool = True) -> Iterator[FileSystem]:
    with served(folder, writable=writable) as address:
        host, _, port = address.rpartition(":")
        fs = FileSystem(host, int(port), skip_instance_cache=True)
        try:
            yield fs
        finally:
            fs.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileSystem]:
    with opened(tmp_path_factory.mktemp("exported")) as fs:
        yield fs


class VerbenaFixtures(AbstractFixtures):
    """fsspec's tests run against a folder of this machine, by a session."""

    @pytest.fixture
    def fs(self, shared: FileSystem) -> FileSystem:
        return shared

    @pytest.fixture
    def fs_path(self, shared: FileSystem, request: pytest.FixtureRequest) -> str:
        return f"test-{abs(hash(request.node.nodeid))}"


class TestCopy(VerbenaFixtures, AbstractCopyTests):
    """cp within the server."""


class TestGet(VerbenaFixtures, AbstractGetTests):
    """get from the server."""


class TestPut(VerbenaFixtures, AbstractPutTests):
    """put to the server."""


class TestPipe(VerbenaFixtures, AbstractPipeTests):
    """pipe and cat."""


class TestOpen(VerbenaFixtures, AbstractOpenTests):
    """open in the modes that make and refuse."""


@pytest.fixture
def fs(tmp_path: Path) -> Iterator[FileSystem]:
    with opened(tmp_path) as opened_fs:
        yield opened_fs


def test_ranges_of_a_long_file_are_its_bytes(fs: FileSystem, tmp_path: Path) -> None:
    """Longer than one message: whole, parts, from the end, past the end."""
    data = numpy.random.default_rng(3).bytes(20 * MiB + 7)
    (tmp_path / "data").write_bytes(data)
    assert fs.cat_file("data") == data
    for start, end in ((0, 1), (17 * MiB, 19 * MiB), (-5, None), (5, -5), (20 * MiB, 30 * MiB), (9, 9)):
        assert fs.cat_file("data", start, end) == data[start:end]
    with fs.open("data", "rb", block_size=MiB) as file:
        file.seek(3 * MiB)
        assert file.read(2 * MiB) == data[3 * MiB : 5 * MiB]


def test_a_file_appears_whole_when_it_is_closed(fs: FileSystem, tmp_path: Path) -> None:
    """Uploaded in blocks beside the folder's files, and put in place by one rename."""
    data = numpy.random.default_rng(4).bytes(3 * MiB)
    with fs.open("deep/er/file", "wb", block_size=MiB) as file:
        file.write(data)
        assert not (tmp_path / "deep").exists()
        assert fs.ls("") == []
    assert (tmp_path / "deep/er/file").read_bytes() == data
    assert list((tmp_path / UPLOADS).iterdir()) == []


def test_appending_keeps_what_was_there(fs: FileSystem, tmp_path: Path) -> None:
    fs.pipe_file("log", b"one\n")
    with fs.open("log", "ab") as file:
        file.write(b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_an_upload_that_is_not_finished_goes_with_its_session(fs: FileSystem, tmp_path: Path) -> None:
    fs._ask("begin")
    assert len(list((tmp_path / UPLOADS).iterdir())) == 1
    fs.close()
    for _ in range(1000):  # each is a request by a new session, served after the former one's end was
        if not list((tmp_path / UPLOADS).iterdir()):
            break
        fs.info("")
    assert list((tmp_path / UPLOADS).iterdir()) == []


def test_folders_are_made_listed_moved_and_removed(fs: FileSystem, tmp_path: Path) -> None:
    fs.makedirs("a/b")
    fs.pipe({"a/b/1": b"1", "a/2": b"22"})
    assert fs.find("a") == ["a/2", "a/b/1"]
    assert fs.glob("a/**/1") == ["a/b/1"]
    assert fs.info("a/2")["size"] == 2
    assert fs.info("a")["type"] == "directory"
    fs.mv("a/2", "a/b/2")
    assert fs.ls("a/b", detail=False) == ["a/b/1", "a/b/2"]
    assert fs.modified("a/b/1").timestamp() == pytest.approx((tmp_path / "a/b/1").stat().st_mtime)
    fs.rm("a", recursive=True)
    assert fs.ls("") == []


def test_errors_are_those_of_a_local_file_system(fs: FileSystem) -> None:
    fs.mkdir("folder")
    fs.pipe_file("folder/file", b"")
    with pytest.raises(FileNotFoundError):
        fs.cat_file("nothing")
    with pytest.raises(IsADirectoryError):
        fs._ask("read", path="folder", start=0, length=1)
    with pytest.raises(FileExistsError):
        fs.mkdir("folder")
    with pytest.raises(FileExistsError):
        fs.open("folder/file", "xb").close()
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("folder")


@pytest.mark.parametrize("path", ["../secret", "link/secret", "a/../../secret", UPLOADS])
def test_paths_that_lead_out_are_refused(tmp_path: Path, path: str) -> None:
    """Also by links that lie in the folder."""
    (tmp_path / "secret").write_text("no")
    exported = tmp_path / "exported"
    exported.mkdir()
    (exported / "link").symlink_to(tmp_path)
    with opened(exported) as fs:
        for do, words in (
            ("info", {}),
            ("list", {}),
            ("read", {"start": 0, "length": 1}),
            ("remove", {}),
            ("mkdir", {"parents": True, "exist_ok": True}),
        ):
            with pytest.raises(PermissionError):
                fs._ask(do, path=path, **words)
    assert (tmp_path / "secret").read_text() == "no"


def test_a_folder_is_read_only_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with opened(tmp_path, writable=False) as fs:
        assert fs.cat_file("file") == b"here"
        for change in (
            lambda: fs.pipe_file("other", b"x"),
            lambda: fs.rm_file("file"),
            lambda: fs.mkdir("folder"),
            lambda: fs.cp_file("file", "copy"),
            lambda: fs.mv_file("file", "moved"),
        ):
            with pytest.raises(OSError, match="read-only"):
                change()
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


def test_nonsense_is_an_error_of_its_own(fs: FileSystem) -> None:
    """Unknown requests, unknown words, ranges that no message holds: the server goes on."""
    for do, words in (
        ("format", {}),
        ("read", {"path": ""}),
        ("read", {"path": "", "start": 0, "length": -1}),
    ):
        with pytest.raises(OSError, match=r"unknown request|argument|at once"):
            fs._ask(do, **words)
    assert fs.ls("") == []


def test_fsspec_finds_the_file_system_by_its_address(tmp_path: Path) -> None:
    """`verbena://host:port/path` is all that pandas and the like know."""
    (tmp_path / "greeting").write_text("hello")
    with served(tmp_path) as address:
        fs, path = fsspec.core.url_to_fs(f"verbena://{address}/greeting")
        assert isinstance(fs, FileSystem)
        assert path == "greeting"
        with fsspec.open(f"verbena://{address}/greeting", "rt") as file:
            assert file.read() == "hello"
        assert fs.unstrip_protocol(path) == f"verbena://{address}/greeting"
        fs.close()
