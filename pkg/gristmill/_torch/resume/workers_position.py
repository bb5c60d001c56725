"""The position of a stateful loader's epoch whose batches workers compute."""

from __future__ import annotations

import collections
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from gristmill._torch import layout
from gristmill._torch.indices import requests
from gristmill._torch.layout import SavedState, State
from gristmill._torch.resume.epoch_position import EpochPosition, warn_of_replay
from gristmill._torch.resume.sampler_position import SamplerPosition
from gristmill._torch.workers.pool import Answer

# Sends request i to worker i, and yields the answers.
RequestEach: TypeAlias = Callable[[Sequence[Any]], Iterator[Answer]]


class WorkersPosition(EpochPosition):
    """The position of an epoch with workers, which takes snapshots for states.

    After `begin` the iterator calls `before_request` and `after_answer` for each batch.
    The index sampler is ahead of the delivered batches.  The sampler's position is
    therefore noted with each request, and belongs to the snapshot that is taken when
    the answer is delivered.

    Args:
        loader: A stateful loader.
        saved: The state to resume from.  None begins an epoch.
        generators: The states that the workers' random generators begin the epoch with;
            empty leaves the generators as they are.

    Attributes:
        has_states: Whether snapshots contain the states of workers.
        needs_workers: Whether the iterator starts workers.
        delivered: The number of batches delivered.
    """

    def __init__(
        self, loader: Any, saved: SavedState | None, generators: Sequence[State] = ()
    ) -> None:
        super().__init__(loader, saved)
        self._workers = int(loader.num_workers)
        self._in_order: bool = loader.in_order
        self._persistent: bool = loader.persistent_workers
        self._worker_generators = generators
        # If batches arrive out of order, their count does not identify them, so take a
        # snapshot after each batch.
        self._interval: int = loader.snapshot_every_n_steps or 0
        if not self._in_order:
            self._interval = 1
        self.has_states = self._iterable or layout.is_stateful(loader.dataset)
        # If so, `begin` waits for all workers, so that ``iter()`` raises their errors.
        self._init_may_fail = loader.worker_init_fn is not None
        # A finished epoch needs no workers, unless they are kept for the next epoch.
        self.needs_workers = not self.finished or self._persistent
        # Whether workers compute the batches after the loaded snapshot again, to
        # advance their datasets.  With in_order=False the first batches may be others
        # than those delivered, so a map-style dataset's sampler skips these instead.
        self._recomputes = (
            self.needs_workers
            and self.has_states
            and (self._iterable or self._in_order)
        )
        # True if an iterable dataset is read from its beginning, because the snapshot
        # has no state of it.
        self._starts_over = (
            self._recomputes
            and self._iterable
            and saved is not None
            and not layout.has_dataset_states(saved.parts)
        )
        self.delivered, self._last_worker = 0, self._workers - 1
        if saved is not None and not self._starts_over:
            self.delivered, self._last_worker = saved.step, saved.last_worker
        # The latest states of the workers, pickled as they arrived.
        self._worker_states: list[bytes | None] = [None] * self._workers
        self._unanswered_count = 0
        self._pending: PendingRequests
        # The snapshot that a state is made of, without the parts that never change.
        self._latest_snapshot: State

    def make_successor(self, loader: Any) -> WorkersPosition:
        """Return the position of the next epoch, with the same workers."""
        # Running workers keep their generators.  Only workers that were started for a
        # loaded, finished epoch need the states at its end.
        generators = self._saved.worker_generators if self._saved is not None else ()
        if len(generators) != self._workers:
            generators = ()
        return WorkersPosition(loader, None, generators)

    @property
    def first_worker(self) -> int:
        """The worker that computes the first batch."""
        saved = self._saved
        if saved is None or self._starts_over:
            return 0
        if self._iterable:
            return (saved.last_worker + 1) % self._workers
        return self.first_batch % self._workers

    @property
    def first_batch(self) -> int:
        """The number of the first batch of a map-style dataset in its epoch."""
        if self._saved is None:
            return 0
        first_batch: int = self._saved.main[layout.SAMPLER_YIELDED]
        return first_batch + (0 if self._recomputes else self._saved.later_steps)

    @property
    def initial_states(self) -> Sequence[State | None]:
        """The states that workers begin with."""
        if self._saved is not None and self.has_states:
            return self._saved.parts
        return [None] * self._workers

    def iterate_sampler(self, iterator: Any) -> SamplerPosition:
        """Return the iterator over the batches that are requested from workers."""
        sampler, saved = super().iterate_sampler(iterator), self._saved
        if saved is not None and not self._iterable and not self._recomputes:
            sampler.skip(saved)
            self.delivered += saved.later_steps
        return sampler

    def begin(self, request_each: RequestEach, initial_state_request: Any) -> None:
        """Restore workers' generators, and take a snapshot before the first request.

        Args:
            request_each: Sends requests to the workers.
            initial_state_request: A request for a worker's state before its first
                batch.

        Raises:
            Exception: A worker raised it before its first batch.
        """
        if self._worker_generators:
            _exchange_generators(request_each, self._worker_generators)
        if self.has_states or self._init_may_fail:
            for answer in request_each([initial_state_request] * self._workers):
                answer.result()
                self._worker_states[answer.worker] = answer.state
        self._take_first_snapshot()

    def begin_finished(self) -> None:
        """Take the only snapshot of a finished epoch, which has no workers."""
        if self._saved is not None and self.has_states:
            self._worker_states = [*map(pickle.dumps, self._saved.parts)]
        self._take_first_snapshot()

    def before_request(self, worker: int) -> bool:
        """Note a request for a batch, and return whether it asks for a state."""
        with_state = self._may_be_last_before_snapshot()
        self._unanswered_count += 1
        if self._interval:
            self._pending.add(worker, self.sampler.state())
        return with_state

    def after_answer(self, answer: Answer) -> None:
        """Note an answer.  Its batch is delivered, unless the worker is exhausted."""
        self._unanswered_count -= 1
        if answer.state is not None:
            self._worker_states[answer.worker] = answer.state
        sampler_state: State = {}
        if self._interval:
            sampler_state = self._pending.remove_oldest(answer.worker)
        if not answer.is_exhausted:
            self.delivered += 1
            self._last_worker = answer.worker
            if self._interval and self.delivered % self._interval == 0:
                self._take_snapshot(sampler_state)

    def skip_delivered(self, next_batch: Callable[[], Answer | None]) -> None:
        """Take and drop the batches that were delivered before the state was saved.

        Does nothing if the sampler has skipped them.

        Args:
            next_batch: Returns the next answer of the workers, None at the end.
        """
        saved = self._saved
        if saved is None or not self._recomputes:
            return
        if self.finished:
            # A dataset may restore its state only when it is iterated over.  Read the
            # finished epoch to its end, so that it is ready for the next epoch.
            if not self._starts_over:
                _skip(next_batch, saved.later_steps + 1)
            return
        if self._starts_over and saved.step + saved.later_steps:
            warn_of_replay(saved.step + saved.later_steps)
            _skip(next_batch, saved.step)
            if self._in_order and self._last_worker != saved.last_worker:
                raise ValueError(
                    "last_yielded_worker_id does not match, the dataset may have"
                    f" changed: expected {saved.last_worker} after {saved.step}"
                    f" batches, got {self._last_worker}."
                )
        _skip(next_batch, saved.later_steps)

    def state(self, iterator: Any, request_each: RequestEach | None) -> State:
        """Return the state of torch's iterator in torchdata's layout.

        Args:
            iterator: Torch's iterator.
            request_each: Sends requests to the workers, None if they have ended.
        """
        snapshot = self._latest_snapshot
        worker_snapshots = {
            f"worker_{worker}": _unpickle(worker, state)
            for worker, state in enumerate(snapshot[layout.WORKER_SNAPSHOTS])
        }
        is_out_of_order = not self._in_order and self._iterable and not self.finished
        if is_out_of_order and not layout.has_dataset_states(worker_snapshots.values()):
            warnings.warn(
                "With in_order=False, a state of an IterableDataset without state_dict"
                " and load_state_dict contains the number of delivered batches, but not"
                " which ones. A loader that resumes from it may skip or repeat batches."
                " Implement both methods in the dataset or in its iterator, or pass"
                " in_order=True.",
                stacklevel=4,  # The caller of `StatefulDataLoader.state_dict`.
            )
        main_snapshot = {
            layout.NUM_WORKERS: self._workers,
            **layout.copy_state(snapshot[layout.MAIN_SNAPSHOT]),
            layout.LEN_CALLED: iterator._IterableDataset_len_called,
            layout.SHARED_SEED: iterator._shared_seed,
            layout.BASE_SEED: iterator._base_seed,
        }
        state = {
            layout.SNAPSHOT: {
                **snapshot,
                layout.MAIN_SNAPSHOT: main_snapshot,
                layout.WORKER_SNAPSHOTS: worker_snapshots,
            },
            layout.STEPS_SINCE: self.delivered - snapshot[layout.SNAPSHOT_STEP],
            layout.FINISHED: self.finished,
            **self._epoch_state(),
        }
        if self.finished and self._persistent and request_each is not None:
            if self._saved is not None and self._saved.finished:
                generators = self._saved.worker_generators
            else:
                generators = _exchange_generators(request_each, [None] * self._workers)
            state[layout.WORKER_GENERATORS] = generators
        return state

    def _may_be_last_before_snapshot(self) -> bool:
        """Return whether the next answer may be its worker's last before a snapshot."""
        if not self._interval or not self.has_states:
            return False
        if self._iterable:
            # Some of the unanswered requests may find their worker exhausted.
            steps = self.delivered % self._interval + self._unanswered_count
        else:
            steps = (self.delivered + self._unanswered_count) % self._interval
        # Workers take turns, so the last `_workers` requests before a snapshot include
        # the last one of each worker.
        return steps + self._workers >= self._interval

    def _take_first_snapshot(self) -> None:
        sampler_state = self.sampler.state()
        self._pending = PendingRequests(len(self._worker_states), sampler_state)
        self._take_snapshot(sampler_state)

    def _take_snapshot(self, sampler_state: State) -> None:
        self._latest_snapshot = {
            layout.SNAPSHOT_STEP: self.delivered,
            layout.LAST_WORKER: self._last_worker,
            layout.MAIN_SNAPSHOT: sampler_state,
            layout.WORKER_SNAPSHOTS: tuple(self._worker_states),
        }


