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


def number_from(least: int) -> Callable[[str], int]:
    """Return an argument parser for integers >= `least`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not an integer of at least {least}"
            )
        return int(text)

    return parse


def amount(size: float) -> str:
    """Format a number of bytes with a suitable unit.

    Example:
        >>> amount(999), amount(1536), amount(5 << 30)
        ('999 B', '1.5 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < (1000 if unit == "B" else 1024):
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def count(number: int, noun: str) -> str:
    """Format a number of things.

    Example:
        >>> count(1, "record"), count(1200, "file")
        ('1 record', '1,200 files')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def rate(number: float) -> str:
    """Format a number per second, with about three digits.

    Example:
        >>> rate(12.34), rate(1234567.0)
        ('12.3', '1,234,567')
    """
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def share(part: float) -> str:
    """Format a ratio with at least two significant digits.

    Example:
        >>> share(1.234), share(0.5), share(0.00123), share(0.0)
        ('1.23', '0.50', '0.0012', '0.00')
    """
    digits = 2 if part >= 0.1 or part <= 0 else 1 - math.floor(math.log10(part))
    return f"{part:.{digits}f}"


def bar(share: float, width: int) -> str:
    """Return a bar that fills `share` of `width` columns.

    Example:
        >>> bar(0.5, 10)
        '#####'
    """
    columns = round(min(1.0, share) * width)
    return "#" * max(columns, 1 if share > 0 else 0)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as aligned columns: the first to the left, others to the right.

    Example:
        >>> print(table([("", "records/s"), ("in order", "1,000")]))
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
