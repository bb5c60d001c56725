"""Counts the tokens of a `MapDataset` up to any index, from known lengths."""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gristmill._base.argument_checks import kind
from gristmill._base.threads import threads_to_compute
from gristmill._base.types import Indices, Int64Array
from gristmill._dataset.model.blocks import (
    StepMapDataset,
    ancestor_of,
    origin_of,
    to_origin_indices,
)
from gristmill._dataset.model.known_length import ENDLESS
from gristmill._dataset.model.node import chain_of, is_ours
from gristmill._dataset.nodes.order import (
    ReindexMapDataset,
    RepeatMapDataset,
    ShuffleMapDataset,
    SliceMapDataset,
)
from gristmill._dataset.nodes.shard import WrapMapDataset
from gristmill._dataset.nodes.window_shuffle import WindowShuffleMapDataset
from gristmill._dataset.nodes.with_options import WithOptionsBase, WithSeedBase

# Sums are kept at each multiple of this many elements.
BLOCK = 1 << 14
# The most blocks that are added up before checking whether they are enough, and the
# fewest for a thread.
MAX_BLOCKS = 256
MIN_BLOCKS = 8
# The most epochs whose sums are kept at once.
MAX_EPOCHS = 4
# The elements that are searched for a token, in epochs of all elements.
SEARCHED_EPOCHS = 32
# The most tokens of all elements together.
MAX_TOKENS = 1 << 60
# Returns when a dataset is due, given what it has delivered: an int, or an array.
Due = Callable[[Any], Any]


class RunningCount(Protocol):
    """Counts something in the elements of a dataset before any index.

    Attributes:
        mean: The mean count of an element.
    """

    mean: float

    def of_each(self, first: int, count: int) -> Int64Array:
        """Return the counts of elements [first, first + count)."""

    def before(self, index: int) -> int:
        """Return the count of elements [0, index)."""

    def find(self, due: Due, time: float, after_ties: bool, start: int) -> int:
        """Return the first index from `start` on that is due at `time` or later.

        Args:
            due: Returns when the element after a count is due.  It never decreases.
            time: The time.
            after_ties: Whether to return the first index that is due later instead.
            start: The first index to consider.
        """


class ElementCount:
    """Counts elements: before an index, there are as many."""

    mean = 1.0

    def of_each(self, first: int, count: int) -> Int64Array:
        return np.ones(count, np.int64)

    def before(self, index: int) -> int:
        return index

    def find(self, due: Due, time: float, after_ties: bool, start: int) -> int:
        return _first_late(start, lambda index: _is_late(due(index), time, after_ties))


