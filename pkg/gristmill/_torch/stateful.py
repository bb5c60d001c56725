"""A loader that says where it stands and goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler

from gristmill._base.types import T
from gristmill._torch import layout, private
from gristmill._torch.iterators import LoaderIterator
from gristmill._torch.iterators.stateful import (
    StatefulMultiProcessIterator,
    StatefulSingleProcessIterator,
)
from gristmill._torch.layout import State
from gristmill._torch.loader import DataLoader, check_count
from gristmill._torch.resume.epoch_position import SingleProcessPosition
from gristmill._torch.resume.workers_position import WorkersPosition
from gristmill.sources import RandomAccessDataSource


class StatefulDataLoader(DataLoader[T]):
    """A `DataLoader` that is saved and restored in the middle of an epoch.

    The protocol and the layout of a state are those of torchdata's loader of this name:
    either loads what the other has saved.  `state_dict` describes the latest iterator,
    after the last batch that it gave; `load_state_dict` acts on the next ``iter()``.

    A user's object is saved if it has ``state_dict`` and ``load_state_dict``: the
    dataset (in each worker its copy), the iterator of an iterable dataset, the sampler
    or batch sampler and its iterator.  They are restored in this order: the dataset,
    its iterator.  An iterable dataset without them is read again up to the place where
    it stood.  Other samplers need neither: an epoch that torch's samplers drew at
    random is drawn again from the state of its generator, no sample is read for it.

    What differs from torchdata's loader, for the better or knowingly:

    * The samplers are torch's own, and so are the epochs that they draw: an epoch
      begun by torchdata's loader is finished alike, the next one is torch's.
    * To go on with an epoch draws no random numbers.  Whoever restores torch's
      generator too gets the epochs after it as if there had been no break.
    * A state taken at the end of an epoch leads to the one that would have come next,
      drawn by samplers and workers alike, whatever torch's generator is by then.
    * A state of a map-style dataset is good for any number of workers, 0 included,
      unless the dataset has a state of its own.
    * An error in a batch counts as a step: what was raised is not raised again.

    Workers' generators are seeded again when an epoch goes on in the middle.  A worker
    that takes the place of a dead one (`max_restarts`) reads an iterable dataset again
    from where the epoch began or went on; a map-style dataset with a state begins with
    the one it had there.

    Args:
        dataset: Map-style (``__getitem__``) or an `IterableDataset`.
        batch_size: See `DataLoader`, as for all others but the last.
        shuffle: See there.
        sampler: See there.
        batch_sampler: See there.
        num_workers: See there.
        collate_fn: See there.
        pin_memory: See there.
        drop_last: See there.
        timeout: See there.
        worker_init_fn: See there; its errors are raised by ``iter()``.
        multiprocessing_context: See there.
        generator: See there.
        prefetch_factor: See there.
        persistent_workers: See there.
        pin_memory_device: See there.
        in_order: See there; with False the state of an iterable dataset that has none
            of its own may lead to other batches.
        max_restarts: See there.
        reorder_window: See there.
        memory_limit: See there.
        snapshot_every_n_steps: With workers, a state is taken after every so many
            batches; one that is asked for in between counts the batches since, which
            are passed over when it is loaded.  More than 1 saves time where states of
            datasets are large.  None or 0 takes one at the beginning only.

    Raises:
        ValueError: An argument is out of range, or contradicts another.
        TypeError: An argument has the wrong type.
        RuntimeError: In this version of torch no loader can be ours.

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
        num_workers: int = 0,
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
        private.require()
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
            check_count("snapshot_every_n_steps", snapshot_every_n_steps, 0, workers=1)
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self.next_iter_state = None
        # Whether the iterator was made to be asked for its state, and not given yet.
        self._initial_iter_for_state_dict = False

    def __iter__(self) -> LoaderIterator:
        """The iterator that `state_dict` describes from now on."""
        initial = self._initial_iter_for_state_dict and self._iterator is not None
        self._initial_iter_for_state_dict = False
        if not initial:
            self._begin_epoch()
        position = self._iterator._position
        if position.finished:
            # The loaded epoch was over, and the samplers are at its end.
            with position.next_epoch():
                self._begin_epoch()
                self._iterator._position.sampler.state()  # Draws the order.
        iterator: LoaderIterator = self._iterator
        return iterator

    def _begin_epoch(self) -> None:
        if self.persistent_workers and self._iterator is not None:
            self._iterator._reset(self)
        else:
            self._iterator = self._get_iterator()

    def state_dict(self) -> State:
        """Where the latest iterator stands, after the last batch that it gave.

        Before there is one it is made, with its workers; the next ``iter()`` gives it.

        Returns:
            A dict, free to be changed.  It may pass through JSON if the states of the
            user's objects may, but for a random sampler's generator, a tensor, which
            is taken back as a list, too.  The states of samplers and, without workers,
            of datasets are the very objects that they gave.

        Raises:
            Exception: What making the iterator raised.
        """
        if self._iterator is None:
            self._iterator = self._get_iterator()
            self._initial_iter_for_state_dict = True
        state: State = self._iterator.state_dict()
        return state

    def load_state_dict(self, state_dict: State) -> None:
        """Let the next ``iter()`` go on from where `state_dict` was taken.

        Args:
            state_dict: Of this loader or torchdata's.  ``{}`` begins a new epoch; a
                state that was taken at the end of one begins the next.

        The next ``iter()`` raises AssertionError for a state that does not fit this
        loader's kind of dataset or number of workers.
        """
        self._iterator = None
        self._initial_iter_for_state_dict = False
        self.next_iter_state = state_dict or None

    def _get_iterator(self) -> Any:
        state = self.next_iter_state
        saved = None if state is None else layout.read(state, self)
        if self.num_workers == 0:
            single = SingleProcessPosition(self, saved)
            iterator: Any = StatefulSingleProcessIterator(self, single)
        else:
            self.check_worker_number_rationality()
            several = WorkersPosition(self, saved)
            iterator = StatefulMultiProcessIterator(self, several)
        self.next_iter_state = None
        return iterator
