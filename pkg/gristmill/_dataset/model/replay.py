"""Reads again what an iterator has given before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MOST_FAILED = 1000


def replay(elements: Iterator[Any], count: int) -> list[Any]:
    """The next `count` elements, fewer only at the end.

    Elements that fail are passed over: whoever met them first was told.

    Raises:
        Exception: More than 1000 in a row failed: what the last of them raised.
    """
    found: list[Any] = []
    failed = 0
    while len(found) < count:
        try:
            found.append(next(elements))
        except StopIteration:
            break
        except Exception:
            failed += 1
            if failed > MOST_FAILED:
                raise
        else:
            failed = 0
    return found
