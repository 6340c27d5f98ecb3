"""The quic wire's options: what is not given comes from the environment, and nonsense is refused."""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path

import pytest

from verbena import errors, verbs
from verbena.verbs import IwarpOptions, QuicOptions, Tls

PAGE = Path(__file__).parents[2] / "docs/reference/quic-options.md"


def variable(option: Field[object]) -> str:
    return f"VERBENA_QUIC_{option.metadata['variable'].partition(',')[0]}"


def test_every_option_is_documented_with_its_variable_and_default():
    """The reference page has a row for each option, and no other row."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if "| `VERBENA_" in line]
    documented = {row[1].strip(" `"): (row[2].split("`")[1], row[3].strip()) for row in rows}
    assert documented == {
        option.name: (
            f"VERBENA_QUIC_{option.metadata['variable'].partition(',')[0]}",
            option.metadata["default"],
        )
        for option in [*fields(QuicOptions), *fields(Tls)]
    }


def test_what_is_not_given_comes_from_the_environment(monkeypatch):
    """Variables are the defaults of what the program leaves out; what it says goes before."""
    monkeypatch.setenv("VERBENA_QUIC_DATAGRAM_BYTES", "1300")
    monkeypatch.setenv("VERBENA_QUIC_MAX_STREAMS", "3")
    monkeypatch.setenv("VERBENA_QUIC_TLS_REVOKED", "/some/list")
    native = QuicOptions(max_streams=5, dead_peer_timeout_s=2.5, revoked="/another").to_native()
    assert (native.datagram_bytes, native.max_streams, native.revoked) == (1300, 5, "/another")
    assert (native.dead_peer_timeout_ms, native.handshake_timeout_ms) == (2500, 5000)


@pytest.mark.parametrize(
    "options",
    [{"datagram_bytes": 1199}, {"datagram_bytes": 70_000}, {"max_streams": 0}, {"stall_timeout_s": -1}],
)
def test_an_option_that_makes_no_sense_is_refused(options):
    """StateError, before anything is opened."""
    with pytest.raises(errors.StateError, match=next(iter(options))):
        QuicOptions(**options).to_native()


def test_options_of_another_wire_are_refused(tls):
    """StateError that names them."""
    with pytest.raises(errors.StateError, match="QuicOptions are not for the provider 'iwarp'"):
        verbs.open_device("iwarp:lo", options=QuicOptions(tls=tls))
    with pytest.raises(errors.StateError, match="IwarpOptions are not for the provider 'quic'"):
        verbs.open_device("quic:lo", options=IwarpOptions())


def test_without_certificates_it_is_not_opened(monkeypatch):
    """StateError, tls_file: QUIC is always encrypted."""
    for part in ("CERTIFICATE", "KEY", "AUTHORITY"):
        monkeypatch.delenv(f"VERBENA_QUIC_TLS_{part}", raising=False)
    with pytest.raises(errors.StateError, match="QUIC is always encrypted") as caught:
        verbs.open_device("quic:lo")
    assert caught.value.code == "tls_file"
