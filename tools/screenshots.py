"""Takes the screenshots of the node's page in docs/pictures: a store with clients, light and dark."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from pathlib import Path

import verbena
from verbena import errors, kv

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Browser  # noqa: E402
from support.kv.store_page import store_with_page  # noqa: E402

SECRET = "a secret for pictures only"


def main() -> int:
    out = ROOT / "docs/pictures"
    out.mkdir(exist_ok=True)
    os.environ["VERBENA_SESSION_SECRET"] = SECRET
    with store_with_page("db1") as (banner, page):
        (address,) = re.findall(r"sessions +(\S+)", banner)
        _take(address, page, out)
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
        verbena.sync.connect(address, secret="a wrong secret for pictures")

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
