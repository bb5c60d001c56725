"""The order of a mixture in memory, so that any position is found fast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gristmill._base.types import Int64Array

# The fewest positions of a block, before which the elements of each part are counted.
MIN_BLOCK = 1 << 8
# Positions whose order is computed at once, and positions that are compared at once.
STEP = 1 << 16
COMPARED = 1 << 17
# If positions are at most this far apart on average, all between them are found.
DENSE = 4


class KeptOrder:
    """The part of each of the first positions of a mixture, 1 byte each for 256 parts.

    The index in the part is the number of its elements before the position.  These are
    counted from the start of a block.  Any thread may call.

    Args:
        take: Returns the part at each of some positions, and the index in it.
        length: The number of positions.
        part_count: The number of parts.
    """

    def __init__(
        self,
        take: Callable[[Int64Array], tuple[Int64Array, Int64Array]],
        length: int,
        part_count: int,
    ) -> None:
        # The numbers before blocks take up to 1 byte for each position.
        self._block = max(MIN_BLOCK, 1 << (8 * part_count - 1).bit_length())
        block_count = -(-length // self._block)
        dtype = np.min_scalar_type(part_count - 1)
        # The last block is full, shape (blocks, positions of a block).
        self._parts = np.zeros((block_count, self._block), dtype)
        flat_parts = self._parts.reshape(-1)
        self._counts = np.zeros((block_count, part_count), np.int64)
        for first in range(0, length, STEP):
            end = min(first + STEP, length)
            flat_parts[first:end], _ = take(np.arange(first, end, dtype=np.int64))
        for number in range(1, block_count):
            counts = np.bincount(self._parts[number - 1], minlength=part_count)
            self._counts[number] = self._counts[number - 1] + counts
        self._length = length

    def __len__(self) -> int:
        return self._length

    def take(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the part at each position below the length, and the index in it."""
        first, end = int(positions.min()), int(positions.max()) + 1
        if end - first <= DENSE * len(positions):
            return self._take_range(first, end, positions)
        blocks, offsets = np.divmod(positions, self._block)
        parts = self._parts[blocks, offsets]
        indices = self._counts[blocks, parts]
        count = max(1, COMPARED // self._block)
        for begin in range(0, len(positions), count):
            some = slice(begin, begin + count)
            is_before = np.arange(self._block) < offsets[some, None]
            is_before &= self._parts[blocks[some]] == parts[some, None]
            indices[some] += np.count_nonzero(is_before, axis=1)
        return parts.astype(np.int64), indices

    def _take_range(
        self, first: int, end: int, positions: Int64Array
    ) -> tuple[Int64Array, Int64Array]:
        """Return `take` for positions in [first, end)."""
        block, offset = divmod(first, self._block)
        first -= offset
        parts = self._parts.reshape(-1)[first:end]
        counts = np.bincount(parts, minlength=self._counts.shape[1])
        # Elements of the same part have consecutive indices.
        firsts = self._counts[block] - (np.cumsum(counts) - counts)
        indices = np.empty(end - first, np.int64)
        order = np.argsort(parts, kind="stable")
        indices[order] = np.arange(end - first) + np.repeat(firsts, counts)
        places = positions - first
        return parts[places].astype(np.int64), indices[places]
