"""Parsers of commands, and of the values of their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

# How the parsers of all commands are made.
STYLE: Any = {
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}


def number_from(least: int) -> Callable[[str], int]:
    """What reads whole numbers that are not below `least`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number from {least} on"
            )
        return int(text)

    return parse
