"""A loader that saves its position and resumes from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler

from gristmill._base.types import T
from gristmill._torch import layout, private
from gristmill._torch.iterators import (
    AutoMultiProcessIterator,
    LoaderIterator,
    MultiProcessIterator,
    SingleProcessIterator,
)
from gristmill._torch.layout import State
from gristmill._torch.loader import DataLoader, check_count
from gristmill._torch.resume.epoch_position import SingleProcessPosition
from gristmill._torch.resume.workers_position import WorkersPosition
from gristmill.options import WorkerCount
from gristmill.sources import RandomAccessDataSource


class StatefulDataLoader(DataLoader[T]):
    """A `DataLoader` that is saved and restored in the middle of an epoch.

    The protocol and the layout of a state are those of torchdata's loader of this name.
    Either loader resumes from a state of the other.  `state_dict` describes the latest
    iterator, after the last batch that it delivered.  `load_state_dict` takes effect at
    the next ``iter()``.

    A user's object is saved if it has ``state_dict`` and ``load_state_dict``: the
    dataset (in each worker its copy), the iterator of an iterable dataset, the sampler
    or batch sampler, and its iterator.  The dataset is restored before its iterator.
    An iterable dataset without these methods is read again up to its position.
    Samplers do not need them.  An epoch that torch's samplers drew at random is drawn
    again from the state of its generator, without reading a sample.

    Differences from torchdata's loader, all intended:

    * The samplers, and the epochs that they draw, are torch's own.  An epoch begun by
      torchdata's loader is finished as torchdata would; the next one is torch's.
    * Resuming an epoch draws no random numbers that it had drawn when it was saved.  If
      the program restores torch's generator, too, the later epochs are those of a run
      without interruption.
    * A state taken at the end of an epoch leads to the epoch that would have followed,
      in samplers and workers, for any later state of torch's generator.
    * A state of a map-style dataset fits any number of workers, including 0, unless the
      dataset has its own state.
    * An error in a batch counts as a step, and is not raised again.

    Workers' generators are seeded again when an epoch is resumed in the middle.  A
    worker that replaces a dead one (`max_restarts`) reads an iterable dataset again
    from the position where the epoch began or was resumed.  A map-style dataset with a
    state begins with its state there.

    Args:
        dataset: Map-style (``__getitem__``) or an `IterableDataset`.
        batch_size: Samples per batch; None yields single samples.
        shuffle: Draw the indices by a `RandomSampler`.
        sampler: Yields the indices, instead of `shuffle`.
        batch_sampler: Yields lists of indices, instead of the other four arguments.
        num_workers: Worker processes; 0 computes in the calling thread.  "auto" follows
            what the program waits for, see `DataLoader`.
        collate_fn: Makes a batch of a list of samples; by default `default_collate`.
        pin_memory: Copy batches into memory from which an accelerator copies fast.
        drop_last: Leave out a last batch that is not full.
        timeout: Seconds to wait for a batch from workers; 0 waits forever.
        worker_init_fn: Called first in each worker, with its number; ``iter()`` raises
            its errors.
        multiprocessing_context: The start method of workers, see `DataLoader`.
        generator: Draws the workers' base seed and the `RandomSampler`'s indices.
        prefetch_factor: Batches that each worker may be ahead; 2 by default.
        persistent_workers: Keep the workers from one epoch to the next.
        pin_memory_device: Deprecated by torch, which ignores it.
        in_order: Deliver the batches in the order of the indices.  With False the state
            of an iterable dataset without its own state may lead to other batches.
        max_restarts: The number of times that a batch which killed its worker is tried
            again by a new worker.
        reorder_window: Batches that may be unfinished or waiting for their turn, see
            `DataLoader`.
        memory_limit: Bytes of shared memory that batches may take, see `DataLoader`.
        snapshot_every_n_steps: With workers, a snapshot is taken after this number of
            batches.  A state between snapshots counts the batches since, which are
            skipped when it is loaded.  More than 1 saves time if states of datasets are
            large.  None or 0 takes one at the beginning only.

    Raises:
        ValueError: An argument is out of range, or contradicts another.
        TypeError: An argument has the wrong type.
        RuntimeError: This version of torch is not supported.

    Example:
        >>> loader = StatefulDataLoader(range(6), batch_size=2)
        >>> batches = iter(loader)
        >>> next(batches).tolist()
        [0, 1]
        >>> state = loader.state_dict()
        >>> loader = StatefulDataLoader(range(6), batch_size=2)
        >>> loader.load_state_dict(state)
        >>> [batch.tolist() for batch in loader]
        [[2, 3], [4, 5]]
    """

    snapshot_every_n_steps: int | None
    next_iter_state: State | None
    _iterator: Any

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
        snapshot_every_n_steps: int | None = 1,
    ) -> None:
        private.require_supported()
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
            max_restarts=max_restarts,
            reorder_window=reorder_window,
            memory_limit=memory_limit,
        )
        if snapshot_every_n_steps is not None:
            # `workers=1`, because it is allowed without workers, too.
            check_count("snapshot_every_n_steps", snapshot_every_n_steps, 0, workers=1)
        self.snapshot_every_n_steps = snapshot_every_n_steps
        # This attribute and the next one have the names of torchdata's loader.
        self.next_iter_state = None
        # Whether `state_dict` made the iterator, and ``iter()`` has not returned it.
        self._initial_iter_for_state_dict = False

    def __iter__(self) -> LoaderIterator:
        """Return an iterator, which `state_dict` describes from now on."""
        has_begun = self._initial_iter_for_state_dict and self._iterator is not None
        self._initial_iter_for_state_dict = False
        if not has_begun:
            self._begin_epoch()
        position = self._iterator._position
        if position.finished:
            # The loaded epoch was over, and the samplers are at its end.
            with position.final_generator_states():
                self._begin_epoch()
                self._iterator._position.sampler.state()  # Draws the order.
        iterator: LoaderIterator = self._iterator
        return iterator

    def _begin_epoch(self) -> None:
        """Make an iterator, or let the one with persistent workers begin an epoch."""
        if self.persistent_workers and self._iterator is not None:
            self._iterator._reset(self)
        else:
            self._iterator = self._get_iterator()

    def state_dict(self) -> State:
        """Return the state of the latest iterator after the last delivered batch.

        Without an iterator, makes one, with its workers; the next ``iter()`` returns
        it.

        Returns:
            A dict, which the caller may change.  It can be converted to JSON if the
            states of the user's objects can, except for the state of a random sampler's
            generator.  That is a tensor, and is loaded from a list, too.  The states of
            samplers and, without workers, of datasets are not copied.

        Raises:
            Exception: The iterator could not be made.
        """
        if self._iterator is None:
            self._iterator = self._get_iterator()
            self._initial_iter_for_state_dict = True
        state: State = self._iterator.state_dict()
        return state

    def load_state_dict(self, state_dict: State) -> None:
        """Resume from `state_dict` at the next ``iter()``.

        Args:
            state_dict: A state of this loader or torchdata's.  ``{}`` begins a new
                epoch.  A state that was taken at the end of an epoch begins the next.

        The next ``iter()`` raises AssertionError for a state that does not fit this
        loader's kind of dataset or number of workers.
        """
        self._iterator = None
        self._initial_iter_for_state_dict = False
        self.next_iter_state = state_dict or None

    def _get_iterator(self) -> Any:
        """Return a new iterator, which resumes from `next_iter_state` if it is set."""
        state = self.next_iter_state
        saved = None if state is None else layout.read(state, self)
        if self.num_workers == 0:
            position = SingleProcessPosition(self, saved)
            iterator: Any = StatefulSingleProcessIterator(self, position)
        else:
            self.check_worker_number_rationality()
            workers_position = WorkersPosition(self, saved)
            if self._chosen is None:
                iterator = StatefulMultiProcessIterator(self, workers_position)
            else:
                iterator = StatefulAutoIterator(self, self._chosen, workers_position)
        self.next_iter_state = None
        return iterator


class StatefulSingleProcessIterator(SingleProcessIterator):
    """Computes batches in the calling thread, and returns its state."""

    _position: SingleProcessPosition

    def state_dict(self) -> State:
        """Return the iterator's state in torchdata's layout."""
        return self._position.state(self)


class StatefulMultiProcessIterator(MultiProcessIterator):
    """Yields batches that worker processes compute, and returns its state."""

    _position: WorkersPosition

    def state_dict(self) -> State:
        """Return the iterator's state in torchdata's layout."""
        return self._position.state(
            self, None if self._shutdown else self._request_each
        )


class StatefulAutoIterator(AutoMultiProcessIterator, StatefulMultiProcessIterator):
    """Changes the number of its workers, and returns its state."""

    _position: WorkersPosition

    def state_dict(self) -> State:
        """Return the iterator's state in torchdata's layout.

        Workers are seeded before each batch, so it has no states of their generators.
        """
        return self._position.state(self, None)
