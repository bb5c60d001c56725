"""Grain's old operation that packs elements into rows and makes a batch of the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gristmill import batching
from gristmill._base import log
from gristmill._dataset.nodes.pack_layout import Features, bare_layout
from gristmill._hot import packing, tree
from gristmill.records import Record


@dataclasses.dataclass
class PackAndBatchOperation:
    """Pack elements into the first row of a batch that has room, row by row.

    An old operation of `DataLoader`; `FirstFitPackIterDataset` does the same faster,
    and remembers its position.  Each batch is a tuple of three trees like
    `length_struct`: the data, of shape ``(batch_size, length, *S)`` where leaves of
    elements have ``(n, *S)``; the segment ids, int32 of shape ``(batch_size,
    length)``, which count the elements of a row from 1, 0 being padding; and the
    positions in each element, the same.

    Args:
        length_struct: A tree like an element's, whose leaves say how many cells a row
            has.
        batch_size: Rows per batch, at least 1.
        max_sequences_per_bin: The most elements that a row holds; None for no limit.

    Raises:
        TypeError: A length is no int.
        ValueError: An argument is out of range; an element has another structure, or is
            longer than a row.

    Example:
        >>> loader = gristmill.DataLoader(
        ...     data_source=[np.ones(n) for n in (3, 1, 4)],
        ...     sampler=gristmill.samplers.SequentialSampler(3),
        ...     operations=[gristmill.experimental.PackAndBatchOperation(5, 1)],
        ... )
        >>> [segment_ids.tolist() for _, segment_ids, _ in loader]
        [[[1, 1, 1, 2, 0]], [[1, 1, 1, 1, 0]]]
    """

    length_struct: Any
    batch_size: int
    max_sequences_per_bin: int | None = None

    def __post_init__(self) -> None:
        log.error(
            "PackAndBatchOperation is deprecated. Use"
            " gristmill.experimental.FirstFitPackIterDataset instead: it is faster and"
            " keeps its position in saved states."
        )
        features = Features(self.length_struct)
        layout = bare_layout(
            features,
            self.batch_size,
            self.max_sequences_per_bin,
            too_long="Inputs to PackAndBatchOperation must be truncated to max length.",
        )
        self._treedef = features.treedef
        self._layout = dataclasses.replace(layout, keys=None, leaves_of=self._leaves_of)

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        """Return the batches of the elements that go in; the last is partly empty."""
        packer = packing.Packer(self._layout)
        metadata = None
        for record in input_iterator:
            if not packer.add(record.data):
                assert metadata is not None
                yield Record(metadata, self._batch(packer.finish()))
                packer.add(record.data)
            metadata = record.metadata.remove_record_key()
        if metadata is not None:
            yield Record(metadata, self._batch(packer.finish()))

    def _leaves_of(self, element: Any) -> list[Any]:
        leaves, treedef = tree.flatten(element, batching.tree_rules())
        if treedef != self._treedef:
            raise ValueError(
                f"An element has the structure {treedef}, but length_struct is"
                f" {self.length_struct}. Make them equal in a map before packing."
            )
        return leaves

    def _batch(self, packed: packing.PackedRows) -> tuple[Any, Any, Any]:
        data, segment_ids, positions = (
            tree.unflatten(self._treedef, leaves)
            for leaves in (packed.values, packed.segment_ids, packed.positions)
        )
        return data, segment_ids, positions
