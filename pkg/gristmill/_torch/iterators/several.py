"""The iterator of a loader with workers."""

from __future__ import annotations

import functools
import itertools
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterDataPipe, MapDataPipe

from gristmill._torch import private
from gristmill._torch.batches.native import is_torchs
from gristmill._torch.indices.drawing import as_list
from gristmill._torch.indices.foreseeing import can_foresee, foreseen
from gristmill._torch.iterators.stepping import Stepping
from gristmill._torch.workers.crew import Answer, Crew
from gristmill._torch.workers.fetching import FetchProgram
from gristmill._torch.workers.pinning import PinThread


class MultiProcessIterator(Stepping, private.MultiProcessIterator):  # type: ignore[misc]
    """Gives batches that worker processes compute.

    Of torch's class it has the name, and what trainers touch: `_workers`,
    `_shutdown_workers` and `_reset`.  In order, batch k is the k-th active worker's.
    """

    # For `__del__`, if `__init__` fails before they are there.
    _crew: Crew | None = None
    _pins: PinThread | None = None
    _shutdown = False
    # Who computes the first batch.
    _first_worker = 0
    # Whether the next epoch is asked for before it begins, and what was.
    _overlaps = False
    _ahead: tuple[Any, ...] = ()

    def __init__(self, loader: Any) -> None:
        private.BaseIterator.__init__(self, loader)
        _check(loader)
        self._in_order = loader.in_order
        self._iterable = self._dataset_kind == private.DatasetKind.Iterable
        self._window = max(
            loader.prefetch_factor * loader.num_workers, loader.reorder_window or 0
        )
        self._overlaps = loader.overlap_epochs and self._foresees()
        self._start(private.MultiProcessIterator)
        self._hire(loader)

    def _hire(self, loader: Any) -> None:
        """Start workers, and ask them for the first batches."""
        self._crew = Crew(
            self._program(loader),
            window=self._window,
            in_order=self._in_order,
            max_restarts=loader.max_restarts,
            memory_limit=loader.memory_limit or 0,
            context=loader.multiprocessing_context,
        )
        _start(self._crew)
        self._workers = self._crew.processes
        if self._pin_memory:
            self._pins = PinThread(self._crew, self._pin_memory_device)
        self._ask_for_all(self._crew)

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
            shared_seed=self._shared_seed,
            native=native,
        )

    def _foresees(self) -> bool:
        found = can_foresee(self._index_sampler)
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
        crew = self._open_crew()
        private.BaseIterator._reset(self, loader, first_iter)
        self._draw_natively()
        wrong = False
        if self._ahead and not any(self._asked):
            if self._drawn_as_foreseen():
                self._go_on(crew)
                return
            wrong = True
            self._overlaps = False  # It would be wrong again.
        if self._pins is not None:
            self._pins.drop()
        crew.reset(self._shared_seed)
        self._ask_for_all(crew)
        if wrong:
            warnings.warn(
                "overlap_epochs ends: the sampler drew other indices than foreseen."
                " Give the loader a generator that nobody else uses; a"
                " DistributedSampler has to be in its next epoch.",
                stacklevel=3,
            )

    def _ask_for_all(self, crew: Crew) -> None:
        self._begin_epoch()
        for _ in range(self._window):
            self._ask(crew)

    def _begin_epoch(self) -> None:
        self._active = [True] * self._num_workers
        self._asked = [0] * self._num_workers
        workers = range(self._num_workers)
        self._turns = itertools.islice(
            itertools.cycle(workers), self._first_worker, None
        )
        self._ahead = ()
        # Where more of the next epoch comes from.
        self._next_epoch: Iterator[Any] | None = None

    def _ask_ahead(self, crew: Crew) -> None:
        """Ask for a batch of the next epoch, if one is foreseen."""
        if not self._overlaps:
            return
        if self._next_epoch is None:
            self._next_epoch = foreseen(self._index_sampler)
        keys = next(self._next_epoch, None)
        if keys is not None:
            self._send(crew, len(self._ahead) % self._num_workers, keys)
            self._ahead += (keys,)

    def _drawn_as_foreseen(self) -> bool:
        """Whether the new epoch begins with the batches that were asked for."""
        drawn = list(itertools.islice(self._sampler_iter, len(self._ahead)))
        if [*map(as_list, drawn)] == [*map(as_list, self._ahead)]:
            return True
        # They are to be asked for after all.
        self._sampler_iter = itertools.chain(drawn, self._sampler_iter)
        return False

    def _go_on(self, crew: Crew) -> None:
        """Begin the epoch whose first batches have been asked for."""
        ahead = len(self._ahead)
        self._begin_epoch()
        for _ in range(ahead):
            self._asked[next(self._turns)] += 1
        for _ in range(self._window - ahead):
            self._ask(crew)

    def _ask(self, crew: Crew) -> None:
        """Ask a worker for what the sampler draws next, if there is both."""
        try:
            keys = self._next_index()
        except StopIteration:
            self._ask_ahead(crew)
            return
        worker = self._next_worker()
        if worker is None:
            return
        self._send(crew, worker, keys)
        self._asked[worker] += 1

    def _send(self, crew: Crew, worker: int, keys: Any) -> None:
        crew.ask(worker, keys)
        if self._pins is not None:
            self._pins.request()

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
            crew = self._open_crew()
            answer = self._next_answer(crew)
            self._asked[answer.worker] -= 1
            if answer.exhausted:
                self._active[answer.worker] = False
            self._ask(crew)
            if not answer.exhausted:
                return answer
        return None

    def _next_answer(self, crew: Crew) -> Answer:
        return self._answer_of(crew if self._pins is None else self._pins)

    def _answer_of(self, source: Crew | PinThread) -> Answer:
        timeout_s = float(self._timeout) if self._timeout > 0 else -1.0
        try:
            answer = source.next(timeout_s)
        except TimeoutError:
            text = f"DataLoader timed out after {self._timeout} seconds"
            raise RuntimeError(text) from None
        assert answer is not None, "an answer to each request"
        return answer

    def _open_crew(self) -> Crew:
        if self._shutdown or self._crew is None:
            raise AssertionError(
                "Invalid iterator state: shutdown or no outstanding tasks when "
                "fetching next data"
            )
        return self._crew

    def _shutdown_workers(self) -> None:
        """End the workers; they are torch's to end by this name."""
        if self._shutdown or self._crew is None:
            return
        self._shutdown = True
        self._crew.close()
        if self._pins is not None:
            self._pins.stop()


def _start(crew: Crew) -> None:
    try:
        crew.start()
    except (TypeError, AttributeError, pickle.PicklingError):
        warnings.warn(
            "Got pickle error when attempting to start a worker Process. "
            "This might be because the worker Process arguments are not picklable. "
            "Use multiprocessing_context='fork', which pickles nothing.",
            stacklevel=4,
        )
        raise


def _check(loader: Any) -> None:
    """What torch checks here, and not when the loader is made."""
    for name, value in (
        ("num_workers", loader.num_workers),
        ("prefetch_factor", loader.prefetch_factor),
    ):
        if value <= 0:
            raise AssertionError(
                f"{name} must be greater than 0 for MultiProcessingDataLoaderIter"
            )
