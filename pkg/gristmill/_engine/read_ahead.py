"""Plans how far ahead records of far files are read, and how many are read together.

The cost of a request is the round trip to the store.  So enough requests have to be in
flight, and one request should read adjacent records.  Both limits are in bytes, not in
records.  The records of a sampler's window are read together, because they lie in a few
contiguous runs, in any order.
"""

from __future__ import annotations

from gristmill._engine.stream_keys import KeyBlocks

__all__ = ["ReadAheadPlan"]

# The limits for reading ahead, including the block being used.
MIN_AHEAD_BYTES = 64 << 20
MAX_AHEAD_BYTES = 256 << 20
# The size of records that are read together, so that adjacent ones make long requests.
BLOCK_BYTES = 4 << 20


class ReadAheadPlan:
    """Plans the reads of one stream.

    Args:
        keys: The keys of the stream.
        ahead: The least number of records to read ahead.  It is lower if that many
            take more than `MAX_AHEAD_BYTES`.

    Attributes:
        record_bytes: The mean size of a record; 0 while it is unknown.
    """

    def __init__(self, keys: KeyBlocks, ahead: int) -> None:
        self.record_bytes = 0.0
        self._keys = keys
        self._ahead = ahead

    def end_position(self, position: int) -> int:
        """Return the position up to which to read if `position` is needed next."""
        if not self.record_bytes:
            return position + self._ahead
        max_records = max(1, int(MAX_AHEAD_BYTES / self.record_bytes))
        min_records = max(self._ahead, int(MIN_AHEAD_BYTES / self.record_bytes))
        end = position + min(min_records, max_records)
        # Read the current window and the next one whole, if they are small enough.
        current_window = self._window(position)
        next_window = self._window(position + current_window) if current_window else 0
        if current_window + next_window <= 2 * max_records // 3:
            end = max(end, position + current_window + next_window)
        return end

    def block_size(self, position: int, block: int) -> int:
        """Return the number of records to read together, from a position on.

        `block` is the least number, unless a window ends sooner.
        """
        if not self.record_bytes:
            return block
        return self._window(position) or max(
            block, int(BLOCK_BYTES / self.record_bytes)
        )

    def _window(self, position: int) -> int:
        """Return the number of records to the end of a window.

        Returns 0 if they take more than a third of the limit, or without windows.
        """
        left = self._keys.window_left(position)
        return left if left * self.record_bytes <= MAX_AHEAD_BYTES / 3 else 0
