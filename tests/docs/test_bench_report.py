"""The page of `make bench`: quantities, pictures, tables, raw data, and one real run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import figure, report

    report.Figure = figure.Figure
    return report


WHERE = {
    "machine": {"cpu": "A <fast> one", "cores": 2},
    "versions": {"kernel": "6.1", "python": "3.11"},
    "commit": "abc",
    "load": 0.2,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("233 ns", (233e-9, "time")),
        ("UCX posix, UCP am 1.09 µs", (1.09e-6, "time")),
        ("memcpy 47.6 GB/s", (47.6e9, "bytes")),
        ("37.4 M/s", (37.4e6, "rate")),
        ("1,250 K/s", (1.25e6, "rate")),
        ("10 fds, 239 maps", None),
    ],
)
def test_quantities_are_read_with_their_units(bench: Any, text: str, value: tuple[float, str] | None) -> None:
    found = bench.quantity(text)
    assert (found is None) == (value is None)
    if value is not None:
        assert found == (pytest.approx(value[0]), value[1])


def test_bars_are_proportional_to_their_values(bench: Any) -> None:
    """The longer fills the room, the other its share; what has no two quantities of a kind is not drawn."""
    figures = [
        bench.Figure("read", "1 µs", "other 4 µs", "0.25"),
        bench.Figure("leaks", "0 fds", "0 fds before", "+0"),
        bench.Figure("mixed", "1 µs", "2 GB/s", "?"),
    ]
    drawing = ElementTree.fromstring(bench.chart(figures))
    widths = [float(bar.get("width", "0")) for bar in drawing.iter("rect")]
    assert len(widths) == 2
    assert widths[0] == pytest.approx(widths[1] / 4, abs=0.1)
    assert bench.chart(figures[1:2]) == ""


def test_the_page_contains_machine_commit_and_verdicts_and_loads_nothing(bench: Any) -> None:
    answers = {"reads": [bench.Figure("read", "1 µs", "other 4 µs", "0.25", "< 1", True)]}
    page = bench.page(answers, ["kv: redis-server is <missing>"], WHERE)
    assert "A &lt;fast&gt; one" in page
    assert "commit abc" in page
    assert "1 of 1 bounds kept" in page
    assert "redis-server is &lt;missing&gt;" in page
    assert "busy" not in page
    assert not re.search(r'(?:src|href)="https?:', page)
    assert "was busy" in bench.page(answers, [], {**WHERE, "load": 9.0})


def test_a_real_run_writes_page_and_data(tmp_path: Path) -> None:
    """One short question, as `make bench ARGS=…` runs it."""
    path = tmp_path / "report.html"
    command = [
        sys.executable,
        "-m",
        "bench.run",
        "--only",
        "copies",
        "--seconds",
        "0.05",
        "--report",
        path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert "could not measure" not in done.stderr, done.stderr
    raw = json.loads(path.with_suffix(".json").read_text())
    assert [figure["name"] for figure in raw["questions"]["copies"]]
    assert raw["environment"]["machine"]["cores"] >= 1
    page = path.read_text()
    assert "<svg" in page
    assert 'href="report.json"' in page


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "arguments", [("bench.kv.migration",), ("bench.run", "--dry-run", "--only", "migration")]
)
def test_a_terminated_benchmark_leaves_nothing_behind(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """After SIGTERM, neither its folder nor its servers remain, whether it runs alone or under run.py."""
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        deadline = time.monotonic() + 60
        while not servers_in(tmp_path):
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 128 + signal.SIGTERM
    assert servers_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def servers_in(folder: Path) -> list[int]:
    """Returns the processes whose command line contains a path in the folder."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                if str(folder).encode() in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
            except OSError:
                pass
    return found
