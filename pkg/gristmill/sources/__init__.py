"""Sources of records: anything with ``__len__`` and ``__getitem__``.

Lists, tuples and your own classes are read one record at a time.  A NumPy array, a dict
of equally long ones, and a pyarrow Table of numbers are read natively, in blocks.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, runtime_checkable

from gristmill._base.argument_checks import check_finite, kind
from gristmill._base.lazy_names import lazy_getattr, locate_names, public_names
from gristmill._base.types import T
from gristmill.sources._checks import check_readable
from gristmill.sources._columns import ColumnSource
from gristmill.sources._table import Columns as Columns
from gristmill.sources._table import TableSource as TableSource
from gristmill.sources._table import is_table

if TYPE_CHECKING:
    from gristmill.sources._array_record import (
        ArrayRecordDataSource as ArrayRecordDataSource,
    )
    from gristmill.sources._bag import BagDataSource as BagDataSource
    from gristmill.sources._blended import BlendedDataSource as BlendedDataSource
    from gristmill.sources._concat_and_chunk import (
        ConcatAndChunkDataSource as ConcatAndChunkDataSource,
    )
    from gristmill.sources._folder import FolderDataSource as FolderDataSource
    from gristmill.sources._gpt import GPTDataSource as GPTDataSource
    from gristmill.sources._json_lines import JsonLinesDataSource as JsonLinesDataSource
    from gristmill.sources._mds import MDSDataSource as MDSDataSource
    from gristmill.sources._megatron import MegatronDataSource as MegatronDataSource
    from gristmill.sources._parquet import ParquetDataSource as ParquetDataSource
    from gristmill.sources._remote_options import RemoteOptions as RemoteOptions
    from gristmill.sources._shared_list import (
        SharedMemoryDataSource as SharedMemoryDataSource,
    )
    from gristmill.sources._tar import TarDataSource as TarDataSource
    from gristmill.sources._tf_record import TFRecordDataSource as TFRecordDataSource
    from gristmill.sources._tf_record_stream import TFRecordPosition as TFRecordPosition
    from gristmill.sources._tf_record_stream import TFRecordStream as TFRecordStream
    from gristmill.sources._tf_record_stream import read_tf_records as read_tf_records
    from gristmill.sources._tfds import TFDSDataSource as TFDSDataSource
    from gristmill.sources._token_array import (
        TokenArrayDataSource as TokenArrayDataSource,
    )


@runtime_checkable
class RandomAccessDataSource(Protocol[T]):
    """A data source of a loader: records by number, from 0 to ``len(source) - 1``.

    If the source turns out to be shorter, ``__getitem__`` raises StopIteration, which
    ends the stream that reads it.  Any other exception is an error.

    Define a ``__repr__`` that identifies the data, because saved states are compared
    by it.  Make the source picklable to use worker processes.

    Example:
        >>> class Squares:
        ...     def __len__(self):
        ...         return 4
        ...     def __getitem__(self, index):
        ...         return int(index) ** 2
        >>> list(gristmill.load(Squares(), num_epochs=1))
        [0, 1, 4, 9]
    """

    def __len__(self) -> int:
        """Return the number of records."""

    def __getitem__(self, index: int, /) -> T:
        """Return one record."""


class RangeDataSource:
    """Serve the integers of ``range(start, stop, step)``.

    Args:
        start: The first record.
        stop: The end; not included.
        step: Distance between records, not 0.

    Raises:
        AssertionError: `step` is 0, or leads away from `stop`.

    Example:
        >>> list(RangeDataSource(start=1, stop=8, step=3))
        [1, 4, 7]
    """

    def __init__(self, start: int, stop: int, step: int) -> None:
        for name, value in (("start", start), ("stop", stop), ("step", step)):
            check_finite(name, value)
        if step == 0:
            raise AssertionError("step can't be zero.")
        self._start = start
        self._stop = stop
        self._step = step
        # Rounded up with integers, because floats are inexact beyond 2**53.
        self._len = int(-((start - stop) // step))
        if self._len < 0:
            raise AssertionError("length can't be negative.")

    def __len__(self) -> int:
        return self._len

    def __getitem__(self, record_key: SupportsIndex) -> int:
        key = record_key.__index__()
        if not 0 <= key < self._len:
            raise IndexError(f"Index {key} out of range for {self._len}")
        return self._start + key * self._step

    def __repr__(self) -> str:
        arguments = f"start={self._start}, stop={self._stop}, step={self._step}"
        return f"RangeDataSource({arguments})"


def as_source(data_source: Any) -> Any:
    """Return `as_table` of a loader's data source, after checking it.

    Raises:
        TypeError: The source cannot be read.
        ValueError: The source is empty.
    """
    source = as_table(data_source)
    check_readable(source)
    if known_length(source) == 0:
        raise ValueError(
            "data_source must have a number of records greater than 0, got a"
            f" {kind(source)} with 0 records. Check the path or the filter that it was"
            " made from."
        )
    return source


def as_table(source: Any) -> Any:
    """Return a source of the rows of an array, a dict of arrays or a pyarrow table.

    The rows are not copied.  Any other source is returned unchanged.
    """
    if is_table(source):
        return TableSource(source)
    pyarrow = sys.modules.get("pyarrow")  # Not imported just to check.
    if pyarrow is None or not isinstance(source, (pyarrow.Table, pyarrow.RecordBatch)):
        return source
    from gristmill.sources import _arrow

    arrays = _arrow.as_arrays(source)
    return _arrow.ArrowSource(source) if arrays is None else TableSource(arrays)


def as_columns(source: Any) -> ColumnSource | None:
    """Return an object that gathers a source's records by column, or None."""
    if isinstance(source, ColumnSource):
        return source if source.columns_are_rows else None
    datasets = sys.modules.get("datasets")  # Not imported just to check.
    if datasets is None or type(source) is not getattr(datasets, "Dataset", None):
        return None
    from gristmill.sources import _hugging_face

    return _hugging_face.HuggingFaceColumns(source)


def known_length(source: Any) -> int | None:
    """Return ``len(source)``, or None if that raises TypeError.

    Record keys are passed to a source without a length unchanged, and to other sources
    modulo the length.
    """
    try:
        return len(source)
    except TypeError:
        return None


# Names that this module defines or imports eagerly.
_EAGER_NAMES = "RandomAccessDataSource RangeDataSource TableSource"
# Names whose modules are imported on first use.
_HOMES = {
    "sources._array_record": "ArrayRecordDataSource",
    "sources._bag": "BagDataSource",
    "sources._blended": "BlendedDataSource",
    "sources._concat_and_chunk": "ConcatAndChunkDataSource",
    "sources._folder": "FolderDataSource",
    "sources._gpt": "GPTDataSource",
    "sources._json_lines": "JsonLinesDataSource",
    "sources._mds": "MDSDataSource",
    "sources._megatron": "MegatronDataSource",
    "sources._parquet": "ParquetDataSource",
    "sources._remote_options": "RemoteOptions",
    "sources._shared_list": "SharedMemoryDataSource",
    "sources._tar": "TarDataSource",
    "sources._tf_record": "TFRecordDataSource",
    "sources._tf_record_stream": "TFRecordPosition TFRecordStream read_tf_records",
    "sources._tfds": "TFDSDataSource",
    "sources._token_array": "TokenArrayDataSource",
}


# Hidden from type checkers, which would accept every name.
if not TYPE_CHECKING:
    __getattr__ = lazy_getattr(__name__, _HOMES)
    __all__ = sorted({*_EAGER_NAMES.split(), *locate_names(_HOMES)})

    def __dir__() -> list[str]:
        return public_names(__all__)
