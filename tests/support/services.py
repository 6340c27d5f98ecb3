"""Each service of Verbena as its own process, in a folder that holds all its files, and one use of it. The
same programs that the systemd units start."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import fsspec
import numpy
import redis

from verbena import far, kv, sync
from verbena.registry import digests

VERBENA = (sys.executable, "-m", "verbena")


@dataclass(frozen=True)
class Service:
    """`arguments` of the command, where {folder} is the service's folder; `ready`: a line with the address,
    the last one that the service prints; `use` of that address writes something to the folder."""

    unit: str
    arguments: str
    ready: str
    use: Callable[[str, Path], None]


def _use_store(banner: str, folder: Path) -> None:
    with redis.Redis(unix_socket_path=str(folder / "store.sock")) as client:
        client.set("a", "1")
        client.execute_command("ACL", "SETUSER", "alice", "on", ">password", "+@all", "~*")
        client.execute_command("ACL", "SAVE")
        client.save()
        client.set("a", "2")
    with kv.Client(_address(r"sessions +(\S+)", banner)) as direct:
        assert direct.get("a") == b"2"


def _use_cluster(banner: str, folder: Path) -> None:
    port = int(_address(r"redis +\S+:(\d+)", banner))
    with redis.Redis(port=port) as client:
        assert client.execute_command("CLUSTER", "MYID")


def _use_registry(banner: str, folder: Path) -> None:
    import http.client

    content = b"a layer"
    connection = http.client.HTTPConnection(_address(r"http://(\S+)", banner), timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", "/v2/app/blobs/uploads/")
        answer = connection.getresponse()
        answer.read()
        where = answer.headers["Location"]
        connection.request("PUT", f"{where}?digest={digests.of(content)}", content)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        answer.read()
        connection.request("POST", "/v2/app/blobs/uploads/")
        answer = connection.getresponse()
        answer.read()
        connection.request("PATCH", answer.headers["Location"], b"half of")
        assert connection.getresponse().status == 202


def _use_memory_node(banner: str, folder: Path) -> None:
    address = _address(r"memory node at (\S+):", banner)
    with sync.connect(address) as session, far.zeros(session, (1000,), "int64") as array:
        array[:] = numpy.arange(1000)
        assert array[999] == 999


def _use_file_node(banner: str, folder: Path) -> None:
    files = fsspec.filesystem("verbena", skip_instance_cache=True, **_host_port(banner))
    files.pipe_file("made/by/a/client", b"content")
    assert files.cat_file("made/by/a/client") == b"content"
    files.close()


SERVICES = {
    "store": Service(
        "verbena",
        "serve --port 0 --session-listen-port 0 --kv-unix-socket {folder}/store.sock"
        " --kv-persistence-dir {folder}/data --kv-acl-file {folder}/users.acl"
        " --session-capture-folder {folder}",
        r"^try: ",
        _use_store,
    ),
    "cluster": Service(
        "verbena",
        "serve --port 0 --session-listen-port 0 --cluster-enabled"
        " --kv-persistence-dir {folder}/data --cluster-map-store sqlite://{folder}/map.db",
        r"^try: ",
        _use_cluster,
    ),
    "registry": Service(
        "verbena-registry",
        "registry --port 0 --folder {folder}/data --registry-access-log {folder}/access.log"
        " --rdma-enabled --rdma-listen-addr 127.0.0.1 --rdma-listen-port 0"
        " --session-capture-folder {folder}",
        r"^  folder",
        _use_registry,
    ),
    "memory-node": Service(
        "verbena-memory-node",
        "memory-node --size 16MiB --listen 127.0.0.1:0",
        r"^memory node",
        _use_memory_node,
    ),
    "file-node": Service(
        "verbena-file-node",
        "file-node {folder} --writable --listen 127.0.0.1:0",
        r"^file node",
        _use_file_node,
    ),
}


@contextlib.contextmanager
def running(
    service: Service, folder: Path, *, prefix: Sequence[str] = (), umask: int = 0o022
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and what it printed. It ends with SIGTERM."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERBENA_")}
    words = [word.replace("{folder}", str(folder)) for word in service.arguments.split()]
    with open(folder.parent / "errors", "w+") as errors:
        process = subprocess.Popen(
            [*prefix, *VERBENA, *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            cwd=folder,
            umask=umask,
        )
        assert process.stdout is not None
        banner = ""
        try:
            for line in process.stdout:
                banner += line
                if re.match(service.ready, line):
                    break
            else:
                errors.seek(0)
                raise AssertionError(f"the service did not start: {banner}{errors.read()}")
            yield process, banner
        finally:
            process.terminate()
            process.wait(40)
            process.stdout.close()


def _address(pattern: str, banner: str) -> str:
    found = re.search(pattern, banner, re.M)
    assert found is not None, banner
    return found[1]


def _host_port(banner: str) -> dict[str, str | int]:
    host, _, port = _address(r"verbena://(\S+)/:", banner).rpartition(":")
    return {"host": host, "port": int(port)}
