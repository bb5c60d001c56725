"""Where a loader with workers stood after the batches that it has given."""

from __future__ import annotations

import collections

from gristmill._torch import layout
from gristmill._torch.layout import State
from gristmill._torch.resume.position import Position
from gristmill._torch.workers.pool import Answer


class Snapshots:
    """Takes snapshots while batches are asked for and given.

    The index sampler is ahead of what was given: where it stands is noted with each
    request, and belongs to the snapshot that is taken when the answer is given.

    Args:
        workers: Each answers in the order in which it was asked.
        interval: Batches from one snapshot to the next; 0 for none but the first.
        iterable: Whether the dataset is; some answers then say that it has ended.
        has_states: Whether workers have states.

    Attributes:
        latest: The snapshot that a state is made of, without what stays as it is.  The
            workers' states are pickled as they came, None where they have none.
        given: Batches until now.
        last_worker: Who gave the last one.
        worker_states: The latest that came of each worker.
    """

    latest: State

    def __init__(
        self,
        position: Position,
        workers: int,
        *,
        interval: int,
        iterable: bool,
        has_states: bool,
    ) -> None:
        self._position = position
        self._interval = interval
        self._iterable = iterable
        self._has_states = has_states
        self.worker_states: list[bytes | None] = [None] * workers
        self.given = 0
        self.last_worker = workers - 1
        self._unanswered = 0
        self._overtaking: Overtaking

    def begin(self) -> None:
        """Take the first snapshot, before anything is asked for."""
        main = self._position.state()
        self._overtaking = Overtaking(len(self.worker_states), main)
        self._take(main)

    def asked(self, worker: int) -> bool:
        """Note a request that is about to be sent; whether a state is to come along."""
        with_state = self._may_be_last_before_snapshot()
        self._unanswered += 1
        if self._interval:
            self._overtaking.asked(worker, self._position.state())
        return with_state

    def answered(self, answer: Answer) -> None:
        """Note an answer that is about to be given."""
        self._unanswered -= 1
        if answer.state is not None:
            self.worker_states[answer.worker] = answer.state
        main = self._overtaking.given(answer.worker) if self._interval else {}
        if not answer.exhausted:
            self.given += 1
            self.last_worker = answer.worker
            if self._interval and self.given % self._interval == 0:
                self._take(main)

    def _may_be_last_before_snapshot(self) -> bool:
        """Whether the next request's answer may be its worker's last until then."""
        if not self._interval or not self._has_states:
            return False
        if self._iterable:
            before = self.given % self._interval + self._unanswered
        else:
            before = (self.given + self._unanswered) % self._interval
        return before + len(self.worker_states) >= self._interval

    def _take(self, main: State) -> None:
        self.latest = {
            layout.SNAPSHOT_STEP: self.given,
            layout.LAST_WORKER: self.last_worker,
            layout.MAIN_SNAPSHOT: main,
            layout.WORKER_SNAPSHOTS: tuple(self.worker_states),
        }


class Overtaking:
    """Which batches were given, where they are not given in order.

    A state is that of the index sampler before the oldest batch that is under way, and
    the numbers of those behind it that were given already.

    Args:
        workers: How many there are.
        start: Where the index sampler stands, see `position`.
    """

    def __init__(self, workers: int, start: State) -> None:
        self._latest = start
        # By the batch's number: where the index sampler stood before it.
        self._under_way: dict[int, State] = {}
        self._asked: list[collections.deque[int]] = [
            collections.deque() for _ in range(workers)
        ]
        self._given: set[int] = set()

    def asked(self, worker: int, after: State) -> None:
        """Note that a worker was asked for a batch, and where the sampler is then."""
        number = after[layout.SAMPLER_YIELDED] - 1
        self._under_way[number] = self._latest
        self._asked[worker].append(number)
        self._latest = after

    def given(self, worker: int) -> State:
        """Note that a worker's oldest batch is given; the state after that."""
        number = self._asked[worker].popleft()
        del self._under_way[number]
        self._given.add(number)
        main = next(iter(self._under_way.values()), self._latest)
        first = main[layout.SAMPLER_YIELDED]
        self._given = {number for number in self._given if number >= first}
        ahead = {number - first for number in self._given}
        ahead.update(main.get(layout.GIVEN_AHEAD, ()))
        return {**main, layout.GIVEN_AHEAD: sorted(ahead)} if ahead else main
