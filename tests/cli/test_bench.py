"""`verbena bench` with short runs: the tests check the report, not the values."""

import itertools
import json
import os

import pytest

from verbena.cli import bench
from verbena.cli.measure import probes

pytestmark = pytest.mark.usefixtures("nothing_left_behind")

QUANTILES = ["min", "p50", "p90", "p99", "p99.9", "max"]


@pytest.mark.parametrize(
    ("operation", "mode"),
    list(itertools.product(["send", "read", "write", "atomic"], ["native", "python", "async"])),
)
@pytest.mark.parametrize("what", ["latency", "rate"])
def test_small_operations_are_measured_in_every_mode(verbena, what, operation, mode):
    """Each operation, driven each way, gives ordered quantiles, a baseline and their ratio."""
    arguments = ("bench", what, "--op", operation, "--mode", mode, "--iterations", "40", "--json")
    document = json.loads(verbena(*arguments).stdout)
    (result,) = document["results"]
    values = [result["subject"][name] for name in QUANTILES]
    assert values == sorted(values)
    assert values[0] > 0
    assert result["baseline"]["name"] == "bare ring"
    assert result["ratio"] > 0


@pytest.mark.parametrize("operation", ["send", "read", "write"])
def test_bandwidth_is_compared_with_memcpy(verbena, operation):
    """Each size has one rate and the rate of memcpy."""
    arguments = ("--op", operation, "--size", "4K,64K", "--iterations", "20", "--json")
    document = json.loads(verbena("bench", "bandwidth", *arguments).stdout)
    assert [result["size"] for result in document["results"]] == [4096, 65536]
    assert {result["baseline"]["name"] for result in document["results"]} == {"memcpy"}
    assert document["unit"] == "bytes/s"


@pytest.mark.parametrize(
    ("what", "operation"),
    [("latency", "send"), ("rate", "send"), ("bandwidth", "write"), ("bandwidth", "read")],
)
def test_the_tcp_wire_is_compared_with_a_bare_socket(verbena, what, operation):
    """The baseline of iwarp is a bare TCP socket, for every question."""
    arguments = ("--provider", "iwarp:lo", "--op", operation, "--iterations", "20", "--json")
    (result,) = json.loads(verbena("bench", what, *arguments).stdout)["results"]
    assert result["baseline"]["name"] == "bare TCP"
    assert result["ratio"] > 0


def test_json_contains_the_environment(verbena):
    """Versions, machine and commit make runs comparable."""
    document = json.loads(verbena("bench", "latency", "--iterations", "20", "--json").stdout)
    assert {"versions", "machine", "commit"} <= document["environment"].keys()
    assert document["environment"]["versions"]["verbena"]
    assert document["between"] == "two processes"


def test_text_shows_percentiles_baseline_and_ratio(verbena):
    """The table has a column per percentile; standard error stays empty without a terminal."""
    done = verbena("bench", "latency", "--seconds", "0.2")
    assert all(name in done.stdout for name in [*QUANTILES, "bare ring", "ratio"])
    assert not done.stderr  # progress is for terminals


def test_pinning_is_reported(verbena):
    """The title names the two cores, one for each process."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("pinning needs two cores")
    pin = f"{cores[0]},{cores[1]}"
    document = json.loads(verbena("bench", "latency", "--pin", pin, "--iterations", "20", "--json").stdout)
    assert document["pinned_to"] == cores[:2]


def test_the_in_process_provider_is_measured_between_threads(verbena):
    """The report states that both ends are threads of one process."""
    document = json.loads(
        verbena("bench", "latency", "--provider", "fake", "--iterations", "20", "--json").stdout
    )
    assert document["between"] == "two threads of one process"


@pytest.mark.parametrize(
    "arguments",
    [
        ("latency", "--iterations", "200"),
        ("rate", "--iterations", "50", "--size", "8,64"),
        ("bandwidth", "--iterations", "20", "--size", "4K,64K"),
    ],
)
def test_plot_writes_a_png(verbena, tmp_path, arguments):
    """--plot writes a PNG."""
    pytest.importorskip("matplotlib", reason="plots need matplotlib")
    path = tmp_path / "plot.png"
    verbena("bench", *arguments, "--plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG\r\n")


def test_every_operation_can_be_chosen():
    """The choices of --op are the operations that are measured; the help does not load their code."""
    assert set(bench.OPERATIONS) == set(probes.OPCODES)
