"""OpenStack Swift on loopback with its S3 interface: an independent object store. The distribution's
programs, one device, one copy of each object, in a temporary folder."""

from __future__ import annotations

import datetime
import getpass
import http.client
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType

from support.ports import free_port

PROGRAM = shutil.which("swift-proxy-server")
REASON = "swift-proxy-server is not installed"
KEY, SECRET, BUCKET = "test:tester", "a-secret-of-the-tests", "images"

_RING = """
from swift.common.ring.builder import RingBuilder
for name, port in zip(("account", "container", "object"), ({ports})):
    builder = RingBuilder(4, 1, 0)
    builder.add_dev(dict(id=0, region=1, zone=1, ip="127.0.0.1", port=port, device="disk", weight=1))
    builder.rebalance()
    builder.get_ring().save(f"{folder}/{{name}}.ring.gz")
"""
_SERVER = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {folder}
devices = {folder}
mount_check = false
workers = 0
log_address = /nowhere
"""
_STORAGE = """
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
replication_server = false
"""
_PROXY = """
[pipeline:main]
pipeline = healthcheck cache s3api tempauth bulk slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
node_timeout = 60
[filter:healthcheck]
use = egg:swift#healthcheck
# Nobody listens there: it is asked for, and can be done without.
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
"""


class Swift:
    """Four servers. A context manager. `url` serves S3 to clients with KEY and SECRET."""

    def __init__(self, folder: Path) -> None:
        (folder / "disk").mkdir(parents=True)
        (folder / "swift.conf").write_text("[swift-hash]\nswift_hash_path_suffix = tests\n")
        names = ("account", "container", "object", "proxy")
        ports = dict(zip(names, (free_port() for _ in names), strict=True))
        script = _RING.format(ports=", ".join(str(ports[name]) for name in names[:3]), folder=folder)
        # Swift is installed for the system's Python.
        subprocess.run(["/usr/bin/python3", "-c", script], check=True, timeout=60)
        self.port = ports["proxy"]
        self.url = f"http://127.0.0.1:{self.port}"
        self.disk = folder / "disk"
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start(folder, ports)
        except BaseException:
            self.close()
            raise

    def _start(self, folder: Path, ports: dict[str, int]) -> None:
        for name, port in ports.items():
            text = _SERVER.format(port=port, user=getpass.getuser(), folder=folder)
            rest = _PROXY.format(secret=SECRET) if name == "proxy" else _STORAGE.format(name=name)
            (folder / f"{name}.conf").write_text(text + rest)
            with (folder / f"{name}.log").open("wb") as log:
                program = [shutil.which(f"swift-{name}-server") or "", str(folder / f"{name}.conf"), "-v"]
                self._processes.append(subprocess.Popen(program, stdout=log, stderr=log))
        for name, port in ports.items():
            _wait(port, folder / f"{name}.log")

    def make_bucket(self) -> None:
        """Creates a bucket through a presigned address, because obstore cannot create buckets."""
        import obstore
        from obstore.store import S3Store

        store = S3Store(
            BUCKET,
            endpoint=self.url,
            access_key_id=KEY,
            secret_access_key=SECRET,
            client_options={"allow_http": True},
        )
        address = obstore.sign(store, "PUT", "", datetime.timedelta(seconds=60))
        urllib.request.urlopen(urllib.request.Request(address, method="PUT"), timeout=60).close()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def __enter__(self) -> Swift:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _wait(port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/healthcheck")
            connection.getresponse().read()
            return
        except (ConnectionRefusedError, ConnectionResetError):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        finally:
            connection.close()
