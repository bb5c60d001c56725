"""A chain of datasets as text, one node a line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from gristmill._dataset.model.names import line_of

MOST_LINES, MOST_CHARS = 100, 300


def chain_text(dataset: Any) -> str:
    """Return a chain from its last node to its sources.

    Each node stands above the one that it reads.  If it reads several, each of these
    begins with a dash.
    """
    lines = list(itertools.islice(_lines(dataset), MOST_LINES + 1))
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = ["..."]
    return "\n".join(lines)


def _lines(dataset: Any) -> Iterator[str]:
    parents = [dataset]
    while len(parents) == 1:
        (node,) = parents
        yield _text_of(node)
        parents = [node.in_workers] if node._KIND == "transport" else node._parents
    for parent in parents:
        for number, line in enumerate(_lines(parent)):
            yield f"{'  ' if number else '- '}{line}"


def _text_of(node: Any) -> str:
    """Return a node as one line, even if a user's class writes several."""
    made = type(node).__str__, type(node).__repr__
    ours = all(getattr(f, "__module__", "").startswith("gristmill.") for f in made)
    # A user's __repr__ may call str(), which calls this function.
    text = " ".join((repr(node) if ours else line_of(node)).splitlines())
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}..."
