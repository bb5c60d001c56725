"""Iterates over a torch loader with workers."""

from __future__ import annotations

import functools
import itertools
import pickle
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from gristmill._engine.worker_stats import LocalStats, RemoteStats
from gristmill._engine.workers import check_workers
from gristmill._torch import epochs, private
from gristmill._torch.batches import slot_collation
from gristmill._torch.batches.native import is_torch_collate
from gristmill._torch.indices.draws import can_preview
from gristmill._torch.iterators.base import LoaderIterator
from gristmill._torch.iterators.early_requests import EarlyRequests
from gristmill._torch.iterators.turns import WorkerTurns
from gristmill._torch.workers.fetch import FetchProgram
from gristmill._torch.workers.pinning import PinThread
from gristmill._torch.workers.pool import Answer
from gristmill._torch.workers.resizable_pool import ResizablePool

if TYPE_CHECKING:
    from gristmill._torch.resume.workers_position import WorkersPosition


class MultiProcessIterator(LoaderIterator, private.MultiProcessIterator):  # type: ignore[misc]
    """Yields batches that worker processes compute.

    Torch's class contributes its name.  The methods and attributes that trainers use
    are here: `_workers`, `_shutdown_workers` and `_reset`.

    The thread that iterates owns all fields.  Any thread may call `set_workers`.  If
    there is a `_pin_thread`, it takes the answers with batches from `_pool`.

    Turns, requests, answers and states always use the loader's `num_workers` and worker
    numbers.  After `set_workers`, `ResizablePool` maps them to the running workers.
    """

    _position: WorkersPosition | None
    # For `__del__`, if `__init__` fails before it sets them.
    _pool: ResizablePool | None = None
    _pin_thread: PinThread | None = None
    _shutdown = False
    _turns: WorkerTurns

    def __init__(self, loader: Any, position: WorkersPosition | None = None) -> None:
        self._position = position
        self._epoch = self._begin_epoch(loader)
        self._draw_epoch = epochs.draw_epoch(self._epoch)
        private.BaseIterator.__init__(self, loader)
        _check_arguments(loader)
        self._in_order = loader.in_order
        self._iterable = self._dataset_kind == private.DatasetKind.Iterable
        self._prefetch_factor = loader.prefetch_factor
        self._reorder_window = loader.reorder_window or 0
        self._window = self._window_for(loader.num_workers)
        # The number of requests to send until `_window` are unanswered; negative if
        # more are unanswered.
        self._missing_requests = 0
        # None if no requests for the next epoch are sent before it begins.
        self._early_requests: EarlyRequests | None = None
        if loader.overlap_epochs and self._can_predict_epoch():
            self._early_requests = EarlyRequests(self._index_sampler)
        self._start(loader, private.MultiProcessIterator)
        if position is None or position.needs_workers:
            self._start_workers(loader)
        else:
            self._workers: list[Any] = []
            self._turns = WorkerTurns(0)
            self._replace_sampler_iter()
            position.begin_finished()

    def _start_workers(self, loader: Any) -> None:
        """Start workers, and send the first requests."""
        if self._position is not None:
            self._position.restore_seeds(self)
        self._pool = ResizablePool(self._program(loader), loader, self._window)
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
            self._pin_thread = PinThread(self._pool, self._pin_memory_device)
        # Torch's iterator begins its first epoch twice, too.
        private.BaseIterator._reset(self, loader, True)
        self._replace_sampler_iter()
        self._send_first_requests(self._pool)

    def set_workers(self, count: int) -> None:
        """Change the number of workers that compute this iterator's later batches.

        Indices, order and states do not change.  States still contain the loader's
        `num_workers`.  The present workers continue until the new ones have started,
        and answer their requests, so that the caller does not wait.  The new workers
        have torch's numbers and seeds.  Random numbers that samples draw in a worker
        therefore depend on the number of workers, as in torch.  Other iterators have
        the loader's number of workers.

        Args:
            count: Worker processes, at least 1.

        Raises:
            TypeError: `count` is not an integer.
            ValueError: `count` is less than 1.  Or the batches depend on the number of
                workers: with an iterable dataset, with a map-style dataset whose copies
                in the workers have states, and with ``in_order=False``.
            RuntimeError: The iterator's workers have ended.
        """
        check_workers(count)
        if reason := self._fixed_count_reason():
            raise ValueError(f"The number of workers cannot change: {reason}")
        if self._shutdown or self._pool is None:
            raise RuntimeError(
                "The workers of this iterator have ended. Call iter() again."
            )
        self._pool.set_workers(int(count), self._window_for(int(count)))

    def usage(self) -> LocalStats | RemoteStats | None:
        """Return the measured times of workers and stages."""
        return None if self._pool is None else self._pool.usage()

    def _worker_count(self) -> int:
        return self._num_workers if self._pool is None else self._pool.workers

    def _fixed_count_reason(self) -> str | None:
        """Return why batches depend on the number of workers, None if they do not."""
        if self._iterable:
            return (
                "each worker reads a share of the IterableDataset, which depends on"
                " get_worker_info(). Save a state and load it with another num_workers,"
                " or use a map-style dataset."
            )
        if self._position is not None and self._position.has_states:
            return "the dataset's copy in each worker has its own state."
        if not self._in_order:
            return "with in_order=False, batches are counted per worker."
        return None

    def _window_for(self, workers: int) -> int:
        """Return the number of requests that may be unanswered."""
        window: int = max(self._prefetch_factor * workers, self._reorder_window)
        return window

    def _switch_to_successor(self, pool: ResizablePool) -> None:
        """Send requests to the pool's successor if its workers have started."""
        if pool.switch_to_successor():
            window = self._window_for(pool.workers)
            self._missing_requests += window - self._window
            self._window = window
            self._workers = pool.processes

    def _program(self, loader: Any) -> FetchProgram:
        position = self._position
        init = loader.worker_init_fn
        if isinstance(self._dataset, private.DATAPIPES):
            init = functools.partial(
                private.init_sharding_worker, init, self._world_size, self._rank
            )
        native = (
            not self._iterable
            and self._auto_collation
            and is_torch_collate(self._collate_fn)
        )
        return FetchProgram(
            dataset=self._dataset,
            iterable=self._iterable,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            base_seed=self._base_seed,
            workers=int(self._num_workers),
            worker_init_fn=init,
            collate_rules=slot_collation.rules(),
            shared_seed=self._shared_seed,
            default_dtype=torch.get_default_dtype(),
            native=native,
            epoch=self._draw_epoch,
            states=() if position is None else position.initial_states,
        )

    def _can_predict_epoch(self) -> bool:
        """Return whether the next epoch can be predicted; warn if it cannot."""
        is_possible = private.is_base_own() and can_preview(self._index_sampler)
        if not is_possible:
            sampler = getattr(self._index_sampler, "sampler", self._index_sampler)
            warnings.warn(
                "overlap_epochs has no effect: the indices of a"
                f" {type(self._index_sampler).__name__} over a"
                f" {type(sampler).__name__} cannot be predicted. Use torch's samplers.",
                stacklevel=5,  # The caller of ``iter(loader)``.
            )
        return is_possible

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begin another epoch with the same workers, and drop the rest of this one."""
        pool, early = self._open_pool(), self._early_requests
        if self._position is not None:
            self._position = self._position.make_successor(loader)
        self._watch.exclude_gap()
        private.BaseIterator._reset(self, loader, first_iter)
        self._replace_sampler_iter()
        # Batches that the program has not taken would arrive before the early ones, so
        # `pool.reset` drops both.
        if early is not None and (not early.sent_keys or any(self._turns.unanswered)):
            early = None
        predicted_draw_epoch = epochs.draw_epoch(self._epoch + 1)
        self._epoch = self._begin_epoch(loader)
        self._draw_epoch = epochs.draw_epoch(self._epoch)
        if (
            early is not None
            and self._draw_epoch == predicted_draw_epoch
            and self._draw_predicted_keys(early)
        ):
            self._send_first_requests(pool, len(early.sent_keys))
            return
        if self._pin_thread is not None:
            self._pin_thread.drop()
        pool.reset(self._shared_seed)
        if early is not None:
            self._early_requests = None  # Another prediction would be wrong, too.
        self._send_first_requests(pool)
        if early is not None:
            warnings.warn(
                "overlap_epochs ends: the sampler drew other indices than predicted, or"
                " set_epoch chose another epoch than the next one. Pass the loader a"
                " generator that no other code uses, and give a DistributedSampler"
                " consecutive epochs.",
                stacklevel=3,  # The caller of ``iter(loader)``.
            )

    def _send_first_requests(self, pool: ResizablePool, early_count: int = 0) -> None:
        """Begin an epoch, and send its first requests, except for the early ones.

        Args:
            pool: The workers.
            early_count: The number of requests that were sent before the epoch began.
        """
        # The window of `WorkerTurns`: 0 if no worker may miss its turn.
        position, window = self._position, 0 if self._in_order else self._window
        if position is not None:
            try:
                position.begin(self._request_each, pool.initial_state_request())
            except BaseException:
                self._shutdown_workers()
                raise
        first_worker = 0 if position is None else position.first_worker
        self._turns = WorkerTurns(self._num_workers, first_worker, window)
        if self._early_requests is not None:
            self._early_requests = EarlyRequests(self._index_sampler)
        self._missing_requests = min(0, self._window - early_count)
        for number in range(max(self._window, early_count)):
            self._send_next_request(pool, is_sent=number < early_count)
        if position is not None:
            position.skip_delivered(self._next_batch)
            self._num_yielded = position.delivered

    def _send_early_request(self, pool: ResizablePool, early: EarlyRequests) -> None:
        """Send a request for a batch of the next epoch, if one is predicted."""
        keys = early.next_keys()
        if keys is not None:
            worker = len(early.sent_keys) % self._num_workers
            self._send(pool, worker, keys, epochs.draw_epoch(self._epoch + 1))
            early.sent_keys.append(keys)

    def _draw_predicted_keys(self, early: EarlyRequests) -> bool:
        """Draw the epoch's first batches; return whether early requests match them.

        `_indices` yields the drawn batches again.
        """
        drawn_keys = [*itertools.islice(self._indices, len(early.sent_keys))]
        self._set_indices(itertools.chain(drawn_keys, self._indices))
        return early.matches(drawn_keys)

    def _send_next_request(self, pool: ResizablePool, *, is_sent: bool = False) -> None:
        """Send the request for the sampler's next item, if a worker takes one.

        With `is_sent`, an early request was sent for this item, so only count it.
        """
        try:
            # Another library may have replaced the iterator, or torch's `_next_index`.
            if self._sampler_iter is self._own_sampler_iter:
                keys = next(self._indices)
            else:
                keys = self._next_index()
        except StopIteration:
            if self._early_requests is not None:
                self._send_early_request(pool, self._early_requests)
            return
        turns = self._turns
        worker = turns.next_worker()
        if worker is None:
            return
        if not is_sent:
            self._send(pool, worker, keys, self._draw_epoch)
        turns.unanswered[worker] += 1

    def _send(
        self, pool: ResizablePool, worker: int, keys: Any, draw_epoch: int
    ) -> None:
        position = self._position
        with_state = position is not None and position.before_request(worker)
        pool.request_batch(worker, keys, draw_epoch, with_state=with_state)
        if self._pin_thread is not None:
            self._pin_thread.request()

    def _next_data(self) -> Any:
        answer = self._next_batch()
        if answer is not None:
            return answer.result()
        if not self._persistent_workers:
            self._shutdown_workers()
        raise StopIteration

    def _next_batch(self) -> Answer | None:
        """Return the answer with the next batch, None if all workers are exhausted."""
        turns = self._turns
        position = self._position
        while any(turns.unanswered):
            pool = self._open_pool()
            if pool.successor is not None:
                self._switch_to_successor(pool)
            answer = self._next_answer(self._pin_thread or pool)
            if position is not None:
                position.after_answer(answer)
            turns.unanswered[answer.worker] -= 1
            is_exhausted = answer.is_exhausted
            if is_exhausted:
                turns.end(answer.worker)
            self._missing_requests += 1
            while self._missing_requests > 0:
                self._missing_requests -= 1
                self._send_next_request(pool)
            if not is_exhausted:
                return answer
        return None

    def _request_each(self, requests: Sequence[Any]) -> Iterator[Answer]:
        """Send request i, which is not for a batch, to worker i; yield the answers.

        No request for a batch may be unanswered.  `_pin_thread` then waits for its next
        request, and leaves these answers to this thread.
        """
        pool = self._open_pool()
        for worker, request in enumerate(requests):
            pool.send(worker, request, self._draw_epoch)
        for _ in requests:
            yield self._next_answer(pool)

    def _next_answer(self, source: ResizablePool | PinThread) -> Answer:
        try:
            answer = source.next(self._timeout or None)
        except TimeoutError:
            text = f"DataLoader timed out after {self._timeout} seconds"
            raise RuntimeError(text) from None
        assert answer is not None, "an answer to each request"
        return answer

    def _open_pool(self) -> ResizablePool:
        if self._shutdown or self._pool is None:
            raise AssertionError(
                "Invalid iterator state: shutdown or no outstanding tasks when "
                "fetching next data"
            )
        return self._pool

    def _shutdown_workers(self) -> None:
        """End the workers.

        Trainers call it, and so does `__del__` of torch's class, which the garbage
        collector may run in any thread.
        """
        if self._shutdown or self._pool is None:
            return
        self._shutdown = True
        self._pool.close()
        if self._pin_thread is not None:
            self._pin_thread.stop()


def _check_arguments(loader: Any) -> None:
    """Check the arguments that torch checks only when an iterator is made."""
    for name in ("num_workers", "prefetch_factor"):
        if getattr(loader, name) <= 0:
            raise AssertionError(
                f"{name} must be greater than 0 for MultiProcessingDataLoaderIter"
            )
