"""The lengths of documents, and the reading of their parts."""

from __future__ import annotations

import time
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill import monitoring
from gristmill._base.argument_checks import kind
from gristmill._base.types import Int64Array
from gristmill._dataset.model.blocks import indices_from
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.nodes.order import IndexMapDataset
from gristmill._dataset.nodes.source import SourceMapDataset
from gristmill.sources._token_source import TokenSource

Lengths: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]


class Spans(NamedTuple):
    """The parts of documents in some rows.

    Attributes:
        offsets: int64, shape ``(k + 1,)``: row i has the spans
            ``offsets[i]:offsets[i + 1]``.
        documents: int64, shape ``(m,)``: the index of each span's document.
        begins: int64, shape ``(m,)``: the first token of the span in its document.
        ends: int64, shape ``(m,)``: the token after its last one.
    """

    offsets: Int64Array
    documents: Int64Array
    begins: Int64Array
    ends: Int64Array


class TokenRecords:
    """A dataset whose documents are the records of a token source.

    Args:
        source: The source.
        order: Selects its records; None for all of them in their order.
        length: The number of documents.
    """

    def __init__(
        self, source: TokenSource, order: IndexMapDataset[Any] | None, length: int
    ) -> None:
        self.source = source
        self._order = order
        self._length = length

    def lengths(self) -> Lengths:
        """Return the number of tokens of each document, without reading them."""
        lengths: Any = self.source.lengths()
        if self._order is None:
            return lengths  # type: ignore[no-any-return]
        selected: Lengths = lengths[self._keys(indices_from(0, self._length))]
        return selected

    def read(self, spans: Spans) -> list[Any]:
        """Return the tokens of each span; only these are read."""
        keys = self._keys(spans.documents)
        start_ns = time.perf_counter_ns()
        parts = self.source.read_spans(keys, spans.begins, spans.ends)
        if monitoring.is_on():
            duration_ns = time.perf_counter_ns() - start_ns
            monitoring.record_read(type(self.source).__name__, parts, duration_ns)
        return parts

    def _keys(self, documents: Int64Array) -> Int64Array:
        """Return the record of each document, in epoch 0."""
        if self._order is None:
            return documents
        return self._order.to_base_indices(documents) % len(self.source)


def token_records_of(dataset: MapDataset[Any]) -> TokenRecords | None:
    """Return a dataset's documents, if they are records of a token source, or None."""
    order = dataset if isinstance(dataset, IndexMapDataset) else None
    base = dataset if order is None else order.base
    if type(base) is not SourceMapDataset:
        return None
    source = base._source
    if not isinstance(source, TokenSource):
        return None
    return TokenRecords(source, order, len(dataset))


def lengths_of(dataset: MapDataset[Any], given: npt.ArrayLike | None) -> Lengths:
    """Return the number of tokens of each document, int32 or int64 of shape ``(n,)``.

    Args:
        dataset: The documents.
        given: The user's lengths; None if the dataset's source knows them.

    Raises:
        TypeError: The lengths are not ints, or not known.
        ValueError: There are not as many lengths as documents; or the lengths are not
            those of the dataset's source.
    """
    records = token_records_of(dataset)
    if given is None:
        if records is None:
            raise TypeError(
                f"The lengths of the elements of {dataset} are not known before they"
                " are computed. Pass lengths=ds.measure_lengths(path), or an array"
                " with the number of tokens of each element."
            )
        return records.lengths()
    lengths = _as_lengths(given, len(dataset))
    if records is not None:
        _check_equal(lengths, records.lengths())
    return lengths


def _as_lengths(lengths: npt.ArrayLike, count: int) -> Lengths:
    """Return lengths as an array of int32 or int64."""
    array = np.asarray(lengths)
    if array.shape == (0,):
        array = np.empty(0, np.int64)  # NumPy's dtype of an empty list is float64.
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            "lengths must be an array of ints of shape (n,), got"
            f" {kind(lengths)} of dtype {array.dtype} and shape {array.shape}."
        )
    if len(array) != count:
        raise ValueError(
            f"lengths must have one length for each of the {count} documents, got"
            f" {len(array)}. Pass the lengths of this dataset."
        )
    # The plan needs lengths that never change.
    copies: Any = True if array.flags.writeable else None
    if array.dtype.itemsize < 4 or array.dtype == np.int32:
        return np.array(array, np.int32, order="C", copy=copies)
    return np.array(array, np.int64, order="C", copy=copies)


def _check_equal(given: Lengths, known: Lengths) -> None:
    """Raise ValueError if lengths are not those of the source."""
    differs = given != known
    if differs.any():
        document = int(differs.argmax())
        raise ValueError(
            f"lengths[{document}] must be {known[document]}, the number of tokens of"
            f" document {document}, got {given[document]}. Leave lengths out: the"
            " source knows them."
        )
