"""The stateful iterator of a loader with workers."""

from __future__ import annotations

import collections
import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any

from gristmill._torch import layout, private
from gristmill._torch.indices.requests import WithState
from gristmill._torch.iterators.several import MultiProcessIterator
from gristmill._torch.layout import Saved, State
from gristmill._torch.resume.deliveries import Deliveries
from gristmill._torch.resume.positions import Position
from gristmill._torch.resume.saving import Saving, warn_of_order, warn_of_replay
from gristmill._torch.workers.crew import Answer, Crew
from gristmill._torch.workers.fetching import FetchProgram
from gristmill._torch.workers.stateful_fetching import StatefulFetchProgram


@dataclasses.dataclass(frozen=True)
class _Snapshot:
    """Where the loader stood after some batch.

    Attributes:
        step: Batches given until then.
        last_worker: Who gave the last one.
        main: The parent's part.
        workers: The workers' parts, pickled as they came; None where they have none.
    """

    step: int
    last_worker: int
    main: State
    workers: tuple[bytes | None, ...]


class StatefulMultiProcessIterator(Saving, MultiProcessIterator):
    """Gives batches that workers compute, who send their states along.

    The index sampler is ahead of what was given: where it stands is noted with each
    request, and belongs to the snapshot that is taken when the answer is given.
    """

    _snapshot: _Snapshot
    # The latest that came of each worker.
    _worker_states: list[bytes | None]
    # What persistent workers are to draw the next epoch's samples from.
    _wanted: Sequence[State] = ()
    # Where batches of a map-style dataset are not given in order.
    _deliveries: Deliveries | None = None

    def __init__(self, loader: Any, saved: Saved | None) -> None:
        # Out of order a count of batches does not say which: each is a snapshot.
        self._interval = loader.snapshot_every_n_steps or 0 if loader.in_order else 1
        iterates = loader._dataset_kind == private.DatasetKind.Iterable
        # Whether workers have states, and whether they may fail when they begin.
        self._speaks = iterates or layout.is_stateful(loader.dataset)
        self._greets = self._speaks or loader.worker_init_fn is not None
        # Whether batches given after a snapshot are computed again for these states.
        self._recomputes = self._speaks and (iterates or loader.in_order)
        self._replays = iterates and saved is not None and not layout.tell(saved.parts)
        if saved is not None and not self._replays:
            self._first_worker = self._after(saved, loader.num_workers, iterates)
        super().__init__(loader, saved)

    def state_dict(self) -> State:
        """Where the iterator stands, in torchdata's layout."""
        snapshot = self._snapshot
        workers = {
            layout.worker_name(worker): _unpickled(worker, state)
            for worker, state in enumerate(snapshot.workers)
        }
        counts = not self._in_order and self._iterable and not self._finished
        if counts and not layout.tell(workers.values()):
            warn_of_order()
        main = {
            layout.NUM_WORKERS: self._num_workers,
            **layout.copied(snapshot.main),
            layout.LEN_CALLED: self._IterableDataset_len_called,
            layout.SHARED_SEED: self._shared_seed,
            layout.BASE_SEED: self._base_seed,
        }
        return {
            layout.SNAPSHOT: {
                layout.SNAPSHOT_STEP: snapshot.step,
                layout.LAST_WORKER: snapshot.last_worker,
                layout.MAIN_SNAPSHOT: main,
                layout.WORKER_SNAPSHOTS: workers,
            },
            layout.STEPS_SINCE: self._given - snapshot.step,
            layout.FINISHED: self._finished,
            **self._ending(),
        }

    def _after(self, saved: Saved, workers: int, iterates: bool) -> int:
        """The worker whose turn it is when a loader goes on."""
        if iterates:
            return (saved.last_worker + 1) % workers
        drawn: int = saved.main[layout.SAMPLER_YIELDED]
        return (drawn + (0 if self._recomputes else saved.later_steps)) % workers

    def _hire(self, loader: Any) -> None:
        saved = self._saved
        self._finished = saved is not None and saved.finished
        if saved is None or not saved.finished or self._persistent_workers:
            super()._hire(loader)
            return
        # Nobody is needed: the loader begins another epoch.
        self._workers = []
        self._asked = []
        self._begin_count(saved)
        if self._speaks:
            self._worker_states = [pickle.dumps(part) for part in saved.parts]
        self._take_snapshot(self._position.state())

    def _program(self, loader: Any) -> FetchProgram:
        saved = self._saved
        states = saved.parts if saved is not None and self._speaks else ()
        return StatefulFetchProgram(
            **vars(super()._program(loader)),
            states=tuple(states) or (None,) * self._num_workers,
        )

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._first_worker = 0
        self._replays = False
        saved = self._saved
        if saved is not None and len(saved.worker_generators) == self._num_workers:
            self._wanted = saved.worker_generators
        super()._reset(loader, first_iter)

    def _ask_for_all(self, crew: Crew) -> None:
        saved = None if self._replays else self._saved
        if self._replays:
            iteration = iter(self._index_sampler)
            self._sampler_iter = Position(self._index_sampler, iteration)
            self._position = self._sampler_iter
        self._begin_count(saved)
        if self._wanted:
            self._exchange(crew, self._wanted)
            self._wanted = ()
        if self._greets:
            self._greet(crew)
        main = self._position.state()
        self._take_snapshot(main)
        if not self._in_order and not self._iterable:
            self._deliveries = Deliveries(self._num_workers, main)
        super()._ask_for_all(crew)
        if self._saved is not None and self._recomputes:
            self._replay(self._saved)

    def _begin_count(self, saved: Saved | None) -> None:
        # Where the index sampler stood at each request whose answer may be a snapshot.
        self._noted: collections.deque[State | None] = collections.deque()
        self._worker_states = [None] * self._num_workers
        self._given = 0
        self._last_worker = self._num_workers - 1
        if saved is not None:
            self._given, self._last_worker = saved.step, saved.last_worker
            computed = self._recomputes and self._crew is not None
            if not self._iterable and not computed:
                self._pass_over_indices(saved)
                self._given += saved.later_steps
        self._requested = self._given

    def _greet(self, crew: Crew) -> None:
        """Wait until all workers have begun; raises what they raised."""
        workers = self._num_workers
        for turn in range(workers):
            crew.ask_beginning((self._first_worker + turn) % workers)
        try:
            for _ in range(workers):
                answer = self._answer_of(crew)
                answer.result()
                self._worker_states[answer.worker] = answer.state
        except BaseException:
            self._shutdown_workers()
            raise

    def _exchange(self, crew: Crew, wanted: Sequence[State | None]) -> list[State]:
        """The workers' generators, which draw from where they are wanted then."""
        found: list[State] = [{}] * self._num_workers
        for worker, state in enumerate(wanted):
            crew.ask_generators(worker, state)
        for _ in wanted:
            answer = self._answer_of(crew)
            found[answer.worker] = answer.result()
        return found

    def _ending(self) -> State:
        ending, saved = super()._ending(), self._saved
        if not ending or not self._persistent_workers or self._shutdown:
            return ending
        if saved is not None and saved.finished:
            found = saved.worker_generators
        else:
            found = self._exchange(self._open_crew(), [None] * self._num_workers)
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
            if self._in_order and self._last_worker != saved.last_worker:
                raise ValueError(
                    "last_yielded_worker_id does not match, the dataset may have"
                    f" changed: after {saved.step} batches it is"
                    f" {self._last_worker}, and was {saved.last_worker}."
                )
        self._pass_over(saved.later_steps)
        self._num_yielded = self._given

    def _pass_over(self, batches: int) -> None:
        for _ in range(batches):
            if self._next_batch() is None:
                break

    def _send(self, crew: Crew, worker: int, keys: Any) -> None:
        with_state = self._may_be_last_before_snapshot()
        self._requested += 1
        if self._deliveries is not None:
            self._deliveries.asked(worker, self._position.state())
        else:
            self._note()
        super()._send(crew, worker, WithState(keys) if with_state else keys)

    def _note(self) -> None:
        # An iterable's answers are not counted by requests: some say that it has ended.
        due = self._interval and (
            self._iterable or self._requested % self._interval == 0
        )
        self._noted.append(self._position.state() if due else None)

    def _may_be_last_before_snapshot(self) -> bool:
        """Whether the next request's answer may be its worker's last until then."""
        if not self._interval or not self._speaks:
            return False
        if self._iterable:
            before = self._given % self._interval + sum(self._asked)
        else:
            before = self._requested % self._interval
        return bool(before + self._num_workers >= self._interval)

    def _next_answer(self, crew: Crew) -> Answer:
        answer = super()._next_answer(crew)
        if self._deliveries is not None:
            main: State | None = self._deliveries.given(answer.worker)
        else:
            main = self._noted.popleft()
        if answer.state is not None:
            self._worker_states[answer.worker] = answer.state
        if not answer.exhausted:
            self._given += 1
            self._last_worker = answer.worker
            if main is not None and self._given % self._interval == 0:
                self._take_snapshot(main)
        return answer

    def _take_snapshot(self, main: State) -> None:
        self._snapshot = _Snapshot(
            self._given, self._last_worker, main, tuple(self._worker_states)
        )


def _unpickled(worker: int, state: bytes | None) -> State:
    if state is None:
        return {
            layout.WORKER_ID: worker,
            layout.DATASET_STATE: None,
            layout.FETCHER_STATE: None,
        }
    found: State = pickle.loads(state)
    return found
