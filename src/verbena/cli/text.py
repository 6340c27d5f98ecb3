"""Parses and formats quantities, and formats tables."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """Parses "64", "4K", "1M" or "1MiB" into bytes; anything else is a usage error."""
    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    suffix = number[-1:] if number[-1:] in "KMG" else ""
    digits = number[: len(number) - len(suffix)]
    if not digits.isdigit() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size: write 64, 4K, 1M")
    return int(digits) * _FACTORS[suffix]


def parse_seconds(argument: str) -> float:
    """Parses a positive number of seconds below one day; anything else is a usage error."""
    try:
        seconds = float(argument)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 86400:
        raise argparse.ArgumentTypeError(f"'{argument}' is not a number of seconds")
    return seconds


def size(count: int) -> str:
    """Formats a size: 1048576 → "1 MiB"; one that is not a whole multiple stays in bytes."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor} {unit}"
    return f"{count} B"


def amount(count: int) -> str:
    """Formats an amount in three digits: 139770251 → "133 MiB"."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{_three(count / factor)} {unit}"
    return f"{count} B"


def duration(nanoseconds: float) -> str:
    """Formats a duration with three significant digits in a suitable unit."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= factor:
            return f"{_three(nanoseconds / factor)} {unit}"
    return f"{nanoseconds:.0f} ns"


def rate(per_second: float) -> str:
    """Formats operations per second."""
    return f"{_scaled(per_second)}/s"


def bandwidth(bytes_per_second: float) -> str:
    """Formats bytes per second, in decimal units."""
    return f"{_scaled(bytes_per_second, gap=' ')}B/s"


def table(rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """Formats rows as aligned columns: the first left-aligned, the others right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def _scaled(value: float, gap: str = " ") -> str:
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{_three(value / factor)}{gap}{unit}"
    return f"{_three(value)}{gap}"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
