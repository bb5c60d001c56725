"""A chain of datasets as text, one node a line."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from gristmill._dataset.model.names import node_line

# The most lines of a text, and characters of a node.
MAX_LINES, MAX_CHARS = 100, 300


def chain_text(dataset: Any) -> str:
    """Return a chain from its last node to its sources.

    Each node stands above the one that it reads.  If it reads several, each of these
    begins with a dash.
    """
    lines = list(itertools.islice(_lines(dataset), MAX_LINES + 1))
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = ["..."]
    return "\n".join(lines)


def _lines(dataset: Any) -> Iterator[str]:
    parents = [dataset]
    while len(parents) == 1:
        (node,) = parents
        yield _short_node_line(node)
        # A "transport" node has no parents: continue with the chain in its workers.
        parents = [node.in_workers] if node._KIND == "transport" else node._parents
    for parent in parents:
        for number, line in enumerate(_lines(parent)):
            yield f"{'  ' if number else '- '}{line}"


def _short_node_line(node: Any) -> str:
    """Return a node as one line, even if a user's class writes several."""
    methods = type(node).__str__, type(node).__repr__
    is_ours = all(
        getattr(f, "__module__", "").startswith("gristmill.") for f in methods
    )
    # A user's __repr__ may call str(), which calls this function.
    text = " ".join((repr(node) if is_ours else node_line(node)).splitlines())
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."