class TokenCount:
    """Counts the tokens of a dataset's elements, in its order.  Any thread may call.

    Args:
        dataset: The dataset.
        lengths: The tokens of each element of an epoch of the dataset before its
            shuffles, slices, repeats and maps.  None: they are the source's.
        name: The name of the dataset in error messages.

    Attributes:
        lengths: The tokens of each element of the origin, see `origin_of`.

    Raises:
        ValueError: Lengths are missing, do not fit, or are all 0.
        TypeError: Lengths are not integers.
    """

    def __init__(self, dataset: Any, lengths: Any, name: str) -> None:
        self._dataset, base = dataset, origin_of(dataset)
        # Indices may come from the user's code, which is not called in threads.
        self._is_formula = not _has_listed_indices(dataset)
        if lengths is None:
            lengths = _lengths_of_source(base, name)
        self.lengths = _checked_lengths(lengths, len(base), name)
        # After a period, elements have the same number of tokens again, perhaps in
        # another order.  0: there is no period.
        self._period, self._period_tokens = self._find_period(dataset)
        total = self.lengths.sum(dtype=np.int64)
        self.mean = float(total) / len(self.lengths)
        if self._period:
            self.mean = self._period_tokens / self._period
        # For each period, its tokens before each block.
        self._block_sums: dict[int, list[int]] = {}
        # A period, a block of it, and the block's tokens before each of its elements.
        self._last_block: tuple[int, int, Int64Array] | None = None
        self._lock = threading.Lock()
        if not total or not (self._period_tokens if self._period else self._sees_any()):
            raise ValueError(f"{name} has no tokens. Leave it out of the mixture.")

    def of_each(self, first: int, count: int) -> Int64Array:
        found = self.of(np.arange(first, first + count, dtype=np.int64))
        return found.astype(np.int64, copy=False)

    def of(self, indices: Indices) -> npt.NDArray[Any]:
        """Return the counts of some elements."""
        return _look_up(self.lengths, self._dataset, indices)

    def before(self, index: int) -> int:
        period, offset = self._split(index)
        number, place = divmod(offset, BLOCK)
        with self._lock:
            sums = self._sums_until(period, lambda sums: len(sums) > number)
            tokens = period * self._period_tokens + sums[number]
            return tokens + (int(self._block(period, number)[place]) if place else 0)

    def find(self, due: Due, time: float, after_ties: bool, start: int) -> int:
        def is_late(tokens: int) -> bool:
            return _is_late(due(tokens), time, after_ties)

        period = self._split(start)[0]
        if self._period:
            tokens = self._period_tokens
            period = _first_late(period + 1, lambda each: is_late(each * tokens)) - 1
        first = period * self._period_tokens
        with self._lock:
            sums = self._sums_until(period, lambda sums: is_late(first + sums[-1]))
            late = bisect_left(sums, True, key=lambda each: is_late(first + each))
            number = max(late - 1, 0)
            times = due(self._block(period, number) + (first + sums[number]))
        side: Any = "right" if after_ties else "left"
        place = int(np.searchsorted(times, time, side))
        # At the end of the block, the next block is due late.
        index = period * self._period + number * BLOCK + min(place, len(times) - 1)
        return max(index, start)

    def _sees_any(self) -> bool:
        """Return whether any of the elements has tokens, if there is no period.

        Each epoch has other elements of the base.  If no token is among as many as in
        `SEARCHED_EPOCHS` of the base, the order selects none with tokens.
        """
        most = 1 + SEARCHED_EPOCHS * len(self.lengths) // BLOCK
        sums = self._sums_until(0, lambda sums: sums[-1] > 0 or len(sums) > most)
        return sums[-1] > 0

    def _split(self, index: int) -> tuple[int, int]:
        """Return the period of an index, and its offset there."""
        return divmod(index, self._period) if self._period else (0, index)

    def _sums_until(
        self, period: int, is_enough: Callable[[list[int]], bool]
    ) -> list[int]:
        """Return the tokens of a period before each block, of enough blocks."""
        sums = self._block_sums.pop(period, [0])
        while len(self._block_sums) >= MAX_EPOCHS:
            del self._block_sums[next(iter(self._block_sums))]
        self._block_sums[period] = sums
        blocks = -(-self._period // BLOCK) if self._period else sys.maxsize
        while not is_enough(sums) and len(sums) < blocks:
            # The further it is, the more blocks are added up at once.
            last = min(2 * len(sums), len(sums) + MAX_BLOCKS, blocks)
            numbers = range(len(sums) - 1, last - 1)
            firsts = [period * self._period + number * BLOCK for number in numbers]
            for tokens in self._sum_blocks(firsts):
                sums.append(sums[-1] + tokens)
        return sums

    def _sum_blocks(self, firsts: Sequence[int]) -> list[int]:
        """Return the tokens of the blocks of `BLOCK` elements from some indices on."""

        def sum_block(first: int) -> int:
            found = self.of(np.arange(first, first + BLOCK, dtype=np.int64))
            return int(found.sum(dtype=np.int64))

        threads = threads_to_compute(len(firsts) // MIN_BLOCKS)
        if threads == 1 or not self._is_formula:
            return [sum_block(first) for first in firsts]
        from concurrent.futures import ThreadPoolExecutor  # Slow to import.

        with ThreadPoolExecutor(threads) as pool:
            return [*pool.map(sum_block, firsts)]

    def _block_size(self, number: int) -> int:
        left = self._period - number * BLOCK if self._period else BLOCK
        return min(BLOCK, left)

    def _block(self, period: int, number: int) -> Int64Array:
        """Return the tokens of a block before each element, and all of its tokens."""
        if self._last_block is None or self._last_block[:2] != (period, number):
            size = self._block_size(number)
            sums = np.zeros(size + 1, np.int64)
            first = period * self._period + number * BLOCK
            np.cumsum(self.of_each(first, size), out=sums[1:])
            self._last_block = period, number, sums
        return self._last_block[2]

    def _find_period(self, dataset: Any) -> tuple[int, int]:
        """Return the elements of a period, and their tokens; 0 without a period."""
        node, period = dataset, 0
        while _keeps_epochs(node):
            if node._random == "order":
                period = max(period, len(node))
            node = node._parent
        while isinstance(node, StepMapDataset):
            node = node._parent
        has_order = ancestor_of(node) is not None
        length = len(node)
        period = max(period, length)
        if period >= ENDLESS or (has_order and _has_random_order(node)):
            return 0, 0
        if not has_order:
            tokens = int(self.lengths.sum(dtype=np.int64))
        else:
            tokens = _total(node, self.lengths)
        return period, tokens * (period // length)


def _total(dataset: Any, lengths: npt.NDArray[Any]) -> int:
    """Return the tokens of an epoch of a dataset."""
    total = 0
    for first in range(0, len(dataset), BLOCK):
        indices = np.arange(first, min(first + BLOCK, len(dataset)), dtype=np.int64)
        total += int(_look_up(lengths, dataset, indices).sum(dtype=np.int64))
    return total


def _look_up(
    lengths: npt.NDArray[Any], dataset: Any, indices: Indices
) -> npt.NDArray[Any]:
    """Return the lengths of elements, given those of the origin's elements."""
    indices = to_origin_indices(dataset, indices)
    if len(indices) and not 0 <= indices.min() <= indices.max() < len(lengths):
        indices = indices % len(lengths)
    keys = indices.astype(np.int64, copy=False)
    # Unlike a subscript, `take` releases the GIL, but it copies unaligned arrays, such
    # as those of mapped files.  Bytes are always aligned.
    items = lengths.view(f"V{lengths.itemsize}")
    found: npt.NDArray[Any] = np.take(items, keys).view(lengths.dtype)
    return found


def _has_random_order(dataset: Any) -> bool:
    """Return whether a dataset's elements differ from epoch to epoch."""
    node = dataset
    while node._parents:
        if node._random == "order":
            return True
        node = node._parents[0]
    return False


def _has_listed_indices(dataset: Any) -> bool:
    """Return whether a dataset, or one before it, looks up indices in a list."""
    return any(isinstance(node, ReindexMapDataset) for node in chain_of(dataset))


def _keeps_order(node: Any) -> bool:
    """Return whether a node has its parent's elements, or one made of each."""
    if isinstance(node, (StepMapDataset, WithOptionsBase, WithSeedBase)):
        return True
    # A node that measures its parent, for example.
    return is_ours(node) and node._IS_SELECTION and len(node) == len(node._parent)


def _keeps_epochs(node: Any) -> bool:
    """Return whether a node has its parent's epochs, perhaps in other orders."""
    if isinstance(node, (ReindexMapDataset, SliceMapDataset, WrapMapDataset)):
        return False
    orders = (RepeatMapDataset, ShuffleMapDataset, WindowShuffleMapDataset)
    return isinstance(node, orders) or _keeps_order(node)


def _lengths_of_source(base: Any, name: str) -> Any:
    """Return the lengths that the source of a dataset has."""
    base = getattr(base, "_traced_source", base)
    find_lengths = getattr(getattr(base, "_source", None), "lengths", None)
    if not callable(find_lengths):
        raise ValueError(
            f"The number of tokens of each element of {name} ({base}) is not known."
            " Pass lengths to mix: an array for each dataset. Or mix IterDatasets,"
            " which count the tokens of each element."
        )
    return find_lengths()


def _checked_lengths(lengths: Any, count: int, name: str) -> npt.NDArray[Any]:
    """Return lengths as an array of integers, of shape (count,)."""
    array = np.asarray(lengths)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"Lengths of {name} must be integers, got {kind(lengths)} of dtype"
            f" {array.dtype}."
        )
    if array.shape != (count,):
        raise ValueError(
            f"Lengths of {name} must have shape ({count},), one for each of its"
            f" elements before shuffles, slices and repeats, got {array.shape}."
        )
    if count and array.dtype.kind == "i" and array.min() < 0:
        place = int(np.argmax(array < 0))
        raise ValueError(
            f"Lengths of {name} must be at least 0, got {array[place]} at {place}."
        )
    largest = int(array.max(initial=0))
    if largest * count > MAX_TOKENS:  # Sums must not overflow.
        raise ValueError(
            f"Lengths of {name} must be at most {MAX_TOKENS // count}, 2**60 divided by"
            f" their number, got {largest}."
        )
    return np.ascontiguousarray(array)


def _is_late(due: float, time: float, after_ties: bool) -> bool:
    return due > time if after_ties else due >= time


def _first_late(start: int, is_late: Callable[[int], bool]) -> int:
    """Return the first int from `start` on for which `is_late` is true."""
    step = 1
    while not is_late(start + step - 1):
        step *= 2
    # The first step - 1 ints of the last doubling may be late.
    return start + bisect_left(range(step), True, key=lambda n: is_late(start + n))
