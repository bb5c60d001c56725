"""Draws a chain with what its elements look like: as text, and as a picture."""

from __future__ import annotations

import contextlib
import itertools
import os
import pprint
import re
from typing import Any

from gristmill._base import log
from gristmill._dataset.model.spec import get_element_spec
from gristmill._observe import picture
from gristmill._observe.kinds import is_long, kind_of, parents_of
from gristmill._observe.meter import Measurement
from gristmill._observe.picture import Box

UNSEEN = "(no element yet)"
# Two box-drawing lines that look like slashes: the head of an arrow.
HEAD = "\u2572\u2571"


def draw(measurement: Measurement, folder: str | None) -> None:
    """Log the drawing of a chain; write it to a folder, where there is one.

    Raises:
        OSError: The folder cannot be written to.
    """
    box = boxes(measurement, 0)
    text = f"Grain Dataset graph:\n\n{as_text(box)}"
    if folder:
        text += f"\nWritten to {_write(box, folder)}"
    log.show(text)


def boxes(measurement: Measurement, number: int) -> Box:
    """The drawing of a node and all that it is made of.

    Elements look as was seen, else as the node says of itself, else as nothing yet.
    """
    meter = measurement.meters[number]
    parents = tuple(boxes(measurement, parent) for parent in meter.inputs)
    if meter.spec is not None:
        spec = pprint.pformat(meter.spec)
    else:
        spec = f"{_said_spec(measurement.datasets[number])} {UNSEEN}".lstrip()
    return Box(meter.name, meter.kind, spec, parents)


def figure_of(dataset: Any) -> str | None:
    """The picture of a chain as HTML for a notebook; None where it has too many nodes.

    Nothing is iterated over: elements look as the nodes say.
    """
    if is_long(dataset):
        return None
    svg = picture.as_svg(_box_before(dataset))
    return f'<div style="overflow-x: auto">\n{svg}</div>\n'


def _box_before(dataset: Any) -> Box:
    """The drawing of a node that has given no element."""
    parents = tuple(_box_before(parent) for parent in parents_of(dataset))
    return Box(repr(dataset), kind_of(dataset), _said_spec(dataset), parents)


def _said_spec(dataset: Any) -> str:
    """What a node says of its elements; empty where it cannot tell."""
    try:
        return pprint.pformat(get_element_spec(dataset))
    except Exception:  # A user's node may raise anything; the drawing goes on.
        return ""


def as_text(box: Box) -> str:
    """The drawing as text, sources first, in Grain's form.

    A node of several parents comes after all of them, each one indented by a bar.
    """
    if not box.parents:
        return _edge(box.name, "", box.spec)
    if len(box.parents) == 1:
        return _edge(as_text(box.parents[0]), box.name, box.spec)
    parts = []
    for number, parent in enumerate(box.parents):
        lines = as_text(parent).rstrip("\n").split("\n")
        body = "\n".join(f"┃ {line}".rstrip() for line in lines)
        parts.append(f"┏ parent {number} of {len(box.parents)}\n{body}\n┗\n")
    return _edge("".join(parts), box.name, box.spec)


def _edge(above: str, name: str, below: str) -> str:
    return f"{above}\n  ││\n  ││  {name}\n  ││\n  {HEAD}\n{below}\n"


def _write(box: Box, folder: str) -> str:
    """Write the picture and a page with it, each chain its own; returns the paths."""
    os.makedirs(folder, exist_ok=True)
    svg = picture.as_svg(box)
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
        file.write(picture.as_html(box, svg))
    return f"{stem}.svg and .html"
