"""Datasets without parents: the elements of a source, and ranges of integers."""

from __future__ import annotations

import builtins
import contextlib
import copy
import sys
import time
from typing import Any

import numpy as np

from gristmill import _core, monitoring
from gristmill._base.object_repr import call_text
from gristmill._base.types import Indices
from gristmill._dataset.model.blocks import BlockMapDataset, epochs_and_offsets
from gristmill._dataset.model.node import builds
from gristmill._dataset.model.spec import ShapeDtypeStruct
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset
from gristmill._hot import run as hot_run
from gristmill.options import ReadOptions
from gristmill.sources import as_table, known_length
from gristmill.sources._checks import check_numbered, check_readable, length_of


@builds("MapDataset.source")
class SourceMapDataset(BlockMapDataset[Any]):
    """The elements of a source, ``source[i % len(source)]``.

    The elements of a dict of arrays or a pyarrow table are its rows.
    """

    _SLICEABLE = True
    _APPENDS_TO_OUT = True

    def __init__(self, source: Any) -> None:
        super().__init__()
        self._source = source
        # `_reader` is what elements are read from: `_source`, or its rows.
        # Do not treat an empty array as a table.
        is_empty = isinstance(source, np.ndarray) and not len(source)
        self._reader = source if is_empty else as_table(source)
        check_readable(self._reader)
        check_numbered(self._reader)

    def __len__(self) -> int:
        return length_of(self._reader)

    def __deepcopy__(self, memo: Any) -> SourceMapDataset:
        # Copies for threads share the source, which may be large.
        return copy.copy(self)

    def _arguments_text(self) -> str:
        return f"(source={type(self._source).__name__})"

    def __repr__(self) -> str:
        return call_text(self, source=self._source)

    def _record(self, index: int) -> int:
        return index % (known_length(self._reader) or sys.maxsize)

    def _block(self, indices: Indices, out: list[Any] | None = None) -> list[Any]:
        length = known_length(self._reader)
        keys = indices  # If the source has no length, indices are keys.
        if length is not None:
            _, keys = epochs_and_offsets(indices, length)
        if indices.dtype.hasobject:
            # The loop takes int64; notes on exceptions have the first epoch's index.
            keys = indices = keys.astype(np.int64)
        start_ns = time.perf_counter_ns()
        elements, _, _, error = hot_run.run_block(
            self._reader, keys, indices, (), None, 0, None, out
        )
        if error is not None:
            raise error
        if monitoring.is_on():
            duration_ns = time.perf_counter_ns() - start_ns
            monitoring.record_read(type(self._source).__name__, elements, duration_ns)
        return elements


@builds("MapDataset.range")
class RangeMapDataset(BlockMapDataset[int]):
    """The integers of a `range`."""

    _SLICEABLE = True

    def __init__(self, start: int, stop: int | None = None, step: int = 1) -> None:
        super().__init__()
        self.start = 0 if stop is None else start
        self.stop = start if stop is None else stop
        self.step = step
        self._range = builtins.range(self.start, self.stop, self.step)
        self._keys: _core.KeyPlan | None = None
        with contextlib.suppress(OverflowError):
            # On overflow, the values need Python's integers.
            self._keys = _core.KeyPlan.range(len(self._range), self.start, self.step)

    def __deepcopy__(self, memo: Any) -> RangeMapDataset:
        return copy.copy(self)  # Copies for threads are the same source.

    def __len__(self) -> int:
        return len(self._range)

    def _arguments_text(self) -> str:
        return f"(start={self.start}, stop={self.stop}, step={self.step})"

    @property
    def _element_spec(self) -> Any:
        return ShapeDtypeStruct(shape=(), dtype=np.int64)

    def to_iter_dataset(
        self, read_options: ReadOptions | None = None, *, allow_nones: bool = False
    ) -> PrefetchIterDataset[int]:
        """See `MapDataset.to_iter_dataset`. By default, no threads are used."""
        return PrefetchIterDataset(
            self,
            read_options=read_options or ReadOptions(prefetch_buffer_size=0),
            allow_nones=allow_nones,
        )

    def _record(self, index: int) -> int:
        return index % len(self._range)

    def _block(self, indices: Indices) -> list[Any]:
        if self._keys is not None and not indices.dtype.hasobject:
            elements: list[Any] = self._keys.keys(indices).tolist()
            return elements
        _, offsets = epochs_and_offsets(indices, len(self._range))
        return [self._range[offset] for offset in offsets.tolist()]
