"""The amount of data that was delivered from each source of a chain."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class SourceCount:
    """The counts of what was delivered from one source.

    Attributes:
        elements: The number of its records, at least in part.  A record counts again in
            each epoch.
        tokens: The number of tokens of these, or of the delivered parts of them; None
            if the lengths of its records are not known.
        epochs: Its records that were delivered, divided by the number of its records;
            None if that number is not known.
    """

    elements: int
    tokens: int | None
    epochs: float | None

    def __str__(self) -> str:
        parts = [f"{self.elements:,} elements"]
        if self.tokens is not None:
            parts.append(f"{self.tokens:,} tokens")
        if self.epochs is not None:
            parts.append(f"{self.epochs:.2f} epochs")
        return ", ".join(parts)


SourceCounts = Mapping[str, SourceCount]
