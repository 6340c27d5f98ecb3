"""The node's page in a real browser while a replica follows and slots move."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path

import pytest
from support import browser
from support.kv.cluster import MAIN, Cluster, Node, cluster


def panel(title: str) -> str:
    """A JavaScript expression for the panel's section."""
    named = f"s.querySelector('h2').textContent === '{title}'"
    return f"[...document.querySelectorAll('#panels section')].find(s => {named})"


def shards(made: Cluster, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*MAIN, "shards", *words, "--cluster-map-store", made.store])


@pytest.mark.timeout(150)
def test_replicas_and_moves_are_shown_while_they_happen(tmp_path: Path) -> None:
    """A replica with a growing offset, a move with its phase until it is done, and the map."""
    if browser.PROGRAM is None:
        pytest.skip(browser.REASON)
    with socket.create_server(("127.0.0.1", 0)) as free:
        admin = f"127.0.0.1:{free.getsockname()[1]}"
    with cluster(tmp_path, 1) as made:
        (source,) = made.nodes
        source.kill()
        source.options = ("--metrics-listen", admin)
        made.nodes += [Node(tmp_path, made.store, name) for name in ("n1", "n2")]
        for node in made.nodes:
            node.start()
        for node in made.nodes:
            node.ready()
        target, replica = made.nodes[1:]
        with source.client() as client, browser.Browser() as window:
            pipeline = client.pipeline(transaction=False)
            for number in range(4000):
                pipeline.set(f"key:{number}", b"x" * 1000)
            pipeline.execute()

            assert replica.raw("CLUSTER", "REPLICATE", source.id) == b"OK"
            window.open(f"http://{admin}/")
            window.until(f"/connected_slaves\\s*1\\b/.test({panel('Replication')}?.innerText)")
            window.until(f"/state=online/.test({panel('Replication')}.innerText)")
            offset = f"Number(/master_repl_offset\\s*(\\d+)/.exec({panel('Replication')}.innerText)[1])"
            before = window.evaluate(offset)
            client.set("one more", "x" * 10_000)
            window.until(f"{offset} > {before + 10_000}")

            assert target.process is not None
            target.process.send_signal(signal.SIGSTOP)
            moving = shards(made, "move", "8192-16383", "n1")
            window.until(f"/8192-16383\\s+n1\\s+\\S/.test({panel('Moves')}.innerText)")
            assert "done" not in window.evaluate(f"{panel('Moves')}.innerText")
            target.process.send_signal(signal.SIGCONT)
            assert moving.wait(90) == 0
            window.until(f"/8192-16383\\s+n1\\s+done\\s+shm/.test({panel('Moves')}.innerText)")
            window.until(f"/n1\\s.*primary.*8192-16383/.test({panel('Shards')}.innerText)")
            assert "replica of n0" in window.evaluate(f"{panel('Shards')}.innerText")
            asked = {url.split("/")[2] for url in window.requests if url.startswith("http")}
            assert asked == {admin}