class PendingRequests:
    """The requests that are not answered, each with the sampler's position before it.

    Answers may arrive in another order than the requests.  A state is therefore the
    sampler's position before the oldest pending request, with the numbers of the later
    batches that were delivered.

    Args:
        workers: The number of workers, each of which answers in the requests' order.
        start: The sampler's position, see `SamplerPosition.state`.
    """

    def __init__(self, workers: int, start: State) -> None:
        # The position after the newest request.
        self._newest_position = start
        # The position before each request, by the number of its batch, oldest first.
        self._positions_before: dict[int, State] = {}
        # The numbers of the batches that each worker has to answer, oldest first.
        self._pending_numbers: list[collections.deque[int]] = [
            collections.deque() for _ in range(workers)
        ]
        # The numbers of delivered batches after the oldest pending one.
        self._delivered_ahead: set[int] = set()

    def add(self, worker: int, position_after: State) -> None:
        """Add a worker's request, after which the sampler has `position_after`."""
        number = position_after[layout.SAMPLER_YIELDED] - 1
        self._positions_before[number] = self._newest_position
        self._pending_numbers[worker].append(number)
        self._newest_position = position_after

    def remove_oldest(self, worker: int) -> State:
        """Remove a worker's oldest request, and return the state without it."""
        number = self._pending_numbers[worker].popleft()
        del self._positions_before[number]
        self._delivered_ahead.add(number)
        position = next(iter(self._positions_before.values()), self._newest_position)
        first = position[layout.SAMPLER_YIELDED]
        self._delivered_ahead = {
            number for number in self._delivered_ahead if number >= first
        }
        ahead = {number - first for number in self._delivered_ahead}
        # The sampler of a loaded state leaves out batches that were delivered before it
        # was saved.  They are never requested.
        ahead.update(position.get(layout.DELIVERED_AHEAD, ()))
        return (
            {**position, layout.DELIVERED_AHEAD: sorted(ahead)} if ahead else position
        )


def _exchange_generators(
    request_each: RequestEach, new_states: Sequence[State | None]
) -> list[State]:
    """Return the states of each worker's generators, and set the new ones.

    None in `new_states` leaves a worker's generators unchanged.
    """
    answers = request_each([requests.GeneratorStates(state) for state in new_states])
    states = {answer.worker: answer.result() for answer in answers}
    return [states[worker] for worker in range(len(new_states))]


def _skip(next_batch: Callable[[], Answer | None], batches: int) -> None:
    """Take and drop some batches, at most those that are left."""
    for _ in range(batches):
        if next_batch() is None:
            break


def _unpickle(worker: int, state: bytes | None) -> State:
    """Return a worker's state in torchdata's layout; None stands for no state."""
    if state is None:
        parts = (layout.DATASET_STATE, layout.FETCHER_STATE)
        return {layout.WORKER_ID: worker, **dict.fromkeys(parts)}
    unpickled: State = pickle.loads(state)
    return unpickled
