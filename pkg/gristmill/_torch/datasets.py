"""Gristmill's loaders and datasets as torch's.

Record sources and `MapDataset` need nothing: by ``len``, ``[]`` and
``__getitems__`` they are map-style datasets as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from gristmill._base.describing import call_text
from gristmill._torch.batches.tensors import as_tensors

__all__ = ["AsIterable"]


class AsIterable(IterableDataset[Any]):  # type: ignore[misc]
    """A Gristmill `DataLoader` or `IterDataset` where torch wants an `IterableDataset`.

    Give it to a loader, for a trainer that insists on one, with ``batch_size=None``:
    its elements are batches already.  Workers are Gristmill's own; the loader has none.

    Args:
        elements: Gives an iterator, for each epoch, over trees with array leaves, which
            become tensors.

    Raises:
        RuntimeError: When iterated over in a worker of a loader: each would give all
            elements.

    Example:
        >>> import gristmill as g
        >>> from gristmill.torch import DataLoader
        >>> numbers = g.MapDataset.range(6).batch(3).to_iter_dataset()
        >>> [batch.tolist() for batch in DataLoader(AsIterable(numbers), None)]
        [[0, 1, 2], [3, 4, 5]]
    """

    def __init__(self, elements: Any) -> None:
        self._elements = elements

    def __repr__(self) -> str:
        return call_text(self, self._elements)

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "AsIterable was given to a loader with workers, each of which would"
                " give all elements. Let num_workers be 0; Gristmill has workers of"
                " its own."
            )
        return as_tensors(self._elements)
