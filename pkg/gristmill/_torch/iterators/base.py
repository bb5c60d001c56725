"""The base of the iterators over a torch loader, with the work around each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from gristmill import monitoring
from gristmill._base.latest_iterators import set_latest
from gristmill._base.object_repr import call_text
from gristmill._engine.tracebacks import cut_own_frames
from gristmill._observe.watch import Watch
from gristmill._torch import epochs, private
from gristmill._torch.indices.draws import as_list, sampler_items
from gristmill._torch.iterators.no_output import warn_of_no_output
from gristmill._torch.workers.trial import TorchTrial, copy_of

if TYPE_CHECKING:
    from gristmill._base.report import Report
    from gristmill._torch.resume.epoch_position import EpochPosition


class LoaderIterator(private.BaseIterator):  # type: ignore[misc]
    """The base of Gristmill's iterators over a loader, which precedes torch's own base.

    Torch opens a profiler range around each batch, which takes longer than many
    batches.  This class does it only while a profiler runs.  `_next_data` computes a
    batch.

    Libraries replace functions of torch's base class, or advance its `_sampler_iter`.
    Their functions are called, and their changes to the iterator take effect.
    """

    # Torch's errors have no notes, and users' tests may match their whole text.
    _CUT_IS_NOTED: ClassVar[bool] = False
    # Returns an iterator over a loader.  The package sets it, because it imports this
    # file.
    _iterate: ClassVar[Callable[[Any], LoaderIterator]]
    # The position of the epoch, None unless the loader is stateful.
    _position: EpochPosition | None = None
    # Whether all batches of indices are lists, and none is an `IndexBatch`.
    _as_lists = False
    # The items of the sampler: a key, a list of keys, or an `IndexBatch`.
    _indices: Iterator[Any]
    # The `_sampler_iter` that this class has set, which yields the items of `_indices`
    # as lists.  Another library has replaced it if `_sampler_iter` is not this one.
    # None if another library has replaced torch's functions.
    _own_sampler_iter: Iterator[Any] | None
    # True if torch's `__next__`, which opens a profiler range, may be left out.
    _skips_profiler: bool

    def _start(self, loader: Any, torch_class: type) -> None:
        """Finish the setup of torch's base class; profiles name `torch_class`."""
        self._profile_name = f"enumerate(DataLoader)#{torch_class.__name__}.__next__"
        warn_of_no_output(self._index_sampler)
        # A copy, since a loader with persistent workers keeps its iterator.
        self._loader_copy = copy_of(loader)
        self._watch = Watch(self, monitoring.record_get_next, times_periodically=True)
        set_latest(loader, self)

    def _begin_epoch(self, loader: Any) -> int:
        """Count an iteration over the loader, and return its epoch."""
        if self._position is None:
            return epochs.begin(loader)
        return self._position.begin_epoch(loader)

    def _replace_sampler_iter(self) -> None:
        """Replace `_sampler_iter` by an iterator that draws in blocks, if possible.

        Torch's own functions have begun the epoch, and set `_sampler_iter`.
        """
        base_is_own = private.is_base_own()
        if self._position is None:
            indices = self._block_items(base_is_own)
        else:
            indices = self._position.iterate_sampler(self)
        if indices is None:
            self._indices = self._own_sampler_iter = self._sampler_iter
        else:
            self._set_indices(indices)
        if not base_is_own:
            self._own_sampler_iter = None
        # After ``len()`` of an iterable dataset, torch's `__next__` compares the number
        # of samples with it, and warns.
        checks_length = (
            self._dataset_kind == private.DatasetKind.Iterable
            and self._IterableDataset_len_called is not None
        )
        self._skips_profiler = base_is_own and not checks_length

    def _block_items(self, base_is_own: bool) -> Iterator[Any] | None:
        """Return the items of the sampler, drawn in blocks; None if impossible."""
        indices = (
            sampler_items(self._index_sampler, self._as_lists) if base_is_own else None
        )
        if indices is None:
            return None
        is_unread = private.is_unread(self._sampler_iter, self._index_sampler)
        return indices if is_unread else None

    def _set_indices(self, indices: Iterator[Any]) -> None:
        """Draw the epoch's next items from `indices`, also in torch's functions."""
        self._indices = indices
        list_items = indices if self._as_lists else map(as_list, indices)
        self._own_sampler_iter = self._sampler_iter = list_items

    def report(self, verify: bool = False, seconds: float = 2.0) -> Report:
        """Return a report on the bottleneck of the pipeline, with advice.

        Calls of ``next`` are timed.  For some outputs each stage is timed: the dataset,
        the ``collate_fn``, and moving batches from workers.  An `IterableDataset` is
        not tried, because that would read from it.

        Args:
            verify: Whether to try changes, for up to five times `seconds`.  Fresh
                iterators run the pipeline unchanged, with outputs from a cache, with
                one more worker, and with each change that `Report.untried` would name
                otherwise.  This iterator does not advance.
            seconds: The duration of each of these runs, in s.

        Returns:
            A `Report`.  Its `checks` are the changes that were tried, and its
            `advice` the changes that helped.

        Raises:
            ValueError: `seconds` is not positive.

        Example:
            >>> iterator = iter(gristmill.torch.DataLoader(range(100), 10))
            >>> for batch in iterator:
            ...     pass
            >>> iterator.report().outputs
            10
        """
        from gristmill._observe.reporting import report_of

        return report_of(self, verify, seconds)

    def _trial(self) -> TorchTrial:
        """Return the trial of changes that `report` runs with ``verify=True``."""
        return TorchTrial(self._loader_copy, self._worker_count(), type(self)._iterate)

    def _worker_count(self) -> int:
        """Return the number of workers, which `set_workers` changes."""
        return 0

    def __repr__(self) -> str:
        return call_text(
            self,
            dataset=self._dataset,
            num_workers=self._num_workers,
            num_yielded=self._num_yielded,
        )

    def __next__(self) -> Any:
        watch = self._watch
        watch.calls_until_timed -= 1
        try:
            if watch.calls_until_timed <= 0:
                return watch.call(self, _next_output)
            if self._skips_profiler and not (
                private.profiler_enabled() or private.profiler._is_profiler_enabled
            ):
                batch = self._next_data()
                self._num_yielded += 1
                return batch
            return super().__next__()
        except BaseException as error:
            if self._position is not None and isinstance(error, StopIteration):
                self._position.finish()
            cut_own_frames(error, self._CUT_IS_NOTED)
            raise


# The step of a timed call, in which `watch.calls_until_timed` is above 0.
_next_output = LoaderIterator.__next__
