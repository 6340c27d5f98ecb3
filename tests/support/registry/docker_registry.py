"""The distribution's docker-registry on loopback: an independent registry to pull from and to compare
with."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType

from support.ports import free_port

PROGRAM = shutil.which("docker-registry")
REASON = "docker-registry is not installed"
_CONFIG = """\
version: 0.1
log: {{level: error}}
storage:
  filesystem: {{rootdirectory: {folder}}}
  delete: {{enabled: true}}
http: {{addr: "127.0.0.1:{port}"}}
"""


class DockerRegistry:
    """Serves `folder`. A context manager."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "config.yml"
        config.write_text(_CONFIG.format(folder=folder / "data", port=self.port))
        self.process = subprocess.Popen(
            [PROGRAM, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 30
        while self.request("GET", "/v2/")[0] != 200:
            assert time.monotonic() < deadline, "docker-registry does not answer"
            time.sleep(0.05)

    def request(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {key.replace("_", "-"): v for key, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        except ConnectionRefusedError:
            return 0, {}, b""
        finally:
            connection.close()

    def push(self, repository: str, digest: str, content: bytes) -> None:
        status, headers, _ = self.request("POST", f"/v2/{repository}/blobs/uploads/")
        assert status == 202
        location = headers["Location"].removeprefix(self.url)
        status, _, body = self.request(
            "PUT", f"{location}&digest={digest}", content, Content_Type="application/octet-stream"
        )
        assert status == 201, body

    def push_manifest(self, repository: str, tag: str, content: bytes) -> None:
        kind = json.loads(content)["mediaType"]
        status, _, body = self.request("PUT", f"/v2/{repository}/manifests/{tag}", content, Content_Type=kind)
        assert status == 201, body

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()

    def __enter__(self) -> DockerRegistry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
