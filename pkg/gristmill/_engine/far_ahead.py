"""How far ahead of need records of far files are read, and how many together.

What a request costs is the way to the store and back, so enough of them have to be
under way, and neighbours should come by one.  Both follow from bytes rather than from
numbers of records.  The records of a sampler's window are read together: whatever order
they come in, they lie in a few runs.
"""

from __future__ import annotations

from gristmill._engine.stream_keys import KeyBlocks

__all__ = ["FarAhead"]

# Read ahead at least, and at most with the block that is being used.
AHEAD_BYTES = 64 << 20
MOST_BYTES = 256 << 20
# Of records that are read together, so that neighbours make long requests.
BLOCK_BYTES = 4 << 20


class FarAhead:
    """Plans what is read of one stream.

    Attributes:
        record_bytes: The mean size of a record; 0 while nobody knows.
    """

    def __init__(self, keys: KeyBlocks, ahead: int) -> None:
        self.record_bytes = 0.0
        self._keys = keys
        self._ahead = ahead

    def end(self, position: int) -> int:
        """The position up to which is read when `position` is needed next."""
        if not self.record_bytes:
            return position + self._ahead
        most = max(1, int(MOST_BYTES / self.record_bytes))
        least = max(self._ahead, int(AHEAD_BYTES / self.record_bytes))
        end = position + min(least, most)
        # Whole windows, and the one behind that which is needed next.
        first = self._window(position)
        second = self._window(position + first) if first else 0
        if first + second <= 2 * most // 3:
            end = max(end, position + first + second)
        return end

    def count(self, position: int, block: int) -> int:
        """How many records to read together, from a position on."""
        if not self.record_bytes:
            return block
        return self._window(position) or max(
            block, int(BLOCK_BYTES / self.record_bytes)
        )

    def _window(self, position: int) -> int:
        """Records from a position to the end of its window; 0 if there are too many."""
        left = self._keys.window_left(position)
        return left if left * self.record_bytes <= MOST_BYTES / 3 else 0
