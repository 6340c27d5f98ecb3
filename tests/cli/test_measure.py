"""The parts of measurements that need no second process."""

import argparse
import contextlib
import io

import pytest
from support.rdma.link import wait_until

from verbena.cli import text
from verbena.cli.measure.rounds import Budget, interleave
from verbena.cli.measure.stats import Summary, median_of_medians
from verbena.cli.progress import Progress, Waiting


class Counting:
    """A probe that returns how often it has been run."""

    def __init__(self, log):
        self._log = log

    def run(self, count):
        self._log.append((self, count))
        return [float(len(self._log))]


def test_quantiles_are_measured_values():
    """Nearest rank: of the thousand numbers, p99.9 is the 999th."""
    summary = Summary.of([float(number) for number in range(1000, 0, -1)])
    assert summary.quantiles == (500.0, 900.0, 990.0, 999.0)
    assert (summary.minimum, summary.maximum, summary.count) == (1.0, 1000.0, 1000)


def test_one_sample_is_every_quantile():
    """The smallest valid input."""
    assert {value for _, value in Summary.of([7.0]).columns()} == {7.0}


def test_no_samples_raise_valueerror():
    """A summary needs at least one sample."""
    with pytest.raises(ValueError, match="no samples"):
        Summary.of([])


def test_a_disturbed_round_does_not_move_the_median():
    """The median of medians ignores one outlier."""
    assert median_of_medians([[1.0, 1.0], [1.0, 1.0], [900.0, 900.0]]) == 1.0


def test_probes_alternate():
    """After the warm-up the order alternates, and every probe runs the same number of operations."""
    log = []
    first, second = Counting(log), Counting(log)
    series = interleave([first, second], Budget(iterations=100, rounds=5))
    assert [probe for probe, _ in log[2:]] == [first, second] * 5
    assert {count for _, count in log[2:]} == {20}
    assert [len(one.rounds) for one in series] == [5, 5]


@pytest.mark.parametrize(("written", "meant"), [("64", 64), ("4K", 4096), ("1MiB", 1 << 20), ("2g", 2 << 30)])
def test_sizes_are_parsed_with_binary_units(written, meant):
    """K, M and G are multiples of 1024."""
    assert text.parse_size(written) == meant


@pytest.mark.parametrize("written", ["", "0", "-1", "K", "1.5M", "1T", "x"])
def test_invalid_sizes_are_rejected(written):
    """Ambiguous text is not guessed."""
    with pytest.raises(argparse.ArgumentTypeError, match="not a size"):
        text.parse_size(written)


@pytest.mark.parametrize(
    ("shown", "meant"),
    [
        (text.duration(84.2), "84 ns"),
        (text.duration(1234), "1.23 µs"),
        (text.duration(45_600_000), "45.6 ms"),
        (text.rate(5_000_000), "5.00 M/s"),
        (text.bandwidth(31.4e9), "31.4 GB/s"),
        (text.size(16 << 20), "16 MiB"),
        (text.size(1000), "1000 B"),
        (text.amount(139_770_251), "133 MiB"),
        (text.amount(1023), "1023 B"),
    ],
)
def test_quantities_have_three_digits(shown, meant):
    """Each has three digits and a unit."""
    assert shown == meant


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_without_a_terminal_is_silent():
    """A log or a pipe gets no bar."""
    stream = io.StringIO()
    with Progress("work", stream=stream) as progress, Waiting("work", stream=stream):
        progress.update(0.5)
    assert stream.getvalue() == ""


def test_progress_on_a_terminal_is_a_bar_that_is_cleared():
    """The bar has the share and the note; nothing of it remains, even after an error."""
    stream = Terminal()
    with contextlib.suppress(ValueError), Progress("work", stream=stream) as progress:
        progress.update(0.5, note="halfway")
        raise ValueError
    assert f"work {'█' * 15}{'·' * 15}  50% halfway" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_waiting_shows_the_time_above_the_lines_of_the_result(monkeypatch, capsys):
    """Short work shows nothing; a line of the result clears the progress first."""
    monkeypatch.setattr("verbena.cli.progress.QUIET_S", 0.0)
    stream = Terminal()
    with Waiting("checking", stream=stream) as waiting:
        wait_until(lambda: "checking … 0 s" in stream.getvalue(), "the time to be shown")
        waiting.say("found")
        assert "\r\x1b[K" in stream.getvalue()
    assert capsys.readouterr().out == "found\n"


def test_progress_can_be_disabled():
    """Disabled, it writes nothing."""
    stream = io.StringIO()
    with Progress("work", enabled=False, stream=stream) as progress:
        progress.update(0.5)
    assert stream.getvalue() == ""
