"""Draws a tree of nodes as SVG and HTML, by hand: nothing needs to be installed."""

from __future__ import annotations

import dataclasses
import html
import textwrap
from typing import Protocol

CHARACTER = 7.3  # Width of one of the 12-pixel monospaced font.
LINE = 16.0
PADDING = 10.0
GAP = 28.0
WRAP = 44
MOST_LINES = 14
ARROW = 22.0

COLORS = {
    "read": "#d6e9f8",
    "order": "#eeeeee",
    "transform": "#fdf0cf",
    "batch": "#dff2d8",
    "prefetch": "#eadff5",
    "transport": "#f9dcd6",
}


class Node(Protocol):
    """What can be drawn; see `gristmill._observe.drawing.Box`."""

    @property
    def name(self) -> str:
        """The text in the box."""

    @property
    def kind(self) -> str:
        """What says its color."""

    @property
    def spec(self) -> str:
        """The text on the edge that leaves it."""

    @property
    def parents(self) -> tuple[Node, ...]:
        """The boxes above it."""


@dataclasses.dataclass
class _Placed:
    """A box and what is above it, in pixels from the left and the top.

    Attributes:
        width: Of the box and all above it.
        height: As well.
        center: Of the box, from the left.
        svg: The picture.
    """

    width: float
    height: float
    center: float
    svg: str


def as_svg(node: Node) -> str:
    """The picture of a chain: sources at the top, the last node at the bottom."""
    placed = _place(node)
    spec, spec_width, spec_height = _edge_text(node, placed.center, placed.height)
    left = max(0.0, spec_width - (placed.width - placed.center))
    width = placed.width + left + 2 * PADDING
    height = placed.height + spec_height + 2 * PADDING
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}"'
        f' height="{height:.0f}" viewBox="{-PADDING:.0f} {-PADDING:.0f}'
        f' {width:.0f} {height:.0f}" font-family="monospace" font-size="12">\n'
        '<rect x="-100%" y="-100%" width="300%" height="300%" fill="#ffffff"/>\n'
        f"{placed.svg}{spec}</svg>\n"
    )


def as_html(node: Node, svg: str) -> str:
    """A page with the picture, its colors' meaning, and each node's full text."""
    legend = "".join(
        f'<span style="background:{color};padding:2px 8px;margin-right:6px">'
        f"{kind}</span>"
        for kind, color in COLORS.items()
    )
    rows = "".join(
        f"<tr><td>{_escaped(box.kind)}</td><td><pre>{_escaped(box.name)}</pre>"
        f"</td><td><pre>{_escaped(box.spec)}</pre></td></tr>\n"
        for box in _in_order(node)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{_escaped(node.name)}</title>\n"
        "<style>body{font-family:sans-serif;margin:24px}td{vertical-align:top;"
        "border-top:1px solid #ccc;padding:2px 12px}pre{margin:2px;white-space:"
        "pre-wrap}</style></head>\n"
        f"<body><p>{legend}</p>\n{svg}\n<table>"
        "<tr><th>does</th><th>node</th><th>its elements</th></tr>\n"
        f"{rows}</table></body></html>\n"
    )


def _in_order(node: Node) -> list[Node]:
    """A node and all above it, sources first."""
    found = [box for parent in node.parents for box in _in_order(parent)]
    return [*found, node]


def _place(node: Node) -> _Placed:
    lines = _wrapped(node.name, WRAP)
    box_width = max(map(len, lines)) * CHARACTER + 2 * PADDING
    box_height = len(lines) * LINE + PADDING
    above = [_place(parent) for parent in node.parents]
    edges = [
        _edge_text(parent, placed.center, placed.height)
        for parent, placed in zip(node.parents, above, strict=True)
    ]
    # What an edge's text takes to the right of its arrow belongs to the parent.
    widths = [
        max(placed.width, placed.center + edge[1])
        for placed, edge in zip(above, edges, strict=True)
    ]
    top = max((p.height + e[2] for p, e in zip(above, edges, strict=True)), default=0.0)
    row_width = sum(widths) + GAP * max(len(widths) - 1, 0)
    width = max(row_width, box_width)
    x = (width - row_width) / 2
    parts, centers = [], []
    for placed, edge, taken in zip(above, edges, widths, strict=True):
        # Shorter branches hang lower, so that all end at the box.
        down = top - placed.height - edge[2]
        moved = f'<g transform="translate({x:.1f} {down:.1f})">'
        parts.append(f"{moved}\n{placed.svg}{edge[0]}</g>\n")
        centers.append(x + placed.center)
        x += taken + GAP
    center = sum(centers) / len(centers) if centers else width / 2
    center = min(max(center, box_width / 2), width - box_width / 2)
    parts += [_slanted(start, center, top) for start in centers]
    drop = GAP if len(centers) > 1 else 0.0
    parts.append(_box(node, lines, center, top + drop, box_width, box_height))
    return _Placed(width, top + drop + box_height, center, "".join(parts))


def _slanted(start: float, end: float, top: float) -> str:
    """From the end of a parent's edge to the box, where there are several."""
    if abs(start - end) < 1:
        return ""
    return (
        f'<line x1="{start:.1f}" y1="{top:.1f}" x2="{end:.1f}" y2="{top + GAP:.1f}"'
        ' stroke="#666666"/>\n'
    )


def _box(
    node: Node, lines: list[str], center: float, y: float, width: float, height: float
) -> str:
    color = COLORS.get(node.kind, "#ffffff")
    text = "".join(
        f'<text x="{center:.1f}" y="{y + PADDING + 6 + i * LINE:.1f}"'
        f' text-anchor="middle">{_escaped(line)}</text>\n'
        for i, line in enumerate(lines)
    )
    return (
        f"<g><title>{_escaped(node.name)}</title>\n"
        f'<rect x="{center - width / 2:.1f}" y="{y:.1f}" width="{width:.1f}"'
        f' height="{height:.1f}" rx="6" fill="{color}" stroke="#666666"/>\n{text}</g>\n'
    )


def _edge_text(node: Node, center: float, y: float) -> tuple[str, float, float]:
    """The arrow below a box, what its elements look like, and the size of both."""
    lines = [part for line in node.spec.split("\n") for part in _wrapped(line, WRAP)]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], "..."]
    height = ARROW + len(lines) * LINE
    end = y + height
    text = "".join(
        f'<text x="{center + 8:.1f}" y="{y + ARROW / 2 + (i + 0.8) * LINE:.1f}"'
        f' fill="#333333" xml:space="preserve">{_escaped(line)}</text>\n'
        for i, line in enumerate(lines)
    )
    arrow = (
        f'<line x1="{center:.1f}" y1="{y:.1f}" x2="{center:.1f}" y2="{end:.1f}"'
        ' stroke="#666666"/>\n'
        f'<path d="M {center - 4:.1f} {end - 7:.1f} L {center:.1f} {end:.1f}'
        f' L {center + 4:.1f} {end - 7:.1f}" fill="none" stroke="#666666"/>\n'
    )
    width = max(map(len, lines)) * CHARACTER + 8
    return arrow + text, width, height


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; at least one."""
    return textwrap.wrap(_printable(text), width, drop_whitespace=False) or [""]


def _printable(text: str) -> str:
    """A text without the characters that XML does not allow."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _escaped(text: str) -> str:
    return html.escape(_printable(text))
