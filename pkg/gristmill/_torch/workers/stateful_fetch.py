"""What the workers of a stateful loader run: with batches they send their states."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

from gristmill._torch import layout
from gristmill._torch.indices import generators, requests
from gristmill._torch.layout import State
from gristmill._torch.private import ExceptionWrapper
from gristmill._torch.workers.fetch import Exhausted, FetchProgram, FetchStream


@dataclasses.dataclass(frozen=True)
class StatefulFetchProgram(FetchProgram):
    """A `FetchProgram` whose workers have states.

    Attributes:
        states: What each worker begins with, None for what its dataset is.
    """

    states: tuple[State | None, ...] = ()

    stateful = True

    def open_stream(self, stream: int, at: int = 0) -> StatefulFetchStream:
        """What a worker runs."""
        return StatefulFetchStream(self, stream, self.states[stream])


class StatefulFetchStream(FetchStream):
    """Answers with pairs of a batch and this worker's state, pickled, or None.

    Args:
        program: What it runs.
        worker: Its number.
        state: What it begins its first epoch with.
    """

    def __init__(
        self, program: StatefulFetchProgram, worker: int, state: State | None
    ) -> None:
        self._state = state
        super().__init__(program, worker)

    def _fetch(self, request: Any) -> tuple[Any, bytes | None]:
        if isinstance(request, requests.Generators):
            return self._exchanged(request.wanted), None
        with_state = isinstance(request, requests.WithState)
        data = super()._fetch(request.request if with_state else request)
        if not with_state and not isinstance(data, Exhausted):
            return data, None
        try:
            return data, self._pickled_state()
        except Exception:
            failed = isinstance(data, ExceptionWrapper)
            return data if failed else self._failure(), None

    def _exchanged(self, wanted: Any) -> dict[str, Any]:
        found = generators.states()
        if wanted is not None:
            generators.restore(wanted)
        return found

    def _new_fetcher(self) -> Any:
        """Restored, if this is the first epoch: the dataset, then its iteration."""
        state = self._state if self._epoch == 0 else None
        if state is None:
            return super()._new_fetcher()
        layout.restore(self._dataset, state[layout.DATASET_STATE])
        fetcher = super()._new_fetcher()
        of_fetcher = state[layout.FETCHER_STATE]
        if of_fetcher is not None and self._program.iterable:
            # One that had ended says so again when it is asked.
            layout.restore(fetcher.dataset_iter, of_fetcher[layout.DATASET_ITER_STATE])
        return fetcher

    def _pickled_state(self) -> bytes:
        state = {
            layout.WORKER_ID: self._worker,
            **layout.dataset_states(self._dataset, self._fetcher),
        }
        return pickle.dumps(state, 5)
