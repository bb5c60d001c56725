"""Parsers of commands, and of the values of their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def command_parser(
    commands: Any, name: str, purpose: str, description: str, epilog: str
) -> argparse.ArgumentParser:
    """Add a command to the parser of `gristmill`.

    Args:
        commands: What argparse has for the commands of the parser.
        name: The command's.
        purpose: What it does, in a line.
        description: The same at length.
        epilog: Follows the options; both are printed as they are.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=purpose,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def number_from(least: int) -> Callable[[str], int]:
    """What reads whole numbers that are not below `least`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a number from {least} on"
            )
        return int(text)

    return parse
