"""Parses numbers in arguments, and formats numbers, sizes, bars and tables."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any

# The arguments of each command's ArgumentParser.
STYLE: Any = {
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}


def integer_parser(minimum: int) -> Callable[[str], int]:
    """Return a function for argparse that parses integers >= `minimum`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < minimum:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not an integer of at least {minimum}"
            )
        return int(text)

    return parse


def format_bytes(size: float) -> str:
    """Format a number of bytes with a suitable unit.

    Example:
        >>> format_bytes(999), format_bytes(1536), format_bytes(5 << 30)
        ('999 B', '1.5 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < (1000 if unit == "B" else 1024):
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_count(number: int, noun: str) -> str:
    """Format a number of things.

    Example:
        >>> format_count(1, "record"), format_count(1200, "file")
        ('1 record', '1,200 files')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_rate(per_s: float) -> str:
    """Format a number per second, with about three digits.

    Example:
        >>> format_rate(12.34), format_rate(1234567.0)
        ('12.3', '1,234,567')
    """
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"


def format_ratio(ratio: float) -> str:
    """Format a ratio with at least two significant digits.

    Example:
        >>> [format_ratio(ratio) for ratio in (1.234, 0.5, 0.00123, 0.0)]
        ['1.23', '0.50', '0.0012', '0.00']
    """
    digits = 2 if ratio >= 0.1 or ratio <= 0 else 1 - math.floor(math.log10(ratio))
    return f"{ratio:.{digits}f}"


def draw_bar(share: float, width: int) -> str:
    """Return a bar that fills `share` of `width` columns.

    Example:
        >>> draw_bar(0.5, 10)
        '#####'
    """
    columns = round(min(1.0, share) * width)
    return "#" * max(columns, 1 if share > 0 else 0)


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as aligned columns: the first to the left, others to the right.

    Example:
        >>> print(format_table([("", "records/s"), ("in order", "1,000")]))
                  records/s
        in order      1,000
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [
            cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
