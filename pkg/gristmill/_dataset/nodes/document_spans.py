"""The lengths of documents, and the reading of their parts."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill import monitoring
from gristmill._base.argument_checks import kind
from gristmill._base.types import Indices, Int64Array
from gristmill._dataset.model.blocks import ancestor_of
from gristmill._dataset.model.known_length import ENDLESS
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import chain_of
from gristmill._dataset.nodes.mix import SelectionMapDataset
from gristmill._dataset.nodes.order import IndexMapDataset, OrderMapDataset
from gristmill._dataset.nodes.planned_mix import PlannedMixMapDataset
from gristmill._dataset.nodes.source import SourceMapDataset
from gristmill.sources._token_source import TokenSource

Lengths: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
# Returns the lengths of the elements at some indices.
FindLengths: TypeAlias = Callable[[Indices], npt.NDArray[Any]]

# Elements whose lengths are found together.
BLOCK = 1 << 16


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
    """

    def __init__(self, source: TokenSource, order: IndexMapDataset[Any] | None) -> None:
        self.source = source
        self.order = order

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
        if self.order is None:
            return documents
        return self.order._to_ancestor_indices(documents) % len(self.source)


def token_records_of(dataset: MapDataset[Any]) -> TokenRecords | None:
    """Return a dataset's documents, if they are records of a token source, or None."""
    order = dataset if isinstance(dataset, IndexMapDataset) else None
    base = dataset if order is None else order._ancestor
    if type(base) is not SourceMapDataset:
        return None
    source = base._source
    if not isinstance(source, TokenSource):
        return None
    return TokenRecords(source, order)


def lengths_of(dataset: MapDataset[Any], given: npt.ArrayLike | None) -> Lengths:
    """Return the number of tokens of each document, int32 or int64 of shape ``(n,)``.

    Args:
        dataset: The documents.
        given: The user's lengths; None if the dataset's source has them.

    Raises:
        TypeError: The lengths are not ints, or not known.
        ValueError: The dataset is endless; there are not as many lengths as documents;
            or the lengths are not those of the dataset's source.
    """
    if len(dataset) >= ENDLESS:
        raise ValueError(
            f"pack needs documents that end, but {dataset} is endless. Leave out"
            " repeat, pass epochs to mix, or select the first documents: ds[:count]."
        )
    for node in chain_of(dataset):
        if isinstance(node, PlannedMixMapDataset):
            node.keep_order(len(dataset))  # Rows have documents of distant positions.
    if given is None:
        find = _find_lengths(dataset)
        if find is None:
            raise TypeError(
                f"The lengths of the elements of {dataset} are not known before they"
                " are computed. Pass lengths=ds.measure_lengths(path), or an array"
                " with the number of tokens of each element."
            )
        return _lengths_of_all(dataset, find)
    lengths = as_lengths(given, len(dataset))
    if token_records_of(dataset) is not None:
        _check_equal(lengths, lengths_of(dataset, None))
    return lengths


def _find_lengths(dataset: MapDataset[Any]) -> FindLengths | None:
    """Return what finds the lengths of a dataset's elements; None if nothing does."""
    if type(dataset) is SourceMapDataset:
        source = dataset._source
        if not isinstance(source, TokenSource):
            return None
        lengths = source.lengths()
        return lambda indices: lengths[(indices % len(lengths)).astype(np.int64)]
    if isinstance(dataset, OrderMapDataset) and dataset._IS_SELECTION:
        order, find_all = dataset, _find_lengths(ancestor_of(dataset))
        if find_all is None:
            return None
        return lambda indices: find_all(order._to_ancestor_indices(indices))
    if not isinstance(dataset, SelectionMapDataset):
        return None
    if isinstance(dataset, PlannedMixMapDataset) and dataset._counts is not None:
        finders: list[FindLengths] = [count.of for count in dataset._counts]
    else:
        found = [_find_lengths(parent) for parent in dataset._parents]
        finders = [each for each in found if each is not None]
        if len(finders) < len(found):
            return None
    return functools.partial(_find_in_mix, dataset, finders)


def _find_in_mix(
    mix: SelectionMapDataset[Any], finders: list[FindLengths], indices: Indices
) -> npt.NDArray[Any]:
    """Return the lengths of elements, given what finds those of each parent's."""
    lengths = np.empty(len(indices), np.int64)
    for number, places, parent_indices in mix.by_parent(indices):
        lengths[places] = finders[number](parent_indices)
    return lengths


def _lengths_of_all(dataset: MapDataset[Any], find: FindLengths) -> Lengths:
    """Return the lengths of a dataset's elements."""
    if type(dataset) is SourceMapDataset:
        known: Any = dataset._source.lengths()
        return known  # type: ignore[no-any-return]
    lengths: Lengths = np.empty(len(dataset), np.int32)
    for first in range(0, len(lengths), BLOCK):
        indices = np.arange(first, min(first + BLOCK, len(lengths)))
        found = find(indices)
        if lengths.dtype == np.int32 and found.max() > np.iinfo(np.int32).max:
            lengths = lengths.astype(np.int64)
        lengths[first : first + len(found)] = found
    return lengths


def as_lengths(lengths: Any, count: int, name: str = "lengths") -> Lengths:
    """Return the user's lengths as an array of int32 or int64.

    Args:
        lengths: The lengths.
        count: The number of documents.
        name: What errors call the lengths.

    Raises:
        TypeError: They are not an array of ints.
        ValueError: There are not as many as documents.
    """
    array = np.asarray(lengths)
    if array.shape == (0,):
        array = np.empty(0, np.int64)  # NumPy's dtype of an empty list is float64.
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must be an array of ints of shape (n,), got"
            f" {kind(lengths)} of dtype {array.dtype} and shape {array.shape}."
        )
    if len(array) != count:
        raise ValueError(
            f"{name} must have one length for each of the {count} documents, got"
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
