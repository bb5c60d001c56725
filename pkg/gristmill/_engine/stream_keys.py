"""Computes the keys and indices of the records at the positions of one stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from gristmill._base.types import Int64Array
from gristmill._engine.program import Program, as_number
from gristmill._engine.record_errors import substitute_candidates
from gristmill._engine.stream import NO_KEYS
from gristmill._hot.draw import Draws
from gristmill._hot.error_location import as_failure
from gristmill.records import RecordMetadata

# The number of keys that are computed together at least, if the stream has as many.
KEY_BLOCK = 4096


# The type is a string, because numpy.random is slow to import.
class SamplerDraws(dict[int, "np.random.Generator | None"]):
    """Generators of a sampler that makes its own, by global index.

    ``at(index)`` is like that of `Draws`, but each call returns the same object.
    """

    at = dict.get


# Consecutive records of a stream: the keys for the source (int64, -1 for a key that is
# not an int64), the global indices (int64), and the names: the results of `key_of` if
# one of them is not an int of at most 64 bits, else None.  Keys have wrapped around.
RecordKeys = tuple[Int64Array, Int64Array, list[Any] | None]


class KeyBlocks(Protocol):
    """The keys of records at consecutive positions.

    Attributes:
        length: The number of positions.
    """

    length: int

    def block(self, first: int, count: int) -> Int64Array:
        """Return the keys at `count` positions from `first` on, int64 of shape (n,)."""

    def window_left(self, position: int) -> int:
        """Return the number of records from `position` on in the sampler's window.

        Returns 0 if there are no windows, or at the end.
        """


class StreamKeys:
    """The keys, indices and generators of the records of one stream.

    Not thread-safe, except that `Reading` may call `source_keys` in another thread,
    while this one reads.  That changes neither the cache nor the draws.

    Attributes:
        length: The number of records of the stream.
        draws: Generators by global index; None if there is no seed.  If the sampler
            makes the generators, only those of the records returned last.
    """

    def __init__(self, program: Program, stream: int) -> None:
        self.length = program.stream_length(stream)
        self._program = program
        self._stream = stream
        self._in_blocks = program.in_blocks
        self._sampler_draws = SamplerDraws()
        self.draws: Any = self._sampler_draws
        if self._in_blocks:
            self.draws = None if program.seed is None else Draws(program.seed)
        # The keys and indices of the last block, and the position of its first record.
        self._cached_at = 0
        self._cached = NO_KEYS, NO_KEYS

    def records(self, first: int, count: int) -> RecordKeys:
        """Return the records at `count` positions from `first` on.

        There may be fewer if the sampler returns one record at a time.  They end before
        an index that is among them already, because generators are found by index, and
        before a position for which the sampler fails.

        Raises:
            Exception: A sampler of the user's raised it for the first position.
        """
        if not self._in_blocks:
            return self._by_metadata(first, count)
        keys, indices = self._cached
        begin = first - self._cached_at
        if not 0 <= begin <= len(keys) - count:
            self._fill(first, count)
            begin, (keys, indices) = 0, self._cached
        end = begin + count
        return keys[begin:end], indices[begin:end], None

    def cached_records(self, first: int) -> RecordKeys:
        """Return the records from `first` on whose keys are computed already.

        REQUIRES: `records` was called last with this `first`, and keys come in blocks.
        """
        begin = first - self._cached_at
        keys, indices = self._cached
        return keys[begin:], indices[begin:], None

    def block(self, first: int, count: int) -> Int64Array:
        """Return only the keys of `records`, see `KeyBlocks.block`.

        REQUIRES: keys come in blocks.
        """
        keys, begin = self._cached[0], first - self._cached_at
        if not 0 <= begin <= len(keys) - count:
            self._fill(first, count)
            begin, keys = 0, self._cached[0]
        return keys[begin : begin + count]

    def _fill(self, first: int, count: int) -> None:
        """Cache the keys of at least `count` positions from `first` on."""
        size = min(max(count, KEY_BLOCK), self.length - first)
        self._cached = self.compute_block(first, size)
        self._cached_at = first

    def window_left(self, position: int) -> int:
        """Return the number of records from a position on in the sampler's window.

        Returns 0 if the sampler has no windows, or at the end.
        """
        sampler = self._program.sampler
        if position >= self.length or not hasattr(sampler, "window_left"):
            return 0
        step = self._program.streams * self._program.shard.shard_count
        left = int(sampler.window_left(self._index(position), step))
        return min(left, self.length - position)

    def source_keys(self, first: int, count: int) -> list[Any]:
        """Return the keys for the source at `count` positions from `first` on.

        They end before a position for which a sampler of the user's fails.  This may be
        called to read ahead: the records last returned keep their generators.
        """
        if self._in_blocks:
            block: list[Any] = self.compute_block(first, count)[0].tolist()
            return block
        keys: list[Any] = []
        for position in range(first, first + count):
            try:
                keys.append(self.key_of(self.metadata(position)))
            except Exception:
                break  # The error is raised when that record is due.
        return keys

    def metadata(self, position: int) -> RecordMetadata:
        """Return the sampler's metadata of one record."""
        index = self._index(position)
        try:
            metadata: RecordMetadata = self._program.sampler[index]
        except Exception as error:
            error.add_note(f"while the sampler returned index {index}")
            raise
        return metadata

    def key_of(self, metadata: RecordMetadata) -> Any:
        """Return the key for the source: a number wraps around, a name does not."""
        key: Any = metadata.record_key
        if not self._program.modulus or isinstance(key, (str, bytes)):
            return key
        try:
            return key % self._program.modulus
        except TypeError:
            return key

    def candidates(self, position: int) -> Iterator[Any]:
        """Yield the keys of records to try as substitutes for one, best first."""
        for candidate in substitute_candidates(position, self.length):
            yield from self.source_keys(candidate, 1)

    def renew_generator(self, position: int, index: int) -> None:
        """Undo the draws of the record at `position`.

        Does nothing if keys come in blocks, since `Draws.at` resets the generator at
        each call anyway.

        Args:
            position: The position in the stream.
            index: The global index of that record.
        """
        if not self._in_blocks:
            self._sampler_draws[index] = self.metadata(position).rng

    def _index(self, position: int) -> int:
        """Return the global index of a record."""
        program, shard = self._program, self._program.shard
        local = self._stream + position * program.streams
        return program.first_index + local * shard.shard_count + shard.shard_index

    def compute_block(self, first: int, count: int) -> tuple[Int64Array, Int64Array]:
        """Return the keys and global indices at `count` positions from `first` on.

        REQUIRES: keys come in blocks.
        """
        program, start = self._program, self._index(first)
        stride = program.streams * program.shard.shard_count
        try:
            keys = program.sampler.record_keys(start, stride, count)
        except StopIteration as error:
            # This is not the end, because some of these records may be before it.
            raise as_failure(error, "record_keys of the sampler") from error
        if program.modulus:
            keys %= program.modulus
        return keys, np.arange(start, start + stride * count, stride, dtype=np.int64)

    def _by_metadata(self, first: int, count: int) -> RecordKeys:
        """Return `records` of a sampler that returns one record at a time."""
        names: list[Any] = []
        indices: list[int] = []
        draws = self._sampler_draws
        draws.clear()
        for position in range(first, first + count):
            try:
                metadata = self.metadata(position)
            except Exception:
                if position == first:
                    raise
                break
            index = metadata.index
            if type(index) is not int or as_number(index) != index:
                index = self._index(position)  # The user's index is not an int64.
            if index in draws:
                break
            draws[index] = metadata.rng
            indices.append(index)
            names.append(self.key_of(metadata))
        keys = [as_number(name) for name in names]
        exact = all(type(n) is int and n == k for n, k in zip(names, keys, strict=True))
        key_array, index_array = np.array(keys, np.int64), np.array(indices, np.int64)
        return key_array, index_array, None if exact else names


def first_records(records: RecordKeys, count: int) -> RecordKeys:
    """Return the first `count` of some records."""
    keys, indices, names = records
    if count == len(keys):
        return records
    return keys[:count], indices[:count], None if names is None else names[:count]


def name_of(records: RecordKeys, number: int) -> Any:
    """Return the key of record number `number`, as `key_of` returned it."""
    keys, _, names = records
    return keys[number] if names is None else names[number]
