"""Computes a stream's outputs and passes over records that fail."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.native_stream import NativeStream
from gristmill._engine.program import Program, as_number
from gristmill._engine.reading import Reading, read_each
from gristmill._engine.tolerance import (
    Mishaps,
    blamed,
    forgivable,
    none_stands_in,
    stand_ins,
)
from gristmill._hot import run as hot_run
from gristmill._hot.place import Place


class _Singly:
    """A source without reads of many records at once."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getitem__(self, key: int) -> Any:
        return self._source[key]


class TolerantStream(NativeStream):
    """A `NativeStream` that skips or substitutes bad records.

    A skipped record is consumed and gives nothing.  A substitute stands at the
    position of the bad record, with that one's index and generator.
    """

    def __init__(
        self, program: Program, stream: int, at: int, look_ahead: bool
    ) -> None:
        super().__init__(program, stream, at, look_ahead)
        self.mishaps = Mishaps(stream, program.patience)
        self._together = hot_run.reads_together(type(program.source))
        self._told = ctypes.c_int64.from_address(at) if at else ctypes.c_int64()

    def next(self, alloc: Alloc | None = None) -> Any:
        """The next output, see `Stream.next`.

        Raises:
            StopIteration: The stream has ended, or met many bad records and nothing
                else: then there are mishaps, and it goes on behind them.
            Overrun: More bad records than may be.
        """
        self.mishaps.begin()
        return super().next(alloc)

    def _records(self, want: int) -> list[Any]:
        elements: list[Any] = []
        while len(elements) < want and self._consumed < self._length:
            count = min(want - len(elements), self._length - self._consumed)
            keys, indices = self._block(self._consumed, count)
            made = self._pass_through(keys, indices)
            if made:
                self.mishaps.alone = False
                elements += made
            elif self.mishaps.many:
                break
        return elements

    def _read_together(self, keys: Int64Array) -> tuple[Any, list[Any] | None]:
        """What to read a block from, or its elements if that can be done at once.

        Those behind a bad record are not read again for each bad one.
        """
        source = self._program.source
        if isinstance(self._reading, Reading) and self._reading.block_failed:
            return _Singly(source), None
        self._told.value = int(keys[0])
        try:
            elements = list(source.__getitems__(keys.tolist()))
        except Exception:
            return _Singly(source), None
        if len(elements) != len(keys):
            return source, None
        return None, elements

    def _pass_through(self, keys: Int64Array, indices: Int64Array) -> list[Any]:
        """What becomes of a block, up to and with the first failed read of it."""
        read, names = self._read(keys), self._odd_keys or keys
        elements, failure = (None, None) if read is None else read
        source = self._program.source if elements is None else None
        if self._together and elements is None:
            source, elements = self._read_together(keys)
        end = len(keys) if elements is None else len(elements)
        some_keys, some_indices = keys, indices
        if failure is not None:
            some_keys, some_indices = keys[:end], indices[:end]
        made: list[Any] = []
        at = 0
        while at < end:
            done, kept, consumed, error = hot_run.run_block(
                source,
                some_keys,
                some_indices,
                self._steps,
                self._draws,
                self._at,
                elements,
            )
            made += done
            at += consumed
            self._consumed += consumed
            if error is None:
                self._key_parts.append(some_keys if kept is None else some_keys[kept])
                continue
            self._key_parts.append(
                some_keys[slice(len(done)) if kept is None else kept]
            )
            made += self._pass_over(error, names[at - 1], indices[at - 1 : at])
            some_keys, some_indices = keys[at:end], indices[at:end]
            elements = elements and elements[consumed:]
        if failure is not None:
            failure.add_note(self._place(keys, indices, end))
            self._consumed += 1
            made += self._pass_over(failure, names[end], indices[end : end + 1])
        return made

    def _pass_over(self, error: Exception, name: Any, index: Int64Array) -> list[Any]:
        """What takes the place of the record that was consumed last, if anything."""
        place = blamed(error)
        if place is None:
            raise error
        if self._program.on_error == "substitute":
            return self._substitute(error, place, name, index)
        self.mishaps.add(error, place, name)
        return []

    def _substitute(
        self, error: Exception, place: Place, name: Any, index: Int64Array
    ) -> list[Any]:
        position = self._consumed - 1
        tried: list[Any] = []
        for other in stand_ins(position, self._length):
            [instead] = self._program.source_keys(self._stream, other, 1)
            key = np.array([as_number(instead)], np.int64)
            self._renew_generator(position, int(index[0]))
            elements, failure = read_each(self._program.source, [instead])
            done: list[Any] = []
            if failure is None:
                done, _, _, failure = hot_run.run_block(
                    None, key, index, self._steps, self._draws, self._at, elements
                )
            if failure is None:
                self.mishaps.add(error, place, name, instead)
                self._key_parts.append(key[: len(done)])
                return done
            if not forgivable(failure):
                raise failure
            tried.append(instead)
        raise none_stands_in(name, tried) from error

    def _renew_generator(self, position: int, index: int) -> None:
        """Forget what the record at `position` drew before it failed."""
        if not self._blockwise:
            local = self._stream + position * self._program.streams
            self._draws.put(index, self._program.keys.metadata(local).rng)
