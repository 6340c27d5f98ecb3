"""Takes the screenshots of the node's page in docs/pictures: a store with clients, light and dark."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import verbena
from verbena import errors, kv

ROOT = Path(__file__).resolve().parents[1]

SECRET = "a secret for pictures only"


def main() -> int:
    out = ROOT / "docs/pictures"
    out.mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        admin = f"127.0.0.1:{free.getsockname()[1]}"
    flags = (
        "--port",
        "0",
        "--session-listen-port",
        "0",
        "--metrics-listen",
        admin,
        "--session-node-name",
        "db1",
    )
    environment = {**os.environ, "VERBENA_SESSION_SECRET": SECRET}
    os.environ["VERBENA_SESSION_SECRET"] = SECRET
    store = subprocess.Popen(
        [sys.executable, "-m", "verbena.cli", "serve", *flags],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert store.stdout is not None
        banner = ""
        while "try:" not in banner:
            banner += store.stdout.readline()
        (address,) = re.findall(r"sessions +(\S+)", banner)
        _take(address, admin, out)
    finally:
        store.terminate()
        store.wait(30)
    return 0


def _take(address: str, admin: str, out: Path) -> None:
    stop = threading.Event()
    pages: list[str] = []  # of the clients' nodes

    def work(wire: str) -> None:
        with kv.Client(address, wire=wire) as client:
            pages.append(client.session.node.serve_metrics("127.0.0.1:0").address)
            place = 0
            while not stop.is_set():
                place += 1
                client.set(f"user:{place % 5000}", "x" * 64)
                client.get(f"user:{place % 5000}")

    threads = [threading.Thread(target=work, args=(wire,)) for wire in ("shm", "iwarp")]
    for thread in threads:
        thread.start()
    with contextlib.suppress(errors.DeniedError):
        verbena.connect_blocking(address, secret="a wrong secret for pictures")
    sys.path.insert(0, str(ROOT / "tests"))
    from support.browser import Browser

    with Browser() as window:
        window.open(f"http://{admin}/")
        window.until("document.querySelectorAll('#sessions-body tbody tr').length >= 2")
        window.until("/[1-9].*\\/s/.test(document.querySelector('#sessions-body td:last-child').textContent)")
        window.evaluate("document.querySelector('#errors-body summary')?.click()")
        for scheme in ("light", "dark"):
            window.prefer(scheme)
            window.picture(out / f"node-page-{scheme}.png")
        window.prefer("light")
        window.open(f"http://{pages[0]}/")
        window.until("document.querySelectorAll('#latency-body svg').length >= 1")
        window.until("!document.querySelector('#latency-body').innerText.includes('since start')")
        window.picture(out / "node-page-client.png")
    stop.set()
    for thread in threads:
        thread.join(20)


if __name__ == "__main__":
    sys.exit(main())
