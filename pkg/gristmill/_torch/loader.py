"""`torch.utils.data.DataLoader` on Gristmill's engine."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch.utils.data
from torch.utils.data import Dataset, IterableDataset, Sampler

from gristmill._base.argument_checks import check_integer
from gristmill._base.latest_iterators import metrics_of
from gristmill._base.object_repr import call_html, call_text, value_text
from gristmill._base.types import T
from gristmill._engine.arguments import check_restarts
from gristmill._engine.auto_run import ChosenWorkers, start_choice
from gristmill._torch import epochs, private
from gristmill._torch.bases import TorchLoader
from gristmill._torch.iterators import (
    AutoCount,
    AutoMultiProcessIterator,
    MultiProcessIterator,
    SingleProcessIterator,
    iterate,
)
from gristmill._torch.workers import start_method
from gristmill._torch.workers.trial import TorchTrial
from gristmill.options import WorkerCount, check_num_workers
from gristmill.sources import RandomAccessDataSource

if TYPE_CHECKING:
    from gristmill._base.report import Report
    from gristmill._engine.workers import WorkerBackend


class DataLoader(TorchLoader[T]):  # type: ignore[misc]
    """Loads the same batches as `torch.utils.data.DataLoader`, faster.

    It is a subclass of torch's loader, with the same arguments, attributes, samplers,
    random draws, worker seeds, warnings and errors.  Intended differences:

    * Batches from workers view Gristmill's shared memory.  They are ordinary
      tensors that can be written to and kept, but ``is_shared()`` is False: sending
      one to another process copies it.
    * A batch that cannot be pickled raises an error.  Torch's loader hangs.
    * A profiler range around each batch is opened only while a profiler runs.

    Args:
        dataset: Map-style (``__getitem__``) or an `IterableDataset`.
        batch_size: Samples per batch; None yields single samples.
        shuffle: Draw the indices by a `RandomSampler`.
        sampler: Yields the indices, instead of `shuffle`.
        batch_sampler: Yields lists of indices, instead of the other four arguments.
        num_workers: Worker processes; 0 computes in the calling thread.  "auto" starts
            one, and adds or ends some while the program waits, or does not, within the
            cores and the memory; ``report()`` explains it.  It needs a map-style
            dataset, and seeds the workers before each batch, so that batches are the
            same with any number.
        collate_fn: Makes a batch of a list of samples; by default `default_collate`.
        pin_memory: Copy batches into memory from which an accelerator copies fast.
        drop_last: Leave out a last batch that is not full.
        timeout: Seconds to wait for a batch from workers; 0 waits forever.
        worker_init_fn: Called first in each worker, with its number.
        multiprocessing_context: The start method of workers, a name or a context; by
            default `multiprocessing.get_start_method()`.  "launcher" is Gristmill's
            own: it forks workers from a clean process that has imported torch.
        generator: Draws the workers' base seed and the `RandomSampler`'s indices.
        prefetch_factor: Batches that each worker may be ahead; 2 by default.
        persistent_workers: Keep the workers from one epoch to the next.
        pin_memory_device: Deprecated by torch, which ignores it.
        in_order: Deliver the batches in the order of the indices.
        max_restarts: The number of times that a batch which killed its worker is tried
            again by a new worker.  With 0 a worker's death is an error, as in torch.
        reorder_window: Batches that may be unfinished or waiting for their turn; by
            default ``prefetch_factor * num_workers``.  A larger window lets the other
            workers continue while one computes a slow batch.
        memory_limit: Bytes of shared memory that batches may take, including those
            that the program keeps; by default 80 % of the available memory.
        overlap_epochs: With persistent workers, compute the first batches of the next
            epoch while the last ones of this epoch are used, even if no other epoch
            follows.  Use it with torch's samplers, and only if samples do not depend on
            anything that changes between epochs.  A `RandomSampler` needs a `generator`
            of its own if other code draws random numbers on the CPU.  The batches are
            the same.

    Raises:
        ValueError: An argument is out of range, or contradicts another.
        TypeError: An argument has the wrong type.

    Example:
        >>> import torch
        >>> numbers = torch.utils.data.TensorDataset(torch.arange(5))
        >>> [batch.tolist() for [batch] in DataLoader(numbers, batch_size=2)]
        [[0, 1], [2, 3], [4]]
    """

    max_restarts: int
    reorder_window: int | None
    memory_limit: int | None
    overlap_epochs: bool = False
    # The last number of workers if that is "auto".
    _chosen: ChosenWorkers | None = None
    # While `gristmill.host.share` makes an iterator: its workers.
    _worker_backend: WorkerBackend | None = None

    if not TYPE_CHECKING:
        # As many type arguments as any version of torch's class takes.
        __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(  # noqa: PLR0913 (torch's arguments, and ours)
        self,
        dataset: Dataset[T] | RandomAccessDataSource[T],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: WorkerCount = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        max_restarts: int = 0,
        reorder_window: int | None = None,
        memory_limit: int | None = None,
        overlap_epochs: bool = False,
    ) -> None:
        num_workers = auto_count(num_workers)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        check_options(num_workers, max_restarts, reorder_window, memory_limit)
        self.max_restarts = max_restarts
        self.reorder_window = reorder_window
        self.memory_limit = memory_limit
        if overlap_epochs:
            self._check_overlap()
        self.overlap_epochs = bool(overlap_epochs)
        if isinstance(num_workers, AutoCount):
            self._check_auto()
            self._chosen = start_choice("num_workers", "auto")
        private.warn_if_unsupported()
        _warn_of_accelerate()

    @property
    def multiprocessing_context(self) -> Any:
        """The start method of workers; None for the program's default."""
        return super().multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context == "launcher":
            context = start_method.LauncherContext()
        private.TorchLoader.multiprocessing_context.fset(self, context)

    def _check_overlap(self) -> None:
        """Raise ValueError if the loader does not support `overlap_epochs`."""
        if isinstance(self.dataset, IterableDataset):
            raise ValueError(
                "overlap_epochs needs a map-style dataset, got an IterableDataset."
            )
        for name in ("persistent_workers", "in_order"):
            if not getattr(self, name):
                raise ValueError(f"overlap_epochs needs {name}=True, got {name}=False.")

    def _check_auto(self) -> None:
        """Raise ValueError if batches would depend on the number of workers."""
        if isinstance(self.dataset, IterableDataset):
            raise ValueError(
                'num_workers="auto" needs a map-style dataset, got an IterableDataset,'
                " whose batches depend on the number of workers. Pass an int."
            )
        if not self.in_order:
            raise ValueError(
                'num_workers="auto" needs in_order=True, got False: the order of'
                " batches would depend on the number of workers. Pass an int."
            )

    def __repr__(self) -> str:
        return call_text(self, **self._repr_arguments())

    def _repr_html_(self) -> str:
        arguments = self._repr_arguments().items()
        return call_html(self, {name: value_text(value) for name, value in arguments})

    def _repr_arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"dataset": self.dataset}
        if self.batch_size is None and self.batch_sampler is not None:
            arguments["batch_sampler"] = self.batch_sampler
        else:
            arguments |= {"batch_size": self.batch_size, "sampler": self.sampler}
        arguments["num_workers"] = self.num_workers
        for name in ("drop_last", "pin_memory", "persistent_workers", "overlap_epochs"):
            if getattr(self, name):
                arguments[name] = True
        return arguments

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``iter()``, by default the one after the last.

        Random steps of a `gristmill.MapDataset` or an `IterDataset` anywhere in the
        dataset draw different numbers in each epoch.  Without this call, ``iter()``
        counts epochs, from 0 for a new loader.  A sampler's own `set_epoch` also sets
        the loader's epoch.  A `StatefulDataLoader` saves and restores the epoch.

        Args:
            epoch: At least 0.  It is passed to ``set_epoch(epoch)`` of the sampler, the
                batch sampler and the dataset, if they have this method.

        Raises:
            TypeError: `epoch` is not an int.
            ValueError: `epoch` is negative.

        Example:
            >>> import gristmill
            >>> numbers = gristmill.MapDataset.range(3)
            >>> noisy = numbers.random_map(lambda x, rng: rng.integers(100), seed=1)
            >>> loader = DataLoader(noisy, batch_size=3)
            >>> for epoch in range(2):
            ...     loader.set_epoch(epoch)
            ...     print(next(iter(loader)).tolist())
            [42, 33, 43]
            [7, 50, 6]
        """
        epochs.set_next_epoch(self, epoch)

    def report(
        self,
        seconds: float = 3.0,
        consume: Callable[[T], Any] | None = None,
        verify: bool = False,
        trace: bool = False,
    ) -> Report:
        """Iterate for a short time, and report what limits the speed.

        The first output does not count, because it includes the start of workers.

        Args:
            seconds: The approximate duration, in s; less if the data ends before.
            consume: Called with each output, to simulate the program's loop; by default
                outputs are dropped.
            verify: Whether to try changes, which takes up to five times `seconds`
                more: see `gristmill.DataLoaderIterator.report`.
            trace: Whether to record when each stage runs, for `Report.trace`.  That
                takes 5 to 20 us for each call of a stage.

        Returns:
            A `Report`.  With `verify`, its `checks` are the changes that were tried.

        Raises:
            ValueError: `seconds` is not positive, or reading consumes the data.

        Example:
            >>> loader = DataLoader(range(1000), batch_size=10)
            >>> loader.report(seconds=0.1).outputs > 0
            True
        """
        from gristmill._observe.reporting import report_of_loader

        return report_of_loader(self, seconds, consume, verify, trace)

    def metrics(self) -> dict[str, float]:
        """Return the numbers of the latest iterator, to log while you train.

        See `Report.metrics` for the names.

        Returns:
            The numbers by name; empty if no iterator of this loader exists any more.

        Example:
            >>> loader = DataLoader(range(1000), batch_size=10)
            >>> iterator = iter(loader)
            >>> batch = next(iterator)
            >>> loader.metrics()["data/outputs_per_s"] > 0
            True
        """
        return metrics_of(self)

    def _trial(self) -> TorchTrial:
        """Return an object that runs changed copies for ``report(verify=True)``."""
        count = self.num_workers if self._chosen is None else self._chosen.count
        return TorchTrial(self, count, iterate)

    def _get_iterator(self) -> Any:
        """Return a new iterator; torch's ``__iter__`` calls this method."""
        # After ``install(everywhere=True)``, `self` may be one of torch's loaders.
        is_torch_loader = not isinstance(self, DataLoader)
        if private.needs_torch_iterator(self) or (
            is_torch_loader and private.is_iterator_replaced(self)
        ):
            return private.get_iterator(self)
        if self.num_workers == 0:
            return SingleProcessIterator(self)
        self.check_worker_number_rationality()
        if not is_torch_loader and self._chosen is not None:
            return AutoMultiProcessIterator(self, self._chosen, None)
        return MultiProcessIterator(self)


