"""Sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verbena.config.kinds import InvalidValue, Size, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GB", 10**9),
        ("1GiB", 1 << 30),
        ("4MiB", 4 << 20),
        ("4mib", 4 << 20),
        ("64 KiB", 65536),
        ("1.5kB", 1500),
        ("0.5KiB", 512),
        ("2TB", 2 * 10**12),
        ("4096", 4096),
        ("4096B", 4096),
        (" 7 ", 7),
    ],
)
def test_decimal_and_binary_units_differ(text, size):
    """GB counts by 1000, GiB by 1024; letters may be small."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GB", "1G", "-1", "1e9", "1,5GB", "0x10", "1 G B", "1GBB", "1.3B", "١GB", "9" * 40, "1.", "1_000"],
)
def test_what_is_no_size_is_refused_with_what_it_was(text):
    with pytest.raises(InvalidValue, match=r"^not "):
        parse_size(text)


@pytest.mark.parametrize(("text", "hint"), [("1G", 'write "1GiB" (1024)'), ("2.5m", '"2.5MB" (1000)'),
                                            ("1 parsec", "KiB"), ("1.3B", "whole number")])  # fmt: skip
def test_a_refusal_says_how_to_mend_it(text, hint):
    with pytest.raises(InvalidValue) as caught:
        parse_size(text)
    assert hint in str(caught.value)


@given(st.integers(0, 1 << 50))
def test_a_size_survives_being_written(size):
    """Whatever is shown can be read again, to the byte."""
    assert parse_size(format_size(size)) == size
    written = Size(0, 1 << 50).to_toml(size)
    assert Size(0, 1 << 50).from_toml(int(written) if written.isdigit() else written.strip('"')) == size


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_refused(text):
    """And a refusal can be printed."""
    refusal = ""
    try:
        assert parse_size(text) >= 0
    except InvalidValue as refused:
        refusal = str(refused)
    assert refusal.isprintable()
