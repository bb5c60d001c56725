"""Formats the activity of a process's loaders for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from gristmill._base.object_repr import printable
from gristmill._cli.process_snapshot import NO_WORKERS
from gristmill._cli.terminal import (
    Style,
    count_columns,
    format_bytes,
    format_count,
    format_table,
    paint,
    shorten,
)
from gristmill._cli.top_workers import (
    format_workers,
    rate_or_dash,
    share_or_dash,
    size_or_dash,
)
from gristmill._observe.diagnosis import MIN_WAITED

# The width of text that does not go to a terminal: nothing is left out.
UNLIMITED_COLUMNS = 1 << 20
# The name of a source has at least this many columns.
MIN_NAME_COLUMNS = 8


class _Text:
    """Lines of text that fit a terminal.

    Args:
        columns: The most columns of a line.
        has_color: Whether styles are shown.
    """

    def __init__(self, columns: int, has_color: bool) -> None:
        self.columns = columns
        self.lines: list[str] = []
        self._has_color = has_color

    def add(self, *parts: tuple[str, Style | None]) -> None:
        """Add a line of parts in styles; if it is too long, shorten its middle."""
        text = "".join(part for part, _ in parts)
        if count_columns(text) > self.columns:
            parts = ((shorten(text, self.columns), parts[0][1]),)
        if self._has_color:
            parts = tuple((paint(*part), None) for part in parts if part[0])
        self.lines.append("".join(part for part, _ in parts))

    def add_sentence(self, sentence: str) -> None:
        """Add a sentence, which continues on more lines if it is too long."""
        columns = max(self.columns, 1)
        for line in textwrap.wrap(sentence, columns, subsequent_indent=" " * 2):
            self.add((line, None))

    def add_list(self, parts: Sequence[str]) -> None:
        """Add a list, indented, on the fewest lines that do not divide a part."""
        line = f"  {parts[0]}"
        for part in parts[1:]:
            if len(line) + len(part) + len(", ,") > self.columns:
                self.add((f"{line},", None))
                line = f"  {part}"
            else:
                line += f", {part}"
        self.add((line, None))


def format_activity(
    activity: dict[str, Any], columns: int = UNLIMITED_COLUMNS, has_color: bool = False
) -> str:
    """Format the result of `activity_between` as lines of text.

    Args:
        activity: The activity of a process.
        columns: The most columns of a line.  Long names are shortened in the middle,
            and tables have only the most useful columns that fit.
        has_color: Whether the text has the escape sequences of colors.
    """
    text = _Text(columns, has_color)
    stopped = ", stopped" if activity["stopped"] else ""
    text.add(
        (f"process {activity['pid']}{stopped}", "red" if stopped else "bold"),
        (f": {activity['command']}", None),
    )
    cpu, memory = share_or_dash(activity["cpu"]), size_or_dash(activity["pss_bytes"])
    text.add((f"  CPU {cpu}, memory {memory}", None))
    for number, loader in enumerate(activity["loaders"]):
        text.add(("", None))
        _add_loader(text, number, loader)
    for auto in activity["auto_workers"]:
        text.add(("", None))
        text.add_sentence(f"  {auto['text']}")
    for sources in activity["sources"]:
        text.add(("", None))
        _add_sources(text, sources)
    if not activity["loaders"]:
        text.add(("", None))
        text.add_sentence(f"It {NO_WORKERS}")
    return "\n".join(text.lines)


def _add_loader(text: _Text, number: int, loader: dict[str, Any]) -> None:
    """Add what limits a loader, its rates, and the table of its workers."""
    limit: tuple[str, Style | None] = ("", None)
    if (waiting := loader["waiting"]) is not None:
        looks = format_count(loader["samples"], "look")
        wait = f"the consumer waits in {waiting:.0%} of {looks}"
        limit = f": limit consumer, {wait}", "green"
        if waiting >= MIN_WAITED:
            limit = f": limit data, {wait}", "yellow"
    text.add((f"loader {number} ({loader['face']})", "bold"), limit)
    memory, memory_limit = loader["memory_bytes"], loader["memory_limit"]
    text.add_list(
        [
            f"{rate_or_dash(loader['delivered_per_s'])} outputs/s taken",
            f"{rate_or_dash(loader['computed_per_s'])}/s computed",
            f"{loader['ready']:,} ready",
            f"{format_count(loader['delivered'], 'output')} taken so far",
            f"{format_bytes(memory)} of {format_bytes(memory_limit)} for outputs",
        ]
    )
    for numbers, state, style in format_workers(loader, text.columns - 2):
        text.add((f"  {numbers}", "bold" if style == "bold" else None), (state, style))


def _add_sources(text: _Text, sources: dict[str, Any]) -> None:
    """Add a table of what an iterator had delivered at its last `consumed()`."""
    names = ["delivered from", *map(printable, sources)]
    rows = [("elements", "tokens", "epochs")]
    for count in sources.values():
        tokens, epochs = count["tokens"], count["epochs"]
        rows.append(
            (
                f"{count['elements']:,}",
                "-" if tokens is None else f"{tokens:,}",
                "-" if epochs is None else f"{epochs:.2f}",
            )
        )
    # Align the numbers to the right, and give the names the other columns.
    numbers = format_table([("", *row) for row in rows]).splitlines()
    name_columns = text.columns - 2 - max(map(len, numbers))
    names = [shorten(name, max(name_columns, MIN_NAME_COLUMNS)) for name in names]
    name_columns = max(map(count_columns, names))
    for name, line in zip(names, numbers, strict=True):
        padding = " " * (name_columns - count_columns(name))
        text.add((f"  {name}{padding}{line}", None))
