"""Iterates over a torch loader with ``num_workers="auto"``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gristmill._engine.auto_run import AutoWorkers, ChosenWorkers
from gristmill._engine.auto_workers import NO_LIMIT
from gristmill._torch.indices import requests
from gristmill._torch.iterators.multi_process import MultiProcessIterator

if TYPE_CHECKING:
    from gristmill._torch.iterators.early_requests import EarlyRequests
    from gristmill._torch.resume.workers_position import WorkersPosition
    from gristmill._torch.workers.resizable_pool import ResizablePool


class AutoCount(int):
    """The `num_workers` of a loader with "auto", whose turns and states have 1 worker.

    Programs that make a loader like another one pass it on.
    """

    def __repr__(self) -> str:
        return "'auto'"


class AutoMultiProcessIterator(MultiProcessIterator):
    """Changes the number of its workers by what the program waits for.

    Workers are seeded before each batch, by its number, so that random draws do not
    depend on the number of workers.
    """

    def __init__(
        self, loader: Any, chosen: ChosenWorkers, position: WorkersPosition | None
    ) -> None:
        if position is not None and position.has_states:
            raise ValueError(
                'num_workers="auto" needs a dataset without a state: its copy in each'
                " worker would have its own. Pass a number of workers."
            )
        self._auto = AutoWorkers(chosen, NO_LIMIT)
        # The epoch and the number of the next batch to request.
        self._next_draws = (0, 0)
        super().__init__(loader, position)
        if self._pool is not None and chosen.count > 1:
            self.resize(chosen.count)

    @property
    def is_changing(self) -> bool:
        """True while other workers start that will replace the present ones."""
        return self._pool is not None and self._pool.successor is not None

    def resize(self, count: int) -> None:
        """Start other workers; called by `AutoWorkers`."""
        super().set_workers(count)

    def set_workers(self, count: int) -> None:
        """Change the number of workers, which then stays; see `MultiProcessIterator`.

        Args:
            count: Worker processes, at least 1.
        """
        super().set_workers(count)
        self._auto.stop(f"set_workers({count}) was called")

    def _next_data(self) -> Any:
        asked_ns = time.perf_counter_ns()
        batch = super()._next_data()
        self._auto.count_output(self, asked_ns, time.perf_counter_ns())
        return batch

    def _send_first_requests(self, pool: ResizablePool, early_count: int = 0) -> None:
        first = 0 if self._position is None else self._position.first_batch
        self._next_draws = (self._epoch, first + early_count)
        super()._send_first_requests(pool, early_count)

    def _send_early_request(self, pool: ResizablePool, early: EarlyRequests) -> None:
        draws, early_draws = self._next_draws, (self._epoch + 1, len(early.sent_keys))
        self._next_draws = early_draws
        super()._send_early_request(pool, early)
        self._next_draws = draws

    def _send(
        self, pool: ResizablePool, worker: int, keys: Any, draw_epoch: int
    ) -> None:
        epoch, number = self._next_draws
        self._next_draws = (epoch, number + 1)
        super()._send(pool, worker, requests.Seeded(keys, epoch, number), draw_epoch)
