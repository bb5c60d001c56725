"""The stateful iterator of a loader with workers."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from gristmill._torch import layout, private
from gristmill._torch.indices import requests
from gristmill._torch.iterators import MultiProcessIterator
from gristmill._torch.layout import Saved, State
from gristmill._torch.resume.position import EpochPosition, Snapshots
from gristmill._torch.resume.single import StatefulIterator, warn_of_replay
from gristmill._torch.workers.changing import ChangingPool
from gristmill._torch.workers.fetch import FetchProgram
from gristmill._torch.workers.pool import Answer


class StatefulMultiProcessIterator(StatefulIterator, MultiProcessIterator):
    """Gives batches that workers compute, who send their states along.

    What is asked for and given is noted by its `Snapshots`.
    """

    _snapshots: Snapshots
    # What persistent workers are to draw the next epoch's samples from.
    _wanted: Sequence[State] = ()

    def __init__(self, loader: Any, saved: Saved | None) -> None:
        # Out of order a count of batches does not say which: each is a snapshot.
        self._interval = loader.snapshot_every_n_steps or 0 if loader.in_order else 1
        iterates = loader._dataset_kind == private.DatasetKind.Iterable
        self._has_states = iterates or layout.is_stateful(loader.dataset)
        self._may_fail_first = loader.worker_init_fn is not None
        # Whether batches given after a snapshot are computed again for these states.
        self._recomputes = self._has_states and (iterates or loader.in_order)
        self._replays = iterates and saved is not None and not layout.tell(saved.parts)
        if saved is not None and not self._replays:
            self._first_worker = self._after(saved, loader.num_workers, iterates)
        super().__init__(loader, saved)

    def state_dict(self) -> State:
        """Where the iterator stands, in torchdata's layout."""
        snapshot = self._snapshots.latest
        workers = {
            f"worker_{worker}": _unpickled(worker, state)
            for worker, state in enumerate(snapshot[layout.WORKER_SNAPSHOTS])
        }
        counts = not self._in_order and self._iterable and not self._finished
        if counts and not layout.tell(workers.values()):
            warnings.warn(
                "With in_order=False the state of an IterableDataset that has no"
                " state_dict and load_state_dict, nor its iterator, tells how many"
                " batches were given, not which: a loader that goes on from it may miss"
                " batches or give them again.",
                stacklevel=3,
            )
        main = {
            layout.NUM_WORKERS: self._num_workers,
            **layout.copied(snapshot[layout.MAIN_SNAPSHOT]),
            layout.LEN_CALLED: self._IterableDataset_len_called,
            layout.SHARED_SEED: self._shared_seed,
            layout.BASE_SEED: self._base_seed,
        }
        return {
            layout.SNAPSHOT: {
                **snapshot,
                layout.MAIN_SNAPSHOT: main,
                layout.WORKER_SNAPSHOTS: workers,
            },
            layout.STEPS_SINCE: self._snapshots.given - snapshot[layout.SNAPSHOT_STEP],
            layout.FINISHED: self._finished,
            **self._in_epoch(),
            **self._ending(),
        }

    def _after(self, saved: Saved, workers: int, iterates: bool) -> int:
        """The worker whose turn it is when a loader goes on."""
        if iterates:
            return (saved.last_worker + 1) % workers
        drawn: int = saved.main[layout.SAMPLER_YIELDED]
        return (drawn + (0 if self._recomputes else saved.later_steps)) % workers

    def _depends_on_number(self) -> str | None:
        if not self._iterable and self._has_states:
            return "the dataset's copy in each of them has a state of its own."
        return super()._depends_on_number()

    def _start_workers(self, loader: Any) -> None:
        saved = self._saved
        self._finished = saved is not None and saved.finished
        if saved is None or not saved.finished or self._persistent_workers:
            super()._start_workers(loader)
            return
        # Nobody is needed: the loader begins another epoch.
        self._draw_natively()
        self._workers = []
        self._asked = []
        self._begin_snapshots(saved, recomputes=False)
        if self._has_states:
            self._snapshots.worker_states = [*map(pickle.dumps, saved.parts)]
        self._snapshots.begin()

    def _program(self, loader: Any) -> FetchProgram:
        saved = self._saved
        states: Sequence[State | None] = [None] * self._num_workers
        if saved is not None and self._has_states:
            states = saved.parts
        return dataclasses.replace(super()._program(loader), states=states)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._first_worker = 0
        self._replays = False
        saved = self._saved
        if saved is not None and len(saved.worker_generators) == self._num_workers:
            self._wanted = saved.worker_generators
        super()._reset(loader, first_iter)

    def _ask_for_all(self, pool: ChangingPool, asked: int = 0) -> None:
        saved = None if self._replays else self._saved
        if self._replays:
            iteration = iter(self._index_sampler)
            self.position = EpochPosition(self._index_sampler, iteration)
            self._draw_from(self.position)
        self._begin_snapshots(saved, recomputes=self._recomputes)
        if self._wanted:
            self._exchange(pool, self._wanted)
            self._wanted = ()
        if self._has_states or self._may_fail_first:
            self._await_beginning(pool)
        self._snapshots.begin()
        super()._ask_for_all(pool, asked)
        if self._saved is not None and self._recomputes:
            self._replay(self._saved)

    def _begin_snapshots(self, saved: Saved | None, *, recomputes: bool) -> None:
        self._snapshots = Snapshots(
            self.position,
            self._num_workers,
            interval=self._interval,
            iterable=self._iterable,
            has_states=self._has_states,
        )
        if saved is not None:
            self._snapshots.given = saved.step
            self._snapshots.last_worker = saved.last_worker
            if not self._iterable and not recomputes:
                self.position.pass_over(saved)
                self._snapshots.given += saved.later_steps

    def _await_beginning(self, pool: ChangingPool) -> None:
        """Wait until all workers have begun; raises what they raised."""
        try:
            for answer in self._each(pool, [pool.beginning()] * self._num_workers):
                answer.result()
                self._snapshots.worker_states[answer.worker] = answer.state
        except BaseException:
            self._shutdown_workers()
            raise

    def _exchange(
        self, pool: ChangingPool, wanted: Sequence[State | None]
    ) -> list[State]:
        """The workers' generators, which draw from where they are wanted then."""
        answers = self._each(pool, [requests.Generators(state) for state in wanted])
        found = {answer.worker: answer.result() for answer in answers}
        return [found[worker] for worker in range(self._num_workers)]

    def _each(self, pool: ChangingPool, wanted: list[Any]) -> Iterator[Answer]:
        """What each worker answers to a request."""
        for worker, request in enumerate(wanted):
            pool.send(worker, request, self._draws_in)
        for _ in wanted:
            yield self._answer_of(pool)

    def _ending(self) -> State:
        ending, saved = super()._ending(), self._saved
        if not ending or not self._persistent_workers or self._shutdown:
            return ending
        if saved is not None and saved.finished:
            found = saved.worker_generators
        else:
            found = self._exchange(self._open_pool(), [None] * self._num_workers)
        return {**ending, layout.WORKER_GENERATORS: found}

    def _replay(self, saved: Saved) -> None:
        """Pass over the batches that were given after the snapshot that was loaded."""
        if self._finished:
            # Workers whose dataset restores itself later are to come to its end.
            if not self._replays:
                self._pass_over(saved.later_steps + 1)
            return
        if self._replays and saved.step + saved.later_steps:
            warn_of_replay(saved.step + saved.later_steps)
            self._pass_over(saved.step)
            last = self._snapshots.last_worker
            if self._in_order and last != saved.last_worker:
                raise ValueError(
                    "last_yielded_worker_id does not match, the dataset may have"
                    f" changed: after {saved.step} batches it is"
                    f" {last}, and was {saved.last_worker}."
                )
        self._pass_over(saved.later_steps)
        self._num_yielded = self._snapshots.given

    def _pass_over(self, batches: int) -> None:
        for _ in range(batches):
            if self._next_batch() is None:
                break

    def _asks_for_state(self, worker: int) -> bool:
        return self._snapshots.asked(worker)

    def _next_answer(self, pool: ChangingPool) -> Answer:
        answer = super()._next_answer(pool)
        self._snapshots.answered(answer)
        return answer


def _unpickled(worker: int, state: bytes | None) -> State:
    if state is None:
        nothing = (layout.DATASET_STATE, layout.FETCHER_STATE)
        return {layout.WORKER_ID: worker, **dict.fromkeys(nothing)}
    found: State = pickle.loads(state)
    return found
