"""What our iterators do around each batch, and the one of a loader without workers."""

from __future__ import annotations

from typing import Any

from gristmill._base.describing import call_text
from gristmill._torch import private
from gristmill._torch.batches.native import is_torchs, native_fetch, samples_fetch
from gristmill._torch.indices.draws import as_list, drawn


class LoaderIterator(private.BaseIterator):  # type: ignore[misc]
    """A base of our iterators over a loader, which comes before torch's own.

    Torch opens a profiler range around each batch, which costs more than many a
    batch; here that is done while a profiler runs.  `_next_data` computes a batch.
    """

    def _start(self, torch_class: type) -> None:
        """Complete what torch's base class has set up; profiles name `torch_class`."""
        self._profile_name = f"enumerate(DataLoader)#{torch_class.__name__}.__next__"
        self._draw_natively()

    def _draw_natively(self) -> None:
        batches = drawn(self._index_sampler)
        if batches is not None:
            self._sampler_iter = batches
        # Torch warns of a dataset that gives more than its length.
        self._counted = (
            self._dataset_kind == private.DatasetKind.Iterable
            and self._IterableDataset_len_called is not None
        )

    def __repr__(self) -> str:
        return call_text(
            self,
            dataset=self._dataset,
            num_workers=self._num_workers,
            num_yielded=self._num_yielded,
        )

    def __next__(self) -> Any:
        if self._counted or private.profiling():
            return super().__next__()
        batch = self._next_data()
        self._num_yielded += 1
        return batch


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
