"""Draws a chain and the specs of its elements, as text and as a picture.

The picture is SVG, so nothing needs to be installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import itertools
import os
import pprint
import re
import textwrap
from typing import Any

from gristmill._base import log
from gristmill._base.object_repr import printable
from gristmill._dataset.model.spec import get_element_spec
from gristmill._observe.kinds import is_long, kind_of, parents_of
from gristmill._observe.meter import Measurement
from gristmill._observe.token_facts import facts_of

NO_ELEMENT_YET = "(no element yet)"
# Two box-drawing lines that look like slashes: the head of an arrow.
ARROW_HEAD = "\u2572\u2571"

# Lengths are in pixels.
CHARACTER_WIDTH = 7.3  # Width of a character of the 12-pixel monospaced font.
LINE_HEIGHT = 16.0
PADDING = 10.0
GAP = 28.0
WRAP_CHARS = 44  # Longer lines of names and specs are wrapped.
COLUMN_WIDTH = WRAP_CHARS * CHARACTER_WIDTH + 2 * PADDING + GAP
MAX_LINES = 14  # Of a spec; the rest is left out.
ARROW_HEIGHT = 22.0
STEM_OFFSET = 14.0  # From the left of a box to its arrow.

# Of boxes, by kind of the node.
COLORS = {
    "read": "#d6e9f8",
    "order": "#eeeeee",
    "transform": "#fdf0cf",
    "batch": "#dff2d8",
    "prefetch": "#eadff5",
    "transport": "#f9dcd6",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """A node of a drawing.

    Attributes:
        name: The node as text.
        kind: What it does; see `COLORS`.
        spec: Describes its elements, in one or more lines.
        parents: The nodes that it reads.
        facts: Its numbers of tokens, one a line; see `facts_of`.
    """

    name: str
    kind: str
    spec: str
    parents: tuple[Box, ...]
    facts: tuple[str, ...] = ()


def draw(measurement: Measurement, folder: str | None) -> None:
    """Log the drawing of a chain, and write it to the folder if there is one.

    Raises:
        OSError: The folder cannot be written to.
    """
    box = make_box(measurement, 0)
    text = f"Grain Dataset graph:\n\n{to_text(box)}"
    if folder:
        text += f"\nWritten to {_write(box, folder)}"
    log.show(text)


def make_box(measurement: Measurement, number: int) -> Box:
    """Return the drawing of a node and of all nodes above it.

    `number` is the node's index in `measurement.meters`; the last node is 0.  The
    spec is that of an element that was measured, or the one that the node promises.
    """
    meter = measurement.meters[number]
    parents = tuple(make_box(measurement, parent) for parent in meter.inputs)
    if meter.spec is not None:
        spec = pprint.pformat(meter.spec)
    else:
        spec = (
            f"{_promised_spec(measurement.datasets[number])} {NO_ELEMENT_YET}".lstrip()
        )
    facts = facts_of(measurement.datasets[number])
    return Box(meter.name, meter.kind, spec, parents, facts)


def figure_of(dataset: Any) -> str | None:
    """Return a chain's picture as HTML for a notebook, or None if it is too long.

    Nothing is iterated over; the specs are those that the nodes promise.
    """
    if is_long(dataset):
        return None
    svg = to_svg(_promised_box(dataset))
    return f'<div style="overflow-x: auto">\n{svg}</div>\n'


def _promised_box(dataset: Any) -> Box:
    """Return the drawing of a node that has no elements yet."""
    parents = tuple(_promised_box(parent) for parent in parents_of(dataset))
    spec = _promised_spec(dataset)
    return Box(repr(dataset), kind_of(dataset), spec, parents, facts_of(dataset))


def _promised_spec(dataset: Any) -> str:
    """Return the spec that a node promises, or "" if it has none."""
    try:
        return pprint.pformat(get_element_spec(dataset))
    except Exception:  # A user's node may raise anything.
        return ""


def to_text(box: Box) -> str:
    """Return the drawing as text, sources first, in Grain's format.

    A node with several parents comes after all of them; a bar indents each parent.
    """
    if not box.parents:
        return _edge(_joined(box), [""], box.spec)
    node_lines = [box.name, *box.facts]
    if len(box.parents) == 1:
        return _edge(to_text(box.parents[0]), node_lines, box.spec)
    parts = []
    for number, parent in enumerate(box.parents):
        lines = to_text(parent).rstrip("\n").split("\n")
        body = "\n".join(f"┃ {line}".rstrip() for line in lines)
        parts.append(f"┏ parent {number} of {len(box.parents)}\n{body}\n┗\n")
    return _edge("".join(parts), node_lines, box.spec)


def _edge(above: str, lines: list[str], below: str) -> str:
    """Return the text of a node, below the text of its parents; `below` is its spec."""
    text = "\n".join(f"  ││  {line}" for line in lines)
    return f"{above}\n  ││\n{text}\n  ││\n  {ARROW_HEAD}\n{below}\n"


def _write(box: Box, folder: str) -> str:
    """Write the picture, and a page with it, to new files; return their paths."""
    os.makedirs(folder, exist_ok=True)
    svg = to_svg(box)
    name = re.split(r"\W", box.name)[0] or "dataset"
    for number in itertools.count():
        stem = os.path.join(folder, f"{name}-{os.getpid()}-{number}")
        with (
            contextlib.suppress(FileExistsError),
            open(f"{stem}.svg", "x", encoding="utf-8") as file,
        ):
            file.write(svg)
            break
    with open(f"{stem}.html", "w", encoding="utf-8") as file:
        file.write(to_html(box, svg))
    return f"{stem}.svg and .html"


def to_svg(node: Box) -> str:
    """Return the picture of a chain: sources at the top, the last node below."""
    parts: list[str] = []
    bottom, columns = _draw(node, 0, parts)
    width = columns * COLUMN_WIDTH + 2 * PADDING
    height = bottom + 2 * PADDING
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}"'
        f' height="{height:.0f}" viewBox="{-PADDING:.0f} {-PADDING:.0f}'
        f' {width:.0f} {height:.0f}" font-family="monospace" font-size="12">\n'
        '<rect x="-100%" y="-100%" width="300%" height="300%" fill="#ffffff"/>\n'
        f"{''.join(parts)}</svg>\n"
    )


def to_html(node: Box, svg: str) -> str:
    """Return a page with the picture, a legend, and each node's full text."""
    legend = "".join(
        f'<span style="background:{color};padding:2px 8px;margin-right:6px">'
        f"{kind}</span>"
        for kind, color in COLORS.items()
    )
    rows = "".join(
        f"<tr><td>{_escape(box.kind)}</td><td><pre>"
        f"{_escape(_joined(box))}</pre></td><td><pre>{_escape(box.spec)}</pre></td>"
        "</tr>\n"
        for box in _in_order(node)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{_escape(node.name)}</title>\n"
        "<style>body{font-family:sans-serif;margin:24px}td{vertical-align:top;"
        "border-top:1px solid #ccc;padding:2px 12px}pre{margin:2px;white-space:"
        "pre-wrap}</style></head>\n"
        f"<body><p>{legend}</p>\n{svg}\n<table>"
        "<tr><th>does</th><th>node</th><th>its elements</th></tr>\n"
        f"{rows}</table></body></html>\n"
    )


