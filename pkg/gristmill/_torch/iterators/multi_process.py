"""Iterates over a torch loader with workers."""

from __future__ import annotations

import functools
import itertools
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterDataPipe, MapDataPipe

from gristmill._engine.usage import NearUsage
from gristmill._engine.workers import check_workers
from gristmill._torch import epochs, private
from gristmill._torch.batches import slot_collation
from gristmill._torch.batches.native import is_torchs
from gristmill._torch.indices.draws import as_list, can_foresee, foreseen
from gristmill._torch.iterators.base import LoaderIterator
from gristmill._torch.workers.changing import ChangingPool
from gristmill._torch.workers.fetch import FetchProgram
from gristmill._torch.workers.pinning import PinThread
from gristmill._torch.workers.pool import Answer


class MultiProcessIterator(LoaderIterator, private.MultiProcessIterator):  # type: ignore[misc]
    """Gives batches that worker processes compute.

    Of torch's class it has the name, and what trainers touch: `_workers`,
    `_shutdown_workers` and `_reset`.  In order, batch k is the k-th active worker's.
    """

    # For `__del__`, if `__init__` fails before they are there.
    _pool: ChangingPool | None = None
    _pins: PinThread | None = None
    # Requests that are due for the window to be full, negative where it is more so.
    _due = 0
    _shutdown = False
    # Who computes the first batch.
    _first_worker = 0
    # Whether the next epoch is asked for before it begins, and what was.
    _overlaps = False
    _ahead: tuple[Any, ...] = ()

    def __init__(self, loader: Any) -> None:
        self._epoch = self._begin_epoch(loader)
        self._draws_in = epochs.told(self._epoch)
        private.BaseIterator.__init__(self, loader)
        _check(loader)
        self._in_order = loader.in_order
        self._iterable = self._dataset_kind == private.DatasetKind.Iterable
        self._prefetch_factor = loader.prefetch_factor
        self._reorder_window = loader.reorder_window or 0
        self._window = self._window_for(loader.num_workers)
        self._overlaps = loader.overlap_epochs and self._foresees()
        self._start(loader, private.MultiProcessIterator)
        self._start_workers(loader)

    def _start_workers(self, loader: Any) -> None:
        """Start workers, and ask them for the first batches."""
        self._pool = ChangingPool(self._program(loader), loader, self._window)
        try:
            self._pool.start()
        except (TypeError, AttributeError, pickle.PicklingError):
            warnings.warn(
                "Got pickle error when attempting to start a worker Process. "
                "This might be because the worker Process arguments are not picklable. "
                "Use multiprocessing_context='fork', which pickles nothing.",
                stacklevel=3,
            )
            raise
        self._workers = self._pool.processes
        if self._pin_memory:
            self._pins = PinThread(self._pool, self._pin_memory_device)
        # Torch's iterator begins its first epoch twice, too.
        private.BaseIterator._reset(self, loader, True)
        self._draw_natively()
        self._ask_for_all(self._pool)

    def set_workers(self, count: int) -> None:
        """Let `count` workers compute what is asked for from now on.

        Indices, order and states stay what they are: states go on to name the loader's
        `num_workers`.  The workers that there are go on until the others have begun,
        and answer what they were asked for, so that nobody waits.  The new ones have
        torch's numbers and seeds, so what samples draw in them at random depends on how
        many there are, as it does in torch.  Another iterator has the loader's number.

        Args:
            count: Worker processes, at least 1.

        Raises:
            TypeError: It is no integer.
            ValueError: It is less than 1; or the number says what is given: of an
                iterable dataset, of one whose copies in the workers have states, and
                with ``in_order=False``.
            RuntimeError: The iterator's workers have ended.
        """
        check_workers(count)
        if reason := self._depends_on_number():
            raise ValueError(f"The number of workers cannot change: {reason}")
        if self._shutdown or self._pool is None:
            raise RuntimeError("The workers of this iterator have ended.")
        self._pool.set_workers(int(count), self._window_for(int(count)))

    def usage(self) -> NearUsage | None:
        """What workers, and stages, were measured to do."""
        return None if self._pool is None else self._pool.usage()

    def _workers_now(self) -> int:
        return self._num_workers if self._pool is None else self._pool.workers

    def _depends_on_number(self) -> str | None:
        """Why what is given depends on the number of workers, if it does."""
        if self._iterable:
            return (
                "each worker reads its share of the IterableDataset, which"
                " get_worker_info() says. Save a state and load it, or make a"
                " map-style dataset."
            )
        if not self._in_order:
            return "with in_order=False batches are counted by worker."
        return None

    def _window_for(self, workers: int) -> int:
        """How many requests may be unanswered."""
        most: int = max(self._prefetch_factor * workers, self._reorder_window)
        return most

    def _change_over(self, pool: ChangingPool) -> None:
        """Ask the pool's successor from now on, if its workers have begun."""
        if pool.change_over():
            before, self._window = self._window, self._window_for(pool.workers)
            self._due += self._window - before
            self._workers = pool.processes

    def _program(self, loader: Any) -> FetchProgram:
        init = loader.worker_init_fn
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            init = functools.partial(
                private.init_sharding_worker, init, self._world_size, self._rank
            )
        native = (
            not self._iterable and self._auto_collation and is_torchs(self._collate_fn)
        )
        return FetchProgram(
            dataset=self._dataset,
            iterable=self._iterable,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            base_seed=self._base_seed,
            workers=self._num_workers,
            worker_init_fn=init,
            collate_rules=slot_collation.rules(),
            shared_seed=self._shared_seed,
            default_dtype=torch.get_default_dtype(),
            native=native,
            epoch=self._draws_in,
        )

    def _foresees(self) -> bool:
        found = private.is_base_own() and can_foresee(self._index_sampler)
        if not found:
            sampler = getattr(self._index_sampler, "sampler", self._index_sampler)
            warnings.warn(
                "overlap_epochs has no effect: what a batch sampler of type"
                f" {type(self._index_sampler).__name__} over a"
                f" {type(sampler).__name__} will draw cannot be foreseen.",
                stacklevel=5,
            )
        return found

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin another epoch with the same workers; the rest of this one is lost."""
        pool = self._open_pool()
        self._watch.leave_out()
        private.BaseIterator._reset(self, loader, first_iter)
        self._draw_natively()
        ahead = () if any(self._asked) else self._ahead
        foreseen, self._epoch = epochs.told(self._epoch + 1), self._begin_epoch(loader)
        self._draws_in = epochs.told(self._epoch)
        if ahead and self._draws_in == foreseen and self._draws(ahead):
            self._ask_for_all(pool, len(ahead))
            return
        if self._pins is not None:
            self._pins.drop()
        pool.reset(self._shared_seed)
        self._overlaps = self._overlaps and not ahead  # It would be wrong again.
        self._ask_for_all(pool)
        if ahead:
            warnings.warn(
                "overlap_epochs ends: the sampler drew other indices than foreseen, or"
                " set_epoch chose another epoch than the next one. Give the loader a"
                " generator that nobody else uses; a DistributedSampler has to be in"
                " its next epoch.",
                stacklevel=3,
            )

    def _ask_for_all(self, pool: ChangingPool, asked: int = 0) -> None:
        """Begin an epoch: ask for its first batches, but for some already asked for."""
        self._active = [True] * self._num_workers
        self._asked = [0] * self._num_workers
        turns = itertools.cycle(range(self._num_workers))
        self._turns = itertools.islice(turns, self._first_worker, None)
        self._ahead = ()
        # Where more of the next epoch comes from.
        self._next_epoch: Iterator[Any] | None = None
        self._due = min(0, self._window - asked)
        for number in range(max(self._window, asked)):
            self._ask(pool, already=number < asked)

    def _ask_ahead(self, pool: ChangingPool) -> None:
        """Ask for a batch of the next epoch, if one is foreseen."""
        if not self._overlaps:
            return
        if self._next_epoch is None:
            self._next_epoch = foreseen(self._index_sampler)
        keys = next(self._next_epoch, None)
        if keys is not None:
            worker = len(self._ahead) % self._num_workers
            self._send(pool, worker, keys, epochs.told(self._epoch + 1))
            self._ahead += (keys,)

    def _draws(self, ahead: tuple[Any, ...]) -> bool:
        """Return whether the new epoch begins with the batches that were asked for."""
        first = [*itertools.islice(self._indices, len(ahead))]
        self._draw_from(itertools.chain(first, self._indices))
        return [*map(as_list, first)] == [*map(as_list, ahead)]

    def _ask(self, pool: ChangingPool, *, already: bool = False) -> None:
        """Ask a worker for what the sampler draws next, if there is both."""
        same = self._sampler_iter is self._listed
        try:
            keys = next(self._indices) if same else self._next_index()
        except StopIteration:
            self._ask_ahead(pool)
            return
        worker = self._next_worker()
        if worker is None:
            return
        if not already:
            self._send(pool, worker, keys, self._draws_in)
        self._asked[worker] += 1

    def _send(self, pool: ChangingPool, worker: int, keys: Any, epoch: int) -> None:
        with_state = self._asks_for_state(worker)
        pool.ask(worker, keys, epoch, with_state=with_state)
        if self._pins is not None:
            self._pins.request()

    def _asks_for_state(self, worker: int) -> bool:
        """Whether a worker's state is to come with its next answer."""
        return False

    def _next_worker(self) -> int | None:
        """The worker whose turn it is, which out of order has room for a batch."""
        for _ in range(self._num_workers):
            worker = next(self._turns)
            if self._active[worker] and (self._in_order or self._has_room(worker)):
                return worker
        return None

    def _has_room(self, worker: int) -> bool:
        # Together they have room for the window: else keys that were drawn are lost.
        most: int = -(-self._window // sum(self._active))
        return self._asked[worker] < most

    def _next_data(self) -> Any:
        answer = self._next_batch()
        if answer is not None:
            return answer.result()
        if not self._persistent_workers:
            self._shutdown_workers()
        raise StopIteration

    def _next_batch(self) -> Answer | None:
        """The answer with the batch that is due, None where all workers are through."""
        while any(self._asked):
            pool = self._open_pool()
            if pool.successor is not None:
                self._change_over(pool)
            answer = self._next_answer(pool)
            self._asked[answer.worker] -= 1
            exhausted = answer.exhausted
            if exhausted:
                self._active[answer.worker] = False
            self._due += 1
            while self._due > 0:
                self._due -= 1
                self._ask(pool)
            if not exhausted:
                return answer
        return None

    def _next_answer(self, pool: ChangingPool) -> Answer:
        return self._answer_of(self._pins or pool)

    def _answer_of(self, source: ChangingPool | PinThread) -> Answer:
        try:
            answer = source.next(self._timeout or None)
        except TimeoutError:
            text = f"DataLoader timed out after {self._timeout} seconds"
            raise RuntimeError(text) from None
        assert answer is not None, "an answer to each request"
        return answer

    def _open_pool(self) -> ChangingPool:
        if self._shutdown or self._pool is None:
            raise AssertionError(
                "Invalid iterator state: shutdown or no outstanding tasks when "
                "fetching next data"
            )
        return self._pool

    def _shutdown_workers(self) -> None:
        """End the workers; they are torch's to end by this name."""
        if self._shutdown or self._pool is None:
            return
        self._shutdown = True
        self._pool.close()
        if self._pins is not None:
            self._pins.stop()


def _check(loader: Any) -> None:
    """Check what torch checks here, and not when the loader is made."""
    for name in ("num_workers", "prefetch_factor"):
        if getattr(loader, name) <= 0:
            raise AssertionError(
                f"{name} must be greater than 0 for MultiProcessingDataLoaderIter"
            )
