"""The iwarp wire's options: what is not given comes from the environment, and nonsense is refused."""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path

import pytest
from support.rdma.link import connect_managed, make_end

from verbena import errors, verbs
from verbena.verbs import IwarpOptions, Tls

PAGE = Path(__file__).parents[2] / "docs/reference/iwarp-options.md"


def variable(option: Field[object]) -> str:
    return f"VERBENA_IWARP_{option.metadata['variable'].partition(',')[0]}"


def test_every_option_is_documented_with_its_variable_and_default():
    """The reference page has a row for each option, and no other row."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {row[1].strip(" `"): (row[2].split("`")[1], row[3].strip()) for row in rows}
    options = [*fields(IwarpOptions), *fields(Tls)]
    assert documented == {
        option.name: (
            f"VERBENA_IWARP_{option.metadata['variable'].partition(',')[0]}",
            option.metadata["default"],
        )
        for option in options
    }


def test_what_is_not_given_comes_from_the_environment(monkeypatch):
    """Variables are the defaults of what the program leaves out; what it says goes before."""
    monkeypatch.setenv("VERBENA_IWARP_CRC", "0")
    monkeypatch.setenv("VERBENA_IWARP_STALL_TIMEOUT_S", "2.5")
    monkeypatch.setenv("VERBENA_IWARP_MAX_HANDSHAKES", "7")
    native = IwarpOptions(max_handshakes=9, handshake_timeout_s=0.25).to_native()
    assert (native.crc, native.stall_timeout_ms, native.max_handshakes) == (False, 2500, 9)
    assert (native.handshake_timeout_ms, native.dead_peer_timeout_ms) == (250, 60_000)
    assert native.tls is None


def test_the_defaults_are_those_of_the_page(monkeypatch):
    """Without variables and arguments an option has the default that its metadata says."""
    for option in fields(IwarpOptions):
        monkeypatch.delenv(f"VERBENA_IWARP_{option.metadata['variable']}", raising=False)
    native = IwarpOptions().to_native()
    assert native.crc is None  # on, but for TLS
    for option in fields(IwarpOptions):
        if option.name in ("tls", "crc"):
            continue
        value = getattr(
            native, option.name.removesuffix("_s") + "_ms" if option.name.endswith("_s") else option.name
        )
        assert value == int(option.metadata["default"]) * (1000 if option.name.endswith("_s") else 1)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("CRC", "maybe"), ("STALL_TIMEOUT_S", "soon"), ("HANDSHAKE_TIMEOUT_S", "-1"), ("MAX_HANDSHAKES", "0")],
)
def test_a_variable_that_makes_no_sense_is_refused(monkeypatch, variable, value):
    """Opening the device raises StateError that names the variable and what it must be."""
    monkeypatch.setenv(f"VERBENA_IWARP_{variable}", value)
    with pytest.raises(errors.StateError, match=f"VERBENA_IWARP_{variable} is '{value}'; it must be"):
        verbs.open_device("iwarp")


@pytest.mark.parametrize(
    "name", ["handshake_timeout_s", "stall_timeout_s", "dead_peer_timeout_s", "max_handshakes"]
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_makes_no_sense_is_refused(name, value):
    """A limit must be above zero and finite."""
    with pytest.raises(errors.StateError, match=name):
        verbs.open_device("iwarp", options=IwarpOptions(**{name: value}))


def test_options_of_another_wire_are_refused():
    """IwarpOptions given to another provider raise StateError, rather than be ignored."""
    with pytest.raises(errors.StateError, match="fake"):
        verbs.open_device("fake", options=IwarpOptions(crc=False))


@pytest.mark.parametrize(("ours", "theirs", "agreed"), [(True, False, "crc32c"), (False, False, "none")])
def test_checksums_are_used_if_either_end_asks_for_them(ours, theirs, agreed):
    """crc=False at both ends does without; one end that asks is enough."""
    with (
        verbs.open_device("iwarp:lo", options=IwarpOptions(crc=ours)) as left,
        verbs.open_device("iwarp:lo", options=IwarpOptions(crc=theirs)) as right,
    ):
        a, b = (make_end(context) for context in (left, right))
        connect_managed(a, b)
        assert a.qp.capabilities["checksum"] == b.qp.capabilities["checksum"] == agreed
        a.qp.sync.write(a.region(b"written"), b.region(7).remote)