def _joined(node: Box) -> str:
    """Return the name and the facts of a node, one a line."""
    return "\n".join([node.name, *node.facts])


def _in_order(node: Box) -> list[Box]:
    """Return a node and all nodes above it, sources first."""
    boxes = [box for parent in node.parents for box in _in_order(parent)]
    return [*boxes, node]


def _draw(node: Box, column: int, parts: list[str]) -> tuple[float, int]:
    """Add a node and all above it to a picture, from the first free column on.

    Each source has its own column.

    Returns:
        The y of its lower end, in pixels, and the first free column.
    """
    ends: list[tuple[float, float]] = []  # (x, y) of the lower ends of the parents.
    next_column = column
    for parent in node.parents:
        x = next_column * COLUMN_WIDTH + STEM_OFFSET
        bottom, next_column = _draw(parent, next_column, parts)
        ends.append((x, bottom))
    y = max((bottom for _, bottom in ends), default=0.0)
    # Extend shorter branches to the top of the box.
    parts += [_line(x, bottom, x, y) for x, bottom in ends]
    left = column * COLUMN_WIDTH
    if len(ends) > 1:
        parts += [_line(x, y, left + STEM_OFFSET, y + GAP) for x, _ in ends]
        y += GAP
    y = _draw_box(node, left, y, parts)
    return _draw_edge(node, left + STEM_OFFSET, y, parts), max(next_column, column + 1)


def _draw_box(node: Box, x: float, y: float, parts: list[str]) -> float:
    """Draw a node without its parents; return the y of its lower edge."""
    lines = [
        part for line in (node.name, *node.facts) for part in _wrap(line, WRAP_CHARS)
    ]
    width = max(map(len, lines)) * CHARACTER_WIDTH + 2 * PADDING
    height = len(lines) * LINE_HEIGHT + PADDING
    parts.append(
        f"<g><title>{_escape(_joined(node))}</title>\n"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        f' rx="6" fill="{COLORS.get(node.kind, "#ffffff")}" stroke="#666666"/>\n'
    )
    parts += _texts(lines, x + PADDING, y + PADDING / 2)
    parts.append("</g>\n")
    return y + height


def _draw_edge(node: Box, x: float, y: float, parts: list[str]) -> float:
    """Draw the arrow below a box and the spec next to it; return the y of its end.

    The point (x, y) is the arrow's upper end.
    """
    lines = [part for line in node.spec.split("\n") for part in _wrap(line, WRAP_CHARS)]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], "..."]
    end = y + ARROW_HEIGHT + len(lines) * LINE_HEIGHT
    parts.append(_line(x, y, x, end))
    parts += [_line(x + side, end - 7, x, end) for side in (-4, 4)]
    parts += _texts(lines, x + 8, y + ARROW_HEIGHT / 2)
    return end


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        ' stroke="#666666"/>\n'
    )


def _texts(lines: list[str], x: float, y: float) -> list[str]:
    return [
        f'<text x="{x:.1f}" y="{y + (i + 0.8) * LINE_HEIGHT:.1f}" fill="#333333"'
        f' xml:space="preserve">{_escape(line)}</text>\n'
        for i, line in enumerate(lines)
    ]


def _wrap(text: str, width: int) -> list[str]:
    """Return one or more lines of at most `width` characters."""
    return textwrap.wrap(printable(text, "\n"), width, drop_whitespace=False) or [""]


def _escape(text: str) -> str:
    return html.escape(printable(text, "\n"))
