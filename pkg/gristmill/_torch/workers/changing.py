"""Workers of one iterator, whose number may change while it runs.

An iterator numbers its workers from its beginning to its end, for turns and states.
Where another number of them computes, requests are dealt among these in turn.
"""

from __future__ import annotations

import collections
import threading
from typing import Any

from gristmill._engine.usage import NearUsage
from gristmill._torch.indices import requests
from gristmill._torch.workers.fetch import FetchProgram
from gristmill._torch.workers.pool import Answer, WorkerPool


class ChangingPool:
    """Asks a `WorkerPool`, until another one has started in its place.

    What the one that leaves was asked for it still answers: nothing is computed twice.
    One thread may ask, another may call `next`, and any may call `set_workers`.

    Args:
        window: Requests that may be unanswered at a time, at most.

    Attributes:
        successor: The pool that `change_over` asks once its workers have begun, if any.
    """

    def __init__(self, program: FetchProgram, loader: Any, window: int) -> None:
        self._numbers = program.workers
        self._pool = WorkerPool(program, loader, window)
        # Pools that are not asked any more, but have requests to answer, oldest first.
        self._leaving: collections.deque[WorkerPool] = collections.deque()
        # The iterator's worker number of each unanswered request that a worker with
        # another number computes.
        self._dealt: collections.deque[int] = collections.deque()
        self._asked = 0
        # Takes over when all of its workers have answered that they have begun.
        self.successor: WorkerPool | None = None
        self._beginning = 0
        self._changing = threading.Lock()

    @property
    def workers(self) -> int:
        """How many are asked."""
        return self._pool.workers

    @property
    def processes(self) -> list[Any]:
        """Those of the workers that are asked, by number."""
        return self._pool.processes

    def start(self) -> None:
        """Let the workers start, see `WorkerPool.start`."""
        self._pool.start()

    def usage(self) -> NearUsage:
        """What those that are asked do, see `WorkerPool.usage`."""
        return self._pool.usage()

    def set_workers(self, count: int, window: int) -> None:
        """Start so many workers, which `change_over` asks when they have begun."""
        with self._changing:
            self._end_successor()
            if count == self._pool.workers:
                return
            successor = self._pool.successor(count, window)
            try:
                successor.start()
                for worker in range(count):
                    successor.send(worker, requests.Next(0, 0, 0, None))
            except BaseException:
                successor.close()
                raise
            self.successor, self._beginning = successor, count

    def change_over(self) -> bool:
        """Ask the successor from now on; return whether its workers have begun.

        Raises:
            Exception: One of them could not begin; the others go on.
        """
        with self._changing:
            after = self.successor
            if after is None or not self._has_begun(after):
                return False
            # Before `_pool`: `next` may run in another thread.
            self._leaving.append(self._pool)
            self._pool, self.successor, self._asked = after, None, 0
            return True

    def ask(
        self, worker: int, keys: Any, epoch: int = 0, *, with_state: bool = False
    ) -> None:
        """Ask for a batch, see `WorkerPool.ask`."""
        self._pool.ask(self._number_of(worker), keys, epoch, with_state=with_state)

    def send(self, worker: int, request: Any, epoch: int = 0) -> None:
        """Ask for anything, see `requests.packed`."""
        self._pool.send(self._number_of(worker), request, epoch)

    def beginning(self) -> requests.WithState:
        """Asks a worker for its state before its first batch."""
        return self._pool.beginning()

    def next(self, timeout_s: float | None = None) -> Answer | None:
        """The answer that is due, see `WorkerPool.next`."""
        # Read before `_leaving`: `change_over` may run in another thread.
        current = self._pool
        while True:
            pool = self._leaving[0] if self._leaving else current
            answer = pool.next(timeout_s)
            if answer is not None or pool is current:
                break
            self._leaving.popleft().close()
        if answer is None or pool.workers == self._numbers:
            return answer
        return answer._replace(worker=self._dealt.popleft())

    def reset(self, shared_seed: int | None = None) -> None:
        """Begin a new epoch with the same workers; what is unanswered is dropped."""
        self._end_leaving()
        self._pool.reset(shared_seed)

    def close(self) -> None:
        """End the workers.  Batches that were given stay valid."""
        with self._changing:
            self._end_successor()
        self._pool.close()
        self._end_leaving()

    def _number_of(self, worker: int) -> int:
        """Return which worker of the pool computes what the iterator asks `worker`."""
        if self._pool.workers == self._numbers:
            return worker
        self._dealt.append(worker)
        self._asked += 1
        return self._asked % self._pool.workers

    def _has_begun(self, pool: WorkerPool) -> bool:
        try:
            while self._beginning:
                answer = pool.next(0.0)
                if answer is not None:
                    answer.result()
                self._beginning -= 1
        except TimeoutError:
            return False
        except Exception:
            self._end_successor()
            raise
        return True

    def _end_successor(self) -> None:
        if self.successor is not None:
            self.successor.close()
            self.successor = None

    def _end_leaving(self) -> None:
        while self._leaving:
            self._leaving.popleft().close()
        self._dealt.clear()
