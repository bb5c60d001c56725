"""Parses numbers in arguments, and formats numbers, sizes, bars, tables and colors."""

from __future__ import annotations

import argparse
import math
import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal

Style = Literal["bold", "dim", "red", "green", "yellow"]

# The arguments of each command's ArgumentParser.
STYLE: Any = {
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}
# The parameters of the terminal's "select graphic rendition".
_STYLE_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}


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


def moves_cursor() -> bool:
    """Return whether the standard output is a terminal that moves its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def shows_color() -> bool:
    """Return whether to color the standard output; see https://no-color.org."""
    return moves_cursor() and not os.environ.get("NO_COLOR")


def paint(text: str, style: Style | None) -> str:
    r"""Return text that a terminal shows in a style.

    Example:
        >>> paint("ended", "red")
        '\x1b[31mended\x1b[0m'
    """
    return text if style is None else f"\x1b[{_STYLE_CODES[style]}m{text}\x1b[0m"


def count_columns(text: str) -> int:
    """Return the number of columns in which a terminal shows text.

    Example:
        >>> count_columns("data"), count_columns("\N{CJK UNIFIED IDEOGRAPH-8CC7}")
        (4, 2)
    """
    if text.isascii():
        return len(text)
    return sum(map(_count_character_columns, text))


def _count_character_columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shorten(text: str, columns: int) -> str:
    """Replace the middle of text that needs more than `columns`.

    Example:
        >>> shorten("python train.py --steps 1000", 20)
        'python tr...eps 1000'
    """
    if count_columns(text) <= columns:
        return text
    if columns <= 3:
        return "..."[:columns]
    beginning = _cut_to(text, (columns - 2) // 2)
    end = _cut_to(text[::-1], (columns - 3) // 2)[::-1]
    return f"{beginning}...{end}"


def _cut_to(text: str, columns: int) -> str:
    """Return the longest beginning of text that fits into `columns`."""
    if text.isascii():
        return text[:columns]
    for length, character in enumerate(text):
        columns -= _count_character_columns(character)
        if columns < 0:
            return text[:length]
    return text
