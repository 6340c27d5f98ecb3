"""A notebook that closes nothing: its kernel ends soon, and its peers see that at once."""

from __future__ import annotations

import time

import pytest

import verbena

# The loop of the kernel runs in all cells, so that a session of one cell is used in the next.
CELLS = [
    "import verbena",
    "session = await verbena.connect({address!r})\nblocking = verbena.sync.connect({address!r})",
    "assert await session.call('echo', b'hi') == b'hi'\nblocking.call('echo', b'hi')",
    "listener = await verbena.listen('127.0.0.1:0')\nlistener.address",
]


def test_a_kernel_ends_with_open_sessions() -> None:
    notebooks = pytest.importorskip("nbformat").v4
    client = pytest.importorskip("nbclient").NotebookClient
    pytest.importorskip("ipykernel")
    with verbena.sync.listen("127.0.0.1:0", handlers={"echo": lambda request: request.payload}) as peer:
        cells = [notebooks.new_code_cell(cell.format(address=peer.address)) for cell in CELLS]
        runner = client(notebooks.new_notebook(cells=cells), timeout=60, kernel_name="python3")
        with runner.setup_kernel():
            for number, cell in enumerate(cells):
                runner.execute_cell(cell, number)
            assert len(peer.sessions) == 2
            assert cells[2].outputs[0]["data"]["text/plain"] == "b'hi'"
            begun = time.monotonic()
            runner.kc.shutdown()
            while peer.sessions:
                assert time.monotonic() - begun < 10
                time.sleep(0.01)
