"""Chains whose positions follow from arithmetic, so that any worker computes any part.

Each element behind `to_iter_dataset` makes one, and nothing is counted on the way: the
whole state of such a chain is the index of the next element.
"""

from __future__ import annotations

import ctypes
import dataclasses
import operator
from typing import Any

from gristmill._base.types import Alloc
from gristmill._dataset.model.blocks import is_built_in
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.node import chain_of, is_ours
from gristmill._dataset.nodes.slicing import sliced
from gristmill._dataset.nodes.to_iter import PrefetchIterDataset, feeds_of
from gristmill._dataset.parallel.pipeline import Pipeline
from gristmill._engine.program import RUN_RECORDS
from gristmill._engine.record_errors import RecordErrors
from gristmill._engine.stream import NO_KEYS, Vector


def records_of_unit(dataset: IterDataset[Any]) -> int | None:
    """Elements of one batch, or of a run of small outputs; None: no arithmetic.

    Elements may turn out to be absent all the same: a function may return None.  Then
    what was computed behind them is computed again.
    """
    records = 1
    node: Any = dataset
    while is_ours(node) and node._stride is not None:
        records *= node._stride
        node = node._parent
    if type(node) is not PrefetchIterDataset or not _is_dense(node._parent):
        return None
    return records if records > 1 else RUN_RECORDS


def _is_dense(dataset: Any) -> bool:
    """Whether no element can be absent, but by a function that returns None."""
    return all(
        is_built_in(type(node)) and node._SPARSE is None for node in chain_of(dataset)
    )


@dataclasses.dataclass(frozen=True)
class ArithmeticPipeline(Pipeline):
    """A pipeline for which `records_of_unit` is not None.  See `Pipeline`.

    Attributes:
        unit_records: See `records_of_unit`; kept because nodes that measure may be put
            into the chain.
    """

    unit_records: int = RUN_RECORDS

    owned = False
    vector_capacity = 1

    def stream_length(self, stream: int) -> int:
        """Indices of the `MapDataset` of one stream."""
        node: Any = sliced(
            self.dataset, self.numbers[stream], self.parts, self.sequential
        )
        while not isinstance(node, PrefetchIterDataset):
            node = node._parent
        return len(node._parent)

    def state_of(self, stream: int, vector: Vector) -> Any:
        """The state of the iterator of a stream at a position."""
        return {"next_index": vector[0]}

    def is_start(self, state: Any) -> bool:
        """Whether a state stands for the start of a stream."""
        return state is None

    def vector_of(self, stream: int, state: Any) -> Vector:
        """The position of a stream at a state of its iterator; None is its start."""
        return (0,) if state is None else (operator.index(state["next_index"]),)

    def open_stream(self, stream: int, at: int = 0) -> ArithmeticStream:  # type: ignore[override]
        """What computes one stream; the index in work is stored `at` an address."""
        return ArithmeticStream(self, stream, at)


class ArithmeticStream:
    """Computes the outputs of one stream.  See `gristmill._engine.stream.Stream`.

    Its position is the index of its next element.

    Args:
        pipeline: The chain.
        stream: Which of its streams.
        at: Address of an int64 that is told the index in work.
    """

    def __init__(self, pipeline: ArithmeticPipeline, stream: int, at: int) -> None:
        self.vector: Vector = (0,)
        self.keys = NO_KEYS
        self.record_errors = RecordErrors(stream)
        self._unit = pipeline.unit_records
        self._iterator: Any = pipeline.iterator(stream)
        self._allocates = hasattr(self._iterator, "alloc")
        self._at = ctypes.c_int64.from_address(at)
        (self._feed,) = feeds_of(self._iterator)

    def seek(self, vector: Vector) -> None:
        """Go to a position, to compute one unit from there."""
        self._feed.confine(vector[0], self._unit)
        self.vector = vector

    def next(self, alloc: Alloc | None = None) -> Any:
        """The next output, see `Stream.next`; a batch is made in `alloc`."""
        if self._allocates:
            self._iterator.alloc = alloc
        self._at.value = self._feed.given
        try:
            element = next(self._iterator)
        except StopIteration:
            raise
        except Exception:
            self.vector = (self._feed.given,)
            raise
        self.vector = (self._feed.given,)
        return element

    def start_prefetch(self) -> None:
        """Do nothing: units behind this one are for others to compute."""

    def close(self) -> None:
        """Stop reading."""
        self._iterator.close()
