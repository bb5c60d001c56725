"""Rows of documents whose lengths are given.

A plan (`_core.PackPlan`) assigns documents to rows from their lengths alone.  So a row
has an index, and any worker, stream and rank can make it.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from gristmill import _core
from gristmill._base.argument_checks import check_callable
from gristmill._base.types import Indices, Int64Array
from gristmill._dataset.model.blocks import (
    BlockMapDataset,
    as_indices,
    block_of,
    epochs_and_offsets,
)
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.model.node import builds, chain_of
from gristmill._dataset.model.packable import PackCounts
from gristmill._dataset.nodes.document_spans import (
    Spans,
    lengths_of,
    token_records_of,
)
from gristmill._dataset.nodes.feature_lengths import find_lengths, given_lengths
from gristmill._dataset.nodes.mix import ConcatenateMapDataset, SelectionMapDataset
from gristmill._dataset.nodes.pack_layout import at_least, pack_layout
from gristmill._dataset.nodes.source import SourceMapDataset
from gristmill._hot.layouts import PackLayout
from gristmill._hot.packed_rows import RowWriter

# "tokens", "attention", or a function of an array of lengths.
CostOfLengths: TypeAlias = str | Callable[[Int64Array], npt.ArrayLike]

MAX_LENGTH = 1 << 24  # The most tokens in a row of a `_core.PackPlan`.
# The name of the tokens in a row if documents are arrays, not dicts.
TOKENS = "tokens"


@builds("MapDataset.pack")
class PackMapDataset(BlockMapDataset[Any]):
    """Rows of documents whose lengths are given; see `MapDataset.pack`.

    Attributes:
        plan: The rows and their documents.
    """

    _KIND = "batch"
    _SLICEABLE = True
    # Data loaders compare this text with that of the state they resume.
    _REPR_ARGS: ClassVar[tuple[str, ...]] = (
        "length_struct",
        "method",
        "seed",
        "num_epochs",
        "hash_of_lengths",
    )

    def __init__(  # noqa: PLR0913 (the arguments of `pack`)
        self,
        parent: MapDataset[Any],
        length_struct: int | Mapping[str, int],
        lengths: npt.ArrayLike | Mapping[str, npt.ArrayLike] | None,
        *,
        method: str = "best_fit",
        long_documents: str = "cut",
        window: int = 1 << 18,
        seed: int | None = None,
        num_epochs: int = 1,
        cost: CostOfLengths | None = None,
        global_batch_size: int | None = None,
        counts_path: str | os.PathLike[str] | None = None,
        padding_struct: Any = None,
        cu_seqlens: int | None = None,
    ) -> None:
        super().__init__(parent)
        if seed is not None and at_least(0, seed, "seed") >= 2**32:
            raise ValueError(f"seed must be less than 2**32, got {seed}.")
        self._has_draws = _has_draws(parent)
        self._length_struct = length_struct
        self._method = method
        self._seed = seed
        self._drops_long = long_documents == "drop"
        self._num_epochs = at_least(1, num_epochs, "num_epochs")
        given = given_lengths(length_struct, lengths)
        main, *extras = given
        layout = planned_layout(length_struct, padding_struct, cu_seqlens, extras)
        capacities = capacities_of(layout)
        self._capacity = capacities[main]
        numbers = [extras.index(key) if key in extras else -1 for key in capacities]
        self._writer = RowWriter(layout, cu_seqlens or 0, numbers)
        if global_batch_size is not None:
            at_least(1, global_batch_size, "global_batch_size")
        elif cost is not None:
            raise ValueError(
                "cost needs global_batch_size, the number of rows that all ranks"
                " together take in a step. Pass it, or leave cost out."
            )
        span_costs = costs_of_spans(cost, self._capacity)
        self._lengths = find_lengths(parent, given)
        self.plan = _core.PackPlan(
            self._lengths.tokens,
            self._capacity,
            method=method,
            long_documents=long_documents,
            window=at_least(1, window, "window"),
            seed=seed,
            num_epochs=self._num_epochs,
            span_costs=span_costs,
            group_rows=global_batch_size or 1,
            counts_path="" if counts_path is None else os.fspath(counts_path),
            extras=self._lengths.extras_with(capacities),
        )
        self._hash_of_lengths = self._hash_of(self.plan)
        self._has_costs = span_costs is not None
        self.global_batch_size = global_batch_size
        self._update_from_parents()

    def _update_from_parents(self) -> None:
        # None: documents are elements of the parent, not parts of a source's records.
        self._records = token_records_of(self._parent)

    def __deepcopy__(self, memo: Any) -> Self:
        copied = copy.copy(self)  # Copies for threads have the same plan and lengths.
        copied._parents = copy.deepcopy(self._parents, memo)
        copied._update_from_parents()
        return copied

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        copied.__dict__ |= self.__dict__
        return copied

    def __getstate__(self) -> dict[str, Any]:
        if self._lengths.are_given or type(self._parent) is not SourceMapDataset:
            return self.__dict__
        # The source's lengths may be in a mapped file, which processes share.
        plan: Any = self.plan
        lengths = self._lengths._replace(tokens=np.empty(0, np.int32))
        return self.__dict__ | {"plan": plan.__getstate__()[1:], "_lengths": lengths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        if isinstance(state["plan"], tuple):
            tokens = lengths_of(self._parent, None)
            self._lengths = self._lengths._replace(tokens=tokens)
            plan: Any = _core.PackPlan.__new__(_core.PackPlan)
            plan.__setstate__((tokens, *state["plan"]))
            self.plan = plan
            if self._hash_of(plan) != self._hash_of_lengths:
                raise ValueError(
                    f"The lengths of the documents of {self._parent} must be those that"
                    " the plan was made from, but they have changed. Make the dataset"
                    " again, and do not change its files meanwhile."
                )

    @staticmethod
    def _hash_of(plan: _core.PackPlan) -> str:
        return f"{plan.totals['hash']:016x}"

    def __len__(self) -> int:
        return self.plan.num_rows

    @property
    def _counts(self) -> PackCounts:
        """The numbers of rows and tokens; see `pack_counts`."""
        totals, epochs = self.plan.totals, self._num_epochs
        drops = self._drops_long
        dropped = totals["long_tokens"] * epochs if drops else 0
        packed = totals["tokens"] * epochs - dropped
        return PackCounts(
            rows=len(self),
            packed_tokens=packed,
            density=packed / max(1, len(self) * self._capacity),
            long_documents=totals["long_documents"] * epochs,
            dropped_documents=totals["long_documents"] * epochs if drops else 0,
            dropped_tokens=dropped,
            empty_documents=totals["empty_documents"] * epochs,
        )

    def costs(self, rows: Int64Array) -> npt.NDArray[np.float64]:
        """Return the costs of rows in [0, len), or equal ones if there is no cost."""
        return self.plan.costs(rows) if self._has_costs else np.ones(len(rows))

    def spans(self, rows: Int64Array) -> Spans:
        """Return the spans of rows in [0, len)."""
        return Spans(*self.plan.rows(rows))

    def locate(self, indices: Indices) -> tuple[Spans, Indices]:
        """Return the spans of rows, and the parent's index of each span's document."""
        epochs, offsets = epochs_and_offsets(indices, len(self))
        rows = offsets.astype(np.int64, copy=False)
        spans = self.spans(rows)
        if not self._has_draws:
            return spans, spans.documents
        row_epochs = epochs.astype(np.object_) * self._num_epochs
        row_epochs += self.plan.epochs(rows)
        firsts = np.repeat(row_epochs * len(self._parent), np.diff(spans.offsets))
        return spans, as_indices((spans.documents + firsts).tolist())

    def _block(self, indices: Indices) -> list[Any]:
        return self._writer.write(*self._cells(indices))

    def _batches(self, indices: Indices, sizes: Sequence[int]) -> list[Any]:
        """Return consecutive batches, of these sizes, of the rows at `indices`.

        A batch whose rows do not stack is a list of its rows.
        """
        documents, offsets, *cells = self._cells(indices)
        batches: list[Any] = []
        first = 0
        for size in sizes:
            rows = (documents, offsets[first : first + size + 1], *cells)
            try:
                batch = self._writer.stack(*rows)
            except Exception:  # The writer of rows raises it, too.
                batch = None
            batches.append(self._writer.write(*rows) if batch is None else batch)
            first += size
        return batches

    def _cells(self, indices: Indices) -> tuple[Any, ...]:
        """Return the arguments of the writer for rows."""
        spans, numbers = self.locate(indices)
        begins, ends = spans.begins, spans.ends
        if self._records is not None:
            documents = self._records.read(spans)
            lengths = ends = ends - begins
            begins = np.zeros_like(begins)
        else:
            # A document may have several spans.
            distinct, places = np.unique(numbers, return_inverse=True)
            elements = block_of(self._parent, distinct)
            documents = [elements[place] for place in places.tolist()]
            lengths = self._lengths.tokens[spans.documents].astype(np.int64)

        def mismatch(span: int, feature: str, expected: int, found: int) -> Exception:
            return ValueError(
                f"Document {spans.documents[span]} must have {expected} tokens, as in"
                f" the lengths of {self}, got {found} in {feature}. Measure the"
                " lengths of this data, or cut the documents to their lengths in a map"
                " before pack."
            )

        extras = self._lengths.extras_of(spans.documents)
        return documents, spans.offsets, begins, ends, lengths, extras, mismatch


def costs_of_spans(
    cost: CostOfLengths | None, capacity: int
) -> npt.NDArray[np.float64] | None:
    """Return the cost of a span of each length up to the capacity; None without costs.

    Raises:
        TypeError: The cost has another type.
        ValueError: Its name is unknown, or it returns other numbers.
    """
    if cost is None:
        return None
    lengths = np.arange(capacity + 1)
    if cost == "tokens":
        return lengths.astype(np.float64)
    if cost == "attention":
        return lengths.astype(np.float64) ** 2
    if isinstance(cost, str):
        raise ValueError(
            f"cost must be 'tokens', 'attention' or a function, got {cost!r}."
        )
    check_callable("cost", cost, " Or pass 'tokens' or 'attention'.")
    costs = np.asarray(cost(lengths), np.float64)
    if costs.shape != lengths.shape or not (np.isfinite(costs) & (costs >= 0)).all():
        raise ValueError(
            "cost must return a finite number of at least 0 for each of the lengths"
            f" 0 to {capacity}, an array of shape {lengths.shape}, got {costs}."
        )
    return costs


def planned_layout(
    length_struct: int | Mapping[str, int],
    paddings: Any,
    cu_seqlens: int | None,
    extras: Sequence[Any] = (),
) -> PackLayout:
    """Check the arguments of a packed dataset and return the layout of its rows.

    `extras` are the features that have lengths of their own.

    Raises:
        TypeError: A number is not an int.
        ValueError: A number is out of range, or features that are cut together have
            different lengths.
    """
    is_array = not isinstance(length_struct, Mapping)
    struct = dict(
        length_struct if isinstance(length_struct, Mapping) else {TOKENS: length_struct}
    )
    if is_array and paddings is not None:
        paddings = {TOKENS: paddings}
    if not struct:
        raise ValueError(
            "length_struct must have at least one feature, got {}. Pass the name of"
            " the tokens and the number of tokens in a row."
        )
    main = next(iter(struct))
    for name, length in struct.items():
        if at_least(1, length, f"length_struct[{name!r}]") > MAX_LENGTH:
            raise ValueError(
                f"length_struct[{name!r}] must be at most {MAX_LENGTH}, got {length}."
            )
        if length != struct[main] and name not in extras:
            raise ValueError(
                "All features of length_struct must have the same length, because one"
                f" plan divides them into the same spans, got {struct[main]} for"
                f" {main!r} and {length} for {name!r}. If documents have another"
                f" number of cells in {name!r}, pass lengths as a dict, too."
            )
    extras = [f"{main}_loss_mask"]
    if cu_seqlens is not None:
        at_least(2, cu_seqlens, "cu_seqlens")
        extras += [f"{main}_cu_seqlens", f"{main}_max_seqlen"]
    # These are not packed; the writer of rows adds a value for each.
    layout = pack_layout(
        struct, rows=1, best_fit=False, meta_features=extras, paddings=paddings
    )
    if is_array:
        layout = dataclasses.replace(layout, keys=None, leaves_of=_as_leaves)
    return layout


def capacities_of(layout: PackLayout) -> dict[Any, int]:
    """Return the cells of a row by feature; the key is None if documents are arrays."""
    keys = (None,) if layout.keys is None else layout.keys
    return dict(zip(keys, layout.lengths, strict=True))


def _as_leaves(document: Any) -> list[Any]:
    return [document]


def _is_mix(node: Any) -> bool:
    """Return whether a later epoch of a dataset may have other elements."""
    return isinstance(node, SelectionMapDataset) and not isinstance(
        node, ConcatenateMapDataset
    )


def _has_draws(parent: MapDataset[Any]) -> bool:
    """Return whether documents have other random draws in each epoch.

    Raises:
        ValueError: The lengths of documents are not fixed.
    """
    nodes = list(chain_of(parent))
    has_draws = any(node._random == "draws" for node in nodes)
    for node in nodes:
        if node._SPARSE is not None:
            raise ValueError(
                f"pack cannot follow {node._SPARSE}, which may drop documents. Select"
                " documents by index before pack: ds[np.flatnonzero(mask)]."
            )
        if has_draws and (node._random == "order" or _is_mix(node)):
            raise ValueError(
                f"pack cannot follow {node} and random steps, which need documents that"
                " have the same lengths in each epoch. Leave the shuffle out, and pass"
                " a seed to pack, which shuffles documents and rows; or put the random"
                " steps after pack."
            )
    return has_draws
