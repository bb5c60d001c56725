"""The workers of one iterator, whose number may change while it runs.

An iterator keeps its original worker numbers until it ends, for turns and states.  If a
different number of workers runs, requests are assigned to these in turn.
"""

from __future__ import annotations

import collections
import threading
from typing import Any

from gristmill._engine.worker_stats import LocalStats, RemoteStats
from gristmill._torch.indices import requests
from gristmill._torch.workers.fetch import FetchProgram
from gristmill._torch.workers.pool import Answer, WorkerPool


class ResizablePool:
    """Sends requests to a `WorkerPool`, and replaces it by another one on demand.

    The old pool still answers its requests, so nothing is computed twice.

    The iterator's thread calls all methods except two.  `PinThread` may call `next` at
    the same time, even during `close`, and any thread may call `set_workers`.
    `_successor_lock` protects changes of `successor` and `_unstarted_workers`.  Only
    the iterator's thread replaces `_pool`, and appends to the deques.  `next`,
    `close` and `reset` remove from these.  Both operations are atomic.

    Args:
        program: What the workers run, and the iterator's number of workers.
        loader: The loader, whose options `WorkerPool` reads.
        window: The maximum number of unanswered requests.

    Attributes:
        successor: The pool that `switch_to_successor` switches to when its workers have
            started; None if there is none.
    """

    def __init__(self, program: FetchProgram, loader: Any, window: int) -> None:
        # The number of workers in the iterator's requests and answers.
        self._iterator_workers = program.workers
        self._pool = WorkerPool(program, loader, window)
        # Old pools that still have requests to answer, oldest first.
        self._old_pools: collections.deque[WorkerPool] = collections.deque()
        # The iterator's worker number of each unanswered request that a worker with
        # another number computes.  `next` removes the oldest.
        self._request_workers: collections.deque[int] = collections.deque()
        # The number of requests that `_pool` assigned to other worker numbers.
        self._reassigned_count = 0
        # Replaces `_pool` when all of its workers have answered their first request.
        self.successor: WorkerPool | None = None
        # The number of its workers that have not answered their first request.
        self._unstarted_workers = 0
        self._successor_lock = threading.Lock()

    @property
    def workers(self) -> int:
        """The number of workers that get requests."""
        return self._pool.workers

    @property
    def processes(self) -> list[Any]:
        """The processes of the workers that get requests, by number."""
        return self._pool.processes

    def start(self) -> None:
        """Start the workers, see `WorkerPool.start`."""
        self._pool.start()

    def usage(self) -> LocalStats | RemoteStats | None:
        """Return the measured times of the current pool, see `WorkerPool.usage`."""
        return self._pool.usage()

    def set_workers(self, count: int, window: int) -> None:
        """Start `count` workers, for `switch_to_successor` to switch to.

        They replace a successor that has not been switched to.  Does nothing after
        `close`.
        """
        with self._successor_lock:
            self._end_successor()
            if self._pool.closed or count == self._pool.workers:
                return
            successor = self._pool.make_successor(count, window)
            try:
                successor.start()
                # Of size 0: the workers answer it as soon as they have started, with
                # their error if they could not start.
                for worker in range(count):
                    successor.send(worker, requests.NextBatch(0, 0, 0, None))
            except BaseException:
                successor.close()
                raise
            self.successor, self._unstarted_workers = successor, count

    def switch_to_successor(self) -> bool:
        """Switch to the successor if all its workers have started; return whether so.

        Raises:
            Exception: One of its workers could not start. The present pool continues.
        """
        with self._successor_lock:
            successor = self.successor
            if successor is None or not self._receive_first_answers(successor):
                return False
            # Before `_pool` is set, because `next` may run in another thread.
            self._old_pools.append(self._pool)
            self._pool, self.successor = successor, None
            self._reassigned_count = 0
            return True

    def request_batch(
        self, worker: int, keys: Any, draw_epoch: int = 0, *, with_state: bool = False
    ) -> None:
        """Request a batch, see `WorkerPool.request_batch`."""
        self._pool.request_batch(
            self._assign_worker(worker), keys, draw_epoch, with_state=with_state
        )

    def send(self, worker: int, request: Any, draw_epoch: int = 0) -> None:
        """Send any request, see `WorkerPool.send`."""
        self._pool.send(self._assign_worker(worker), request, draw_epoch)

    def initial_state_request(self) -> requests.WithState:
        """Return a request for a worker's state before its first batch."""
        return self._pool.initial_state_request()

    def next(self, timeout_s: float | None = None) -> Answer | None:
        """Wait for the next answer, and return it; see `WorkerPool.next`."""
        # Read before `_old_pools`: `switch_to_successor` may run in another thread.
        # The pool is then either still the current one, or found in `_old_pools`.
        current = self._pool
        while True:
            try:
                pool = self._old_pools[0]
            except IndexError:
                pool = current
            answer = pool.next(timeout_s)
            if answer is not None or pool is current:
                break
            # The old pool has answered all of its requests.
            self._close_oldest_pool()
        if answer is None or pool.workers == self._iterator_workers:
            return answer
        return answer._replace(worker=self._request_workers.popleft())

    def reset(self, shared_seed: int | None = None) -> None:
        """Begin a new epoch with the same workers, and drop unanswered requests."""
        self._close_old_pools()
        self._request_workers.clear()
        self._pool.reset(shared_seed)

    def close(self) -> None:
        """End the workers.  Delivered batches stay valid."""
        with self._successor_lock:  # `set_workers` must not start others afterwards.
            self._end_successor()
            self._pool.close()
        self._close_old_pools()

    def _assign_worker(self, worker: int) -> int:
        """Choose the pool's worker for a request to the iterator's `worker`."""
        if self._pool.workers == self._iterator_workers:
            return worker
        self._request_workers.append(worker)
        self._reassigned_count += 1
        return self._reassigned_count % self._pool.workers

    def _receive_first_answers(self, successor: WorkerPool) -> bool:
        """Take the first answers that have arrived; return whether all have.

        If an answer is an error, ends the successor and raises it.  The caller holds
        the lock.
        """
        try:
            while self._unstarted_workers:
                answer = successor.next(0.0)
                if answer is not None:
                    answer.result()
                self._unstarted_workers -= 1
        except TimeoutError:
            return False
        except Exception:
            self._end_successor()
            raise
        return True

    def _end_successor(self) -> None:
        """Close the successor; the caller holds the lock."""
        if self.successor is not None:
            self.successor.close()
            self.successor = None

    def _close_old_pools(self) -> None:
        while self._close_oldest_pool():
            pass

    def _close_oldest_pool(self) -> bool:
        """Close the oldest of the old pools; return False without one."""
        try:
            pool = self._old_pools.popleft()
        except IndexError:  # `next` or `close` in another thread may have removed it.
            return False
        pool.close()
        return True
