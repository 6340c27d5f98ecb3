"""SIGKILL in the middle of pushes and of a collection: what was acknowledged is there, and nothing is
spoilt."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.registry.filling import image_manifest
from support.registry.process import Process, registry_process

from verbena.registry import digests
from verbena.registry.digests import Digest
from verbena.registry.manifests import OCI_MANIFEST
from verbena.registry.scrub import check

CLIENTS = 6
CONFIG = b"{}"


class Pushers:
    """Clients that push images until the server is killed, and record its acknowledgements."""

    def __init__(self, server: Process, seed: int) -> None:
        self._server = server
        self._seed = seed
        self._lock = threading.Lock()
        self.blobs: dict[Digest, int] = {}
        self.manifests: dict[str, bytes] = {}
        self.count = 0

    def run(self, *, kill_after: int, kill: Callable[[], None]) -> None:
        """Everyone pushes; after so many acknowledgements somebody pulls the trigger, while others push
        on."""
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            for job in [pool.submit(self._push, number, kill_after, kill) for number in range(CLIENTS)]:
                job.result()

    def _push(self, client: int, kill_after: int, kill: Callable[[], None]) -> None:
        choose = random.Random(self._seed * 100 + client)
        for number in range(1000):
            layer = choose.randbytes(choose.choice((100, 70_000, 1_500_000)))
            try:
                config = self._acknowledged(self._server.push_blob("a", CONFIG), 2, kill_after, kill)
                blob = self._acknowledged(self._server.push_blob("a", layer), len(layer), kill_after, kill)
                content = image_manifest((config, 2), [(blob, len(layer))])
                tag = f"t{client}-{number}"
                status, _, body = self._server.request(
                    "PUT", f"/v2/a/manifests/{tag}", content, Content_Type=OCI_MANIFEST
                )
            except (OSError, http.client.HTTPException):
                return  # the server is gone
            assert status == 201, body
            with self._lock:
                self.manifests[tag] = content

    def _acknowledged(self, digest: Digest, size: int, kill_after: int, kill: Callable[[], None]) -> Digest:
        with self._lock:
            self.blobs[digest] = size
            self.count += 1
            if self.count == kill_after:
                kill()
        return digest


def everything_is_there(server: Process, pushed: Pushers) -> None:
    for digest, size in pushed.blobs.items():
        status, headers, content = server.request("GET", f"/v2/a/blobs/{digest}")
        assert (status, headers["Content-Length"]) == (200, str(size))
        assert digests.of(content) == digest
    for tag, expected in pushed.manifests.items():
        assert server.request("GET", f"/v2/a/manifests/{tag}")[2] == expected


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_killed_server_keeps_acknowledged_pushes(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "data"
    with registry_process(folder) as server:
        pushed = Pushers(server, seed)
        pushed.run(kill_after=10 + 7 * seed, kill=server.process.kill)
    assert pushed.blobs
    with registry_process(folder) as server:
        everything_is_there(server, pushed)
        tags = json.loads(server.request("GET", "/v2/a/tags/list")[2])["tags"]
        for tag in tags:  # also those whose acknowledgement got lost
            manifest = json.loads(server.request("GET", f"/v2/a/manifests/{tag}")[2])
            for part in (manifest["config"], *manifest["layers"]):
                content = server.request("GET", f"/v2/a/blobs/{part['digest']}")[2]
                assert str(digests.of(content)) == part["digest"]
        assert server.end() == 0
    assert check(folder).findings == []


def test_an_upload_survives_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    content = os.urandom(2_000_000)
    with registry_process(folder) as server:
        where = server.request("POST", "/v2/a/blobs/uploads/", b"")[1]["Location"]
        assert server.request("PATCH", where, content[:1_500_000])[0] == 202
        server.process.kill()
        server.process.wait()
    with registry_process(folder) as server:
        assert server.request("GET", where)[1]["Range"] == "0-1499999"
        server.request("PATCH", where, content[1_500_000:], Content_Range="1500000-1999999")
        assert server.request("PUT", f"{where}?digest={digests.of(content)}")[0] == 201
        assert server.request("GET", f"/v2/a/blobs/{digests.of(content)}")[2] == content


def test_killed_collections_beside_pushes(tmp_path: Path) -> None:
    """Collections killed at any point remove nothing that is referenced."""
    folder = tmp_path / "data"
    command = [sys.executable, "-c", COLLECT, str(folder)]
    with registry_process(folder) as server:
        for number in range(150):
            server.push_blob("garbage", b"%d" % number)
        pushed = Pushers(server, 9)
        pushers = threading.Thread(target=pushed.run, kwargs={"kill_after": 120, "kill": server.process.kill})
        pushers.start()
        removed = 0
        for attempt in range(1, 9):
            collector = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert collector.stdout is not None
            for _ in range(attempt):  # a line for each blob that goes
                removed += bool(collector.stdout.readline())
            collector.send_signal(signal.SIGKILL)
            collector.communicate()
        pushers.join()
    assert removed
    assert check(folder).findings == []
    with registry_process(folder) as server:
        everything_is_there(server, pushed)


# A collection of what is unused in "garbage", without any grace, that says when it removes a file.
COLLECT = """
import sys
from pathlib import Path
from verbena.registry import gc
from verbena.registry.blobs import BlobStore

class Loud(BlobStore):
    def remove(self, digest):
        print(digest, flush=True)
        super().remove(digest)

gc.BlobStore, gc.BATCH = Loud, 3
gc._UNUSED_LINKS = gc._UNUSED_LINKS.replace(
    "LIMIT", "AND repository = (SELECT id FROM repositories WHERE name = 'garbage') LIMIT"
)
gc.collect(Path(sys.argv[1]), gc.Policy(grace_s=0))
"""
