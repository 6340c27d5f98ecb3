"""The stored inputs of the fuzz target `hello`, without a fuzzer."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest
from fuzz.python.hello import check
from fuzz.python.hello_seeds import SEEDS

CORPUS = Path(__file__).parents[1] / "corpus/hello"

# What the stored inputs reach; a change of a format must not leave them behind.
REACHED = {
    "frames: HELLO CHALLENGE PROOF WELCOME ALIVE REFUSAL",
    "frames: bad_message",
    "server: Agreement",
    "server: Agreement bad_message",
    "server: HelloClient",
    "server: HelloClient limit_exceeded",
    "server: nothing credentials",
    "client: Agreement",
    "client: ProbeReply",
    "client: nothing credentials",
    "client: nothing downgrade",
    "client: nothing tls_handshake",
    "server: HelloClient no_common_wire",
    "server: nothing rejected",
    "signed token: LinkRequest",
    "signed token: LinkAnswer",
    "first bytes: LINK",
}


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_a_stored_input_breaks_no_rule(path: Path) -> None:
    """Seeds and former findings."""
    check(path.read_bytes())


def test_the_stored_seeds_are_those_of_the_target() -> None:
    """`make fuzz-seeds` writes them."""
    assert {name: (CORPUS / name).read_bytes() for name in SEEDS} == SEEDS


def test_the_seeds_reach_each_end_of_each_part() -> None:
    assert {check(data) for data in SEEDS.values()} >= REACHED


@pytest.mark.parametrize("name", ["a-server-and-the-wrong-secret", "a-client-and-the-wrong-secret"])
def test_a_missing_check_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With proofs that are not compared, the target reports that a peer without the secret is accepted."""
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: True)
    with pytest.raises(AssertionError, match="without the secret is not accepted"):
        check(SEEDS[name])
