"""Reads again what an iterator has given before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def replay(elements: Iterator[Any], count: int) -> list[Any]:
    """The next `count` elements, fewer only at the end.

    Elements that fail are passed over: whoever met them first was told.  An iterator
    of which `count` in a row fail is given up.

    Raises:
        Exception: What the last of so many raised.
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
            if failed > count:
                raise
        else:
            failed = 0
    return found
