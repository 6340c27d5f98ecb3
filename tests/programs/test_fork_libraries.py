"""The programs of docs/guide/processes.md: libraries that start further processes."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import program_files

from verbena import kv

ROOT = Path(__file__).parents[2]
SNIPPETS = re.findall(
    r"^```python\n# (\w+\.py)\n(.*?)^```$",
    (ROOT / "docs/guide/processes.md").read_text(),
    flags=re.MULTILINE | re.DOTALL,
)
TIMEOUT_S = 40.0


@pytest.fixture
def store(address_of: Callable[[str], str]) -> str:
    return address_of("store")


@pytest.fixture
def folder(tmp_path: Path, store: str) -> Path:
    """The page's programs, with the address of the test's store."""
    for name, text in SNIPPETS:
        (tmp_path / name).write_text(text.replace("127.0.0.1:7471", store))
    return tmp_path


def visits(store: str) -> int:
    with kv.Client(store) as client:
        return int(client.get("visits") or 0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def until(condition: Callable[[], object], process: subprocess.Popen[str], log: Path) -> None:
    """Waits for a condition while the process runs."""
    ends = time.monotonic() + TIMEOUT_S
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if condition():
                return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < ends, log.read_text()
        time.sleep(0.05)


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A program with its log. Ends it and the processes that it has started."""
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder,
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
        )
    try:
        yield process, log
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, folder: Path, store: str) -> None:
    """Workers of every start method use clients of their own."""
    assert program_files.run([folder / "pool.py", method]) == f"{list(range(1, 11))}\n"
    assert visits(store) == 10


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_process_pool_executor(method: str, folder: Path, store: str) -> None:
    """An executor whose parent has used the store before."""
    (folder / "executor.py").write_text(
        "import multiprocessing, sys\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from pool import visit\n"
        "from shared import store\n"
        "if __name__ == '__main__':\n"
        "    store().set('visits', 0)\n"
        "    context = multiprocessing.get_context(sys.argv[1])\n"
        "    with ProcessPoolExecutor(2, mp_context=context) as pool:\n"
        "        print(sorted(pool.map(visit, range(10))), store().get('visits'))\n"
    )
    assert program_files.run([folder / "executor.py", method]) == f"{list(range(1, 11))} b'10'\n"


def test_gunicorn_with_preload(folder: Path, store: str) -> None:
    """The master uses the store before it forks; the workers answer, also those that replace killed ones."""
    pytest.importorskip("gunicorn")
    port = free_port()

    def ask() -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", "/")
            response = connection.getresponse()
            return response.read() if response.status == 200 else b""

    with running(
        folder, "gunicorn", "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}", "app:application"
    ) as (process, log):
        until(ask, process, log)
        counted = [int(ask()) for _ in range(50)]
        assert counted == list(range(counted[0], counted[0] + 50)), log.read_text()
        for worker in children(process.pid):
            os.kill(worker, signal.SIGKILL)
        until(ask, process, log)
        assert int(ask()) > counted[-1]


def test_gunicorn_reports_an_inherited_client(folder: Path, store: str) -> None:
    """An application that opens its client in the master gets the error, with its remedy, at each request."""
    pytest.importorskip("gunicorn")
    (folder / "inherited.py").write_text(
        "from verbena import errors, kv\n"
        f"store = kv.Client({store!r})\n"
        "def application(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    try:\n"
        "        return [b'%d' % store.incr('visits')]\n"
        "    except errors.ClosedError as error:\n"
        "        return [f'{error.code}: {error.remedy}'.encode()]\n"
    )
    port = free_port()

    def ask() -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", "/")
            return connection.getresponse().read()

    with running(folder, "gunicorn", "--preload", "--bind", f"127.0.0.1:{port}", "inherited:application") as (
        process,
        log,
    ):
        until(ask, process, log)
        assert ask().startswith(b"forked: open it in the child")


def test_celery_prefork(folder: Path, store: str) -> None:
    """Tasks run in forked workers; each has a client of its own."""
    pytest.importorskip("celery")
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server, the broker, is not installed")
    port = free_port()
    tasks = folder / "tasks.py"
    tasks.write_text(tasks.read_text().replace("127.0.0.1:6379", f"127.0.0.1:{port}"))
    (folder / "ask.py").write_text(
        "import tasks\n"
        "asked = [tasks.visit.delay() for _ in range(20)]\n"
        f"print(sorted(one.get(timeout={TIMEOUT_S}) for one in asked))\n"
    )
    with kv.Client(store) as client:
        client.set("visits", 0)
    broker = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    try:
        with running(
            folder,
            "celery",
            "--app",
            "tasks",
            "worker",
            "--pool",
            "prefork",
            "--concurrency",
            "2",
            "--loglevel",
            "INFO",
        ) as (process, log):
            until(lambda: " ready." in log.read_text(), process, log)
            assert program_files.run([folder / "ask.py"]) == f"{list(range(1, 21))}\n", log.read_text()
    finally:
        broker.terminate()
        broker.wait(TIMEOUT_S)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_data_loader(folder: Path, store: str) -> None:
    """Workers of a DataLoader read rows while the parent has a client open."""
    total = 4 * sum(range(100))
    assert program_files.run([folder / "dataset.py"]) == f"{float(total)}\n"


def children(parent: int) -> list[int]:
    return [int(number) for number in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
