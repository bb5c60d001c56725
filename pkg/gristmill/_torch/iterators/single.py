"""The iterator of a loader without workers."""

from __future__ import annotations

from typing import Any

from gristmill._torch import private
from gristmill._torch.batches.native import is_torchs, native_fetch, samples_fetch
from gristmill._torch.indices.draws import as_list
from gristmill._torch.iterators.base import LoaderIterator


class SingleProcessIterator(LoaderIterator, private.SingleProcessIterator):  # type: ignore[misc]
    """Computes each batch when it is asked for, in the calling thread."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._start(private.SingleProcessIterator)
        self._fetch = self._chosen_fetch()

    def _chosen_fetch(self) -> Any:
        fetch = self._dataset_fetcher.fetch
        if self._dataset_kind != private.DatasetKind.Map or not self._auto_collation:
            return fetch
        if is_torchs(self._collate_fn):
            native = native_fetch(self._dataset, fetch)
            return native or samples_fetch(self._dataset, fetch)
        return lambda batch: fetch(as_list(batch))

    def _next_data(self) -> Any:
        batch = self._fetch(next(self._sampler_iter))
        if self._pin_memory:
            return private.pin_memory(batch, self._pin_memory_device)
        return batch
