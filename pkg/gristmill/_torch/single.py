"""The iterator of a loader without workers."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import profiler
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

from gristmill._torch.drawing import as_list, drawn
from gristmill._torch.native import native_fetch

_profiler_enabled = torch.autograd._profiler_enabled


class SingleProcessIterator(_SingleProcessDataLoaderIter):  # type: ignore[misc]
    """Computes each batch when it is asked for, in the calling thread.

    Batches, draws and errors are torch's.  Torch opens a profiler range around each
    batch, which costs more than many a batch; here that is done while a profiler runs.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._profile_name = (
            f"enumerate(DataLoader)#{_SingleProcessDataLoaderIter.__name__}.__next__"
        )
        if batches := drawn(self._index_sampler):
            self._sampler_iter = batches
        self._fetch = self._chosen_fetch()
        # Torch warns of a dataset that gives more than its length.
        self._counted = (
            self._dataset_kind == _DatasetKind.Iterable
            and self._IterableDataset_len_called is not None
        )

    def _chosen_fetch(self) -> Any:
        fetch = self._dataset_fetcher.fetch
        if self._dataset_kind != _DatasetKind.Map or not self._auto_collation:
            return fetch
        native = native_fetch(self._dataset, self._collate_fn, fetch)
        return native or (lambda batch: fetch(as_list(batch)))

    def __next__(self) -> Any:
        if self._counted or _profiler_enabled() or profiler._is_profiler_enabled:
            return super().__next__()
        batch = self._next_data()
        self._num_yielded += 1
        return batch

    def _next_data(self) -> Any:
        batch = self._fetch(next(self._sampler_iter))
        if self._pin_memory:
            return pin_memory(batch, self._pin_memory_device)
        return batch
