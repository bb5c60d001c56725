"""What a node can be told about its own work; Grain's subclasses tell it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Stats:
    """Takes what a user's node reports and keeps none of it.

    Nodes are measured from outside, so that none needs to report anything.
    """

    @contextlib.contextmanager
    def record_self_time(
        self, offset_ns: float = 0, num_elements: int = 1
    ) -> Iterator[None]:
        """Enclose the node's own work."""
        yield

    def record_output_spec(self, element: T) -> T:
        """Return the element."""
        return element

    def record_output_spec_for_batch(self, elements: T) -> T:
        """Return the elements."""
        return elements

    def record_bytes_consumed(self, element: T) -> T:
        """Return the element."""
        return element

    def record_bytes_produced(self, element: T) -> T:
        """Return the element."""
        return element

    def report(self) -> Any:
        """Return None: there is nothing to report."""
