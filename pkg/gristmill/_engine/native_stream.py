"""Computes a chain of one-to-one steps, filters and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill import batching
from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.block_reading import BlockReading, open_reading
from gristmill._engine.decoding import open_decoding
from gristmill._engine.gathering import Gathering
from gristmill._engine.program import BatchSpec, Program, as_number
from gristmill._engine.reading import read_each
from gristmill._engine.stream import NO_KEYS, Vector
from gristmill._engine.tolerance import Mishaps
from gristmill._hot import run as hot_run
from gristmill._hot.draw import Draws
from gristmill._hot.place import Place
from gristmill.sources import TableSource

KEY_BLOCK = 1024


class SamplerDraws:
    """Generators of a sampler that makes its own, by global index."""

    def __init__(self) -> None:
        self._generators: dict[int, np.random.Generator | None] = {}

    def put(self, index: int, generator: np.random.Generator | None) -> None:
        """Keep the generator of one record."""
        self._generators[index] = generator

    def has(self, index: int) -> bool:
        """Whether a record of this index is kept."""
        return index in self._generators

    def at(self, index: int) -> np.random.Generator | None:
        """The generator of one record; None where the sampler has no seed."""
        return self._generators.get(index)

    def clear(self) -> None:
        """Forget all."""
        self._generators.clear()


class NativeStream:
    """A chain of one-to-one steps, filters and batches.  See `Stream`.

    Its position is the number of records that it has consumed: an output takes
    exactly the records that it needs, so nothing is ever pending between two.
    """

    def __init__(
        self, program: Program, stream: int, at: int, look_ahead: bool
    ) -> None:
        self.vector: Vector = (0,)
        self.keys = NO_KEYS
        self.mishaps = Mishaps(stream)
        self._program = program
        self._stream = stream
        self._at = at
        self._length = program.stream_length(stream)
        self._consumed = 0
        self._levels = program.levels
        self._steps = program.levels[0].steps
        self._blockwise = program.in_blocks
        self._draws: Any = SamplerDraws()
        if self._blockwise:
            self._draws = None if program.seed is None else Draws(program.seed)
        self._gathering = self._native_gathering(look_ahead)
        self._gathers_all = self._gathering is not None and len(self._levels) == 1
        self._decoding = open_decoding(program, stream, look_ahead)
        # What cannot be decoded at once has been read, and was looked ahead for.
        self._reading = open_reading(
            program, stream, look_ahead and self._decoding is None
        )
        self._read_natively = isinstance(program.source, TableSource)
        self._key_parts: list[Int64Array] = []
        self._cached_at = 0
        self._cached_keys = NO_KEYS
        self._cached_indices = NO_KEYS
        # Keys of the block in work that int64 cannot say, as the sampler gave them.
        self._odd_keys: list[Any] | None = None

    def seek(self, vector: Vector) -> None:
        """Make the next output the one that follows ``vector[0]`` records."""
        if vector[0] != self._consumed:
            self._reading.forget()
            for ahead in (self._gathering, self._decoding):
                if ahead is not None:
                    ahead.forget()
        self._consumed = vector[0]
        self.vector = vector

    def next(self, alloc: Alloc | None = None) -> Any:
        """The next output, see `Stream.next`."""
        before = self._consumed
        self._key_parts.clear()
        try:
            gathers = self._gathers_all
            output = self._gathered(alloc) if gathers else self._output(alloc)
        except Exception:
            self.vector = (self._consumed,)
            raise
        except BaseException:
            self._consumed = before
            raise
        self.vector = (self._consumed,)
        parts = self._key_parts
        self.keys = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return output

    def start_prefetch(self) -> None:
        """Begin to read ahead."""
        spec = self._levels[0].batch
        if self._decoding is not None and spec is not None:
            self._decoding.start(self._consumed, spec.size)
        elif not self._read_natively:
            self._reading.start(self._consumed)

    def close(self) -> None:
        """Stop reading ahead."""
        self._reading.close()
        if self._gathering is not None:
            self._gathering.forget()
        if self._decoding is not None:
            self._decoding.close()

    def _output(self, alloc: Alloc | None) -> Any:
        top = len(self._levels) - 1
        if self._levels[top].batch is not None:
            return self._batch(top, alloc)
        elements = self._elements(top, 1)
        if not elements:
            raise StopIteration
        return elements[0]

    def _batch(self, level: int, alloc: Alloc | None) -> Any:
        spec = self._levels[level].batch
        assert spec is not None
        if level == 0 and self._gathering is not None:
            return self._gathered(alloc)
        if level == 0 and self._decoding is not None:
            count = self._whole_batch(spec)
            found = self._decoding.batch(self._consumed, count, alloc)
            if isinstance(found, tuple):
                return self._made_at_once(*found)
            assert isinstance(self._reading, BlockReading)
            self._reading.offer(self._consumed, found)
        elements = self._elements(level, spec.size)
        if len(elements) < spec.size and (spec.drop_remainder or not elements):
            raise StopIteration
        if spec.make is not None:
            return self._user_batch(spec.make, elements)
        return batching.make_batch(elements, rules=self._program.rules, alloc=alloc)

    def _user_batch(self, make: Callable[[list[Any]], Any], elements: list[Any]) -> Any:
        try:
            return make(elements)
        except Exception as error:
            error.add_note(f"while batch_fn made a batch of {len(elements)} elements")
            raise

    def _elements(self, level: int, want: int) -> list[Any]:
        """Up to `want` elements that have passed the steps of `level`."""
        if level == 0:
            return self._records(want)
        steps = self._levels[level].steps
        elements: list[Any] = []
        while len(elements) < want:
            try:
                batch = self._batch(level - 1, None)
            except StopIteration:
                break
            if not steps:
                elements.append(batch)
                continue
            # Of the records read last perhaps none has passed the filters.
            last_key = next(
                part[-1:] for part in reversed(self._key_parts) if len(part)
            )
            done, _, _, error = hot_run.run_block(
                None, last_key, last_key, steps, None, self._at, [batch]
            )
            if error is not None:
                raise error
            elements += done
        return elements

    def _records(self, want: int) -> list[Any]:
        elements: list[Any] = []
        while len(elements) < want and self._consumed < self._length:
            count = min(want - len(elements), self._length - self._consumed)
            keys, indices = self._block(self._consumed, count)
            done, kept, consumed, error = self._run(keys, indices)
            self._consumed += consumed
            if error is not None:
                raise error
            self._key_parts.append(keys if kept is None else keys[kept])
            elements = elements + done if elements else done
        return elements

    def _read(self, keys: Int64Array) -> tuple[list[Any], Exception | None] | None:
        """Read a block as `Reading.read` does, None where the loop is to read it."""
        read = None
        if not self._read_natively:
            names = keys if self._odd_keys is None else self._odd_keys
            read = self._reading.read(self._consumed, names)
        if read is None and self._odd_keys is not None:
            read = read_each(self._program.source, self._odd_keys)
        return read

    def _run(
        self, keys: Int64Array, indices: Int64Array
    ) -> tuple[list[Any], list[int] | None, int, Exception | None]:
        read = self._read(keys)
        if read is None:
            source = self._program.source
            return hot_run.run_block(
                source, keys, indices, self._steps, self._draws, self._at
            )
        elements, failure = read
        count = len(elements)
        result = hot_run.run_block(
            None,
            keys[:count],
            indices[:count],
            self._steps,
            self._draws,
            self._at,
            elements,
        )
        if failure is None or result[3] is not None:
            return result
        failure.add_note(self._place(keys, indices, count))
        return result[0], result[1], count + 1, failure

    def _place(self, keys: Int64Array, indices: Int64Array, place: int) -> Place:
        """What is said of a record of the block in work that cannot be read."""
        names: Any = keys if self._odd_keys is None else self._odd_keys
        return Place(None, names[place], int(indices[place]))

    def _native_gathering(self, look_ahead: bool) -> Gathering | None:
        """How whole batches are made without Python, where they can be."""
        program = self._program
        first, source = program.levels[0], program.source
        plain = not first.steps and first.batch is not None and first.batch.make is None
        if not (plain and program.in_blocks and isinstance(source, TableSource)):
            return None
        if not source.gathers:
            return None
        return Gathering(
            source,
            rules=program.rules,
            options=program.read_options,
            keys_of=self._keys,
            length=self._length,
            look_ahead=look_ahead,
        )

    def _gathered(self, alloc: Alloc | None) -> Any:
        spec, gathering = self._levels[0].batch, self._gathering
        assert spec is not None and gathering is not None
        count = self._whole_batch(spec)
        return self._made_at_once(*gathering.batch(self._consumed, count, alloc))

    def _whole_batch(self, spec: BatchSpec) -> int:
        """How many records the next batch has, where each gives one element."""
        count = min(spec.size, self._length - self._consumed)
        if count < spec.size and (spec.drop_remainder or count <= 0):
            self._consumed = self._length
            raise StopIteration
        return count

    def _made_at_once(self, batch: Any, keys: Int64Array) -> Any:
        self._consumed += len(keys)
        self._key_parts.append(keys)
        return batch

    def _block(self, first: int, count: int) -> tuple[Int64Array, Int64Array]:
        """Record keys and global indices of the stream's records from `first` on."""
        if not self._blockwise:
            return self._block_by_metadata(first, count)
        keys = self._keys(first, count)
        offset = first - self._cached_at
        return keys, self._cached_indices[offset : offset + count]

    def _keys(self, first: int, count: int) -> Int64Array:
        """The keys of `_block`, where they come in blocks."""
        offset = first - self._cached_at
        if offset < 0 or offset + count > len(self._cached_keys):
            size = min(max(count, KEY_BLOCK), self._length - first)
            streams = self._program.streams
            self._cached_keys, self._cached_indices = self._program.keys.block(
                self._stream + first * streams, streams, size
            )
            self._cached_at, offset = first, 0
        return self._cached_keys[offset : offset + count]

    def _block_by_metadata(
        self, first: int, count: int
    ) -> tuple[Int64Array, Int64Array]:
        """As `_block`, from the sampler's own metadata; may be of fewer records.

        Generators are found by index, so a block ends before an index that it has.
        """
        names: list[Any] = []
        indices: list[int] = []
        self._draws.clear()
        streams, shard = self._program.streams, self._program.keys.shard
        for i in range(first, first + count):
            position = self._stream + i * streams
            metadata = self._program.keys.metadata(position)
            index = metadata.index
            if type(index) is not int or as_number(index) != index:
                index = position * shard.shard_count + shard.shard_index
            if self._draws.has(index):
                break
            self._draws.put(index, metadata.rng)
            indices.append(index)
            names.append(self._program.keys.source_key(metadata.record_key))
        keys = [as_number(name) for name in names]
        exact = all(type(n) is int and n == k for n, k in zip(names, keys, strict=True))
        self._odd_keys = None if exact else names
        return np.array(keys, np.int64), np.array(indices, np.int64)
