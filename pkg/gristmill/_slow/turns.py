"""Takes elements from several iterators in turn.  The twin of ``_hot.turns``."""

from __future__ import annotations

from typing import Any


class Turns:
    """Iterates over iterators in turn; see the twin.

    Args:
        places: How many there are.
    """

    def __init__(self, places: int) -> None:
        self.places: list[Any] = [None] * places
        self.turn = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        vacant = 0
        while vacant < len(self.places):
            iterator = self.places[self.turn]
            if iterator is not None:
                vacant = 0
                try:
                    element = next(iterator)
                except StopIteration:
                    self._vacate(self.turn)
                    self._advance()
                    continue
                except BaseException:
                    self._advance()
                    raise
                self._advance()
                return element
            if not self._occupy(self.turn):
                vacant += 1
                self._advance()
        raise StopIteration

    def _advance(self) -> None:
        self.turn = (self.turn + 1) % len(self.places)

    def _vacate(self, place: int) -> None:
        """Told that the iterator of a place has ended."""
        raise NotImplementedError

    def _occupy(self, place: int) -> bool:
        """Asked for an iterator for a place."""
        raise NotImplementedError