def auto_count(num_workers: WorkerCount) -> int:
    """Return the number of workers for torch's loader; an `AutoCount` for "auto"."""
    if isinstance(num_workers, str):
        check_num_workers(num_workers)
        return AutoCount(1)
    return num_workers


def check_options(
    workers: int,
    max_restarts: Any = 0,
    reorder_window: Any = None,
    memory_limit: Any = None,
) -> None:
    """Check the arguments that torch's loader does not have.

    Raises:
        ValueError: One is out of range, or needs workers.
        TypeError: One is not an integer.
    """
    check_restarts(max_restarts)
    check_count("max_restarts", max_restarts, 0, workers)
    if reorder_window is not None:
        check_count("reorder_window", reorder_window, 1, workers)
    if memory_limit is not None:
        check_count("memory_limit", memory_limit, 1, workers)


def check_count(name: str, value: Any, minimum: int, workers: int) -> None:
    """Check an integer that needs workers unless it is 0; see `check_options`."""
    check_integer(name, value)
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}.")
    if value and not workers:
        raise ValueError(f"{name} option needs num_workers > 0, got {name}={value}.")


_warned_of_accelerate = False


def _warn_of_accelerate() -> None:
    """Warn once that Accelerate converts Gristmill's loaders to torch's."""
    global _warned_of_accelerate
    accelerate = sys.modules.get("accelerate.data_loader")
    loader = getattr(accelerate, "DataLoader", None)
    if loader is private.TorchLoader and not _warned_of_accelerate:
        _warned_of_accelerate = True
        warnings.warn(
            "accelerate is imported: it replaces the loaders that it prepares, and"
            " those of the Hugging Face Trainer, by torch's own DataLoader. Call"
            " gristmill.torch.install() first to keep Gristmill's.",
            stacklevel=3,
        )
