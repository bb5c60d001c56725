"""Iterates over a chain of datasets that worker processes compute.

The state is that of Grain's interleaved iterators.  It has the number of streams, so it
can be restored with any number of workers or threads.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

from gristmill._base.types import T
from gristmill._dataset.model.iterator import (
    CheckedIterator,
    DatasetIterator,
    get_next_index,
    set_next_index,
)
from gristmill._dataset.model.names import node_line
from gristmill._dataset.model.node import chain_of
from gristmill._dataset.model.states import copy_state
from gristmill._dataset.parallel.chain_program import START_POSITION, ChainProgram
from gristmill._engine.auto_run import AutoRun, ChosenWorkers
from gristmill._engine.local import LocalRun
from gristmill._engine.record_errors import ErrorCounter
from gristmill._engine.remote import RemoteOptions, RemoteRun
from gristmill._engine.state import RunPosition
from gristmill._engine.stream import Position
from gristmill._engine.workers import WorkerBackend
from gristmill.errors import StateMismatch

# The time without an output before a warning.
STALL_TIMEOUT_S = 60.0
# Number of times to retry an element that killed its worker.
MAX_RESTARTS = 1


class ProcessPrefetchDatasetIterator(CheckedIterator[T]):
    """Iterates over the outputs of streams.

    The first `next` or `start_prefetch` starts the workers.
    """

    def __init__(
        self,
        program: ChainProgram,
        has_fixed_streams: bool,
        buffer: int,
        backend: WorkerBackend | None,
        chosen: ChosenWorkers | None = None,
    ) -> None:
        super().__init__()
        self._ctx.dataset_options = program.options
        self._program = program
        # True if a state must have the same number of streams.
        self._has_fixed_streams = has_fixed_streams
        policy = program.policy
        self._error_counter: ErrorCounter | None = None
        if policy is not None:
            self._error_counter = ErrorCounter(
                policy, node_line([*chain_of(program.dataset)][-1])
            )
        # A worker may compute `buffer` + 2 outputs ahead of the consumer.
        self._buffer = buffer
        self._backend = backend
        # The first number of workers if it follows what the consumer waits for.
        self._chosen = chosen
        # The last argument of `set_workers`; None before the first call.
        self._workers: int | None = None
        self._run: LocalRun | RemoteRun | None = None
        # The position at which the run starts; None after the first `next`, when the
        # run has the position.
        self._start_position: RunPosition | None = RunPosition(
            0, 0, [START_POSITION] * program.streams, [False] * program.streams
        )
        self._ended = False
        self._keeps_run_after_end = False
        # Each stream's state before its first output.  Cached, because computing it
        # creates an iterator.
        self._first_states: dict[int, Any] = {}

    def __next__(self) -> T:
        self._assert_not_closed()
        if self._ended:
            raise StopIteration
        run = self._get_run()
        self._start_position = None
        try:
            element: T = run.next()
        except StopIteration:
            self._ended = True
            if not self._keeps_run_after_end:
                run.close()
            raise
        return element

    def get_state(self) -> Any:
        """Return the state of each stream, and the stream of the next output."""
        position = self._position
        numbers = list(self._program.numbers)
        return {
            "next_index_in_cycle": position.next_stream,
            "next_index_in_datasets": len(numbers),  # All streams are open.
            "iterators_in_use_indices": list(range(len(numbers))),
            "iterators_in_use_states": [
                self._state_of(stream, stream_position)
                for stream, stream_position in enumerate(position.positions)
            ],
            "exhausted": [int(ended) for ended in position.ended],
            "future_states": {},
        }

    def _check_state(self, state: Any) -> None:
        states, _, _ = _split_state(state)
        self._program_for_streams(len(states)).check_states(states)

    def _go_to(self, state: Any) -> None:
        if self._error_counter is not None:
            self._error_counter.restore_count(0)
        # The state sets the number of streams, whatever the number of workers is.
        states, ended, next_stream = _split_state(state)
        if len(states) != self._program.streams:
            if self._run is not None:
                self._run.close()
                self._run = None
            self._first_states.clear()
            self._program = self._program_for_streams(len(states))
        positions = [
            self._program.position_of(stream, state)
            for stream, state in enumerate(states)
        ]
        self._restart_at(RunPosition(0, next_stream, positions, ended))

    def _set_workers(self, workers: int) -> bool:
        if self._program.workers == 0 and self._backend is None:
            return False
        self._workers = workers
        if isinstance(self._run, RemoteRun):
            self._run.set_workers(workers)
        return True

    def start_prefetch(self) -> None:
        if self._closed:
            raise ValueError("Attempting to use a closed iterator. Make a new one.")
        self._get_run().start_prefetch()

    def _release(self) -> None:
        if self._run is not None:
            self._run.close()

    def _abandon(self) -> None:
        # Any thread may close a run in workers.
        if isinstance(self._run, RemoteRun):
            self.close()

    def _keep_after_end(self) -> None:
        self._keeps_run_after_end = True

    def __str__(self) -> str:
        return f"{type(self).__name__}(streams={self._program.streams})"

    @property
    def _position(self) -> RunPosition:
        if self._start_position is not None:
            return self._start_position
        assert self._run is not None
        return self._run.position

    def _get_run(self) -> LocalRun | RemoteRun:
        if self._run is None:
            self._run = self._make_run(_copy(self._position))
        return self._run

    def _make_run(self, position: RunPosition) -> LocalRun | RemoteRun:
        """Make the run that computes the streams from a position on."""
        backend, workers = self._backend, self._workers
        if backend is not None:
            backend = backend if workers is None else backend.resized(workers)
            workers = backend.processes()
        program = self._program_for_workers(
            self._program.workers if workers is None else workers
        )
        if program.workers == 0:
            return LocalRun(program, position, self._error_counter)
        options = RemoteOptions(
            workers=program.workers,
            buffer=self._buffer,
            max_restarts=MAX_RESTARTS,
            memory_limit=0,  # 80 % of the available memory.
            stall_timeout=STALL_TIMEOUT_S,
            stall_action="warn",
            backend=backend,
        )
        if self._chosen is not None and workers is None:
            counter = self._error_counter
            return AutoRun(program, position, options, self._chosen, counter)
        return RemoteRun(program, position, options, self._error_counter)

    def _program_for_workers(self, workers: int) -> ChainProgram:
        """Return the program for a number of workers."""
        # Nodes after this one may have set options since.
        program = dataclasses.replace(
            self._program, options=self._ctx.dataset_options, workers=workers
        )
        if program.owned and self._backend is None:
            # Each stream has one worker, so extra workers would be idle.
            workers = min(workers, program.streams)
        return dataclasses.replace(program, workers=workers)

    def _restart_at(self, position: RunPosition) -> None:
        self._start_position = position
        self._ended = False
        if self._run is not None:
            self._run.go_to(_copy(position))

    def _program_for_streams(self, streams: int) -> ChainProgram:
        """Return the program with another number of streams.

        Raises:
            StateMismatch: The number of streams is fixed.
        """
        program = self._program
        if streams == program.streams:
            return program
        if self._has_fixed_streams or program.parts != program.streams:
            raise StateMismatch(
                f"The state must have {program.streams} streams, as many as the"
                f" dataset, got {streams}. The number of streams defines the order, so"
                " it cannot change within a run: leave `streams` out, or set it to"
                f" {streams}."
            )
        return dataclasses.replace(program, numbers=range(streams), parts=streams)

    def _state_of(self, stream: int, stream_position: Position) -> Any:
        if stream_position != START_POSITION:
            return self._program.state_of(stream, stream_position)
        if stream not in self._first_states:
            self._first_states[stream] = self._program.state_of(stream, stream_position)
        return copy_state(self._first_states[stream])

    def _get_next_index(self) -> int:
        return get_next_index(self._copy_only_stream("get_next_index"))

    def _set_next_index(self, index: int) -> None:
        iterator = self._copy_only_stream("set_next_index")
        set_next_index(iterator, index)
        stream_position = self._program.position_of(0, iterator.get_state())
        self._restart_at(RunPosition(0, 0, [stream_position], [False]))

    def _copy_only_stream(self, function: str) -> DatasetIterator[Any]:
        """Return a new iterator in this process, at the only stream's position."""
        if self._program.streams != 1:
            raise NotImplementedError(
                f"{function} needs an iterator with 1 stream, got {self}. Pass"
                " streams=1 to `mp_prefetch`."
            )
        iterator = self._program.iterator(0)
        (stream_position,) = self._position.positions
        iterator.set_state(self._program.state_of(0, stream_position))
        return iterator


def _copy(position: RunPosition) -> RunPosition:
    """Return a copy of a position, because a run changes the lists of its own."""
    positions, ended = list(position.positions), list(position.ended)
    return dataclasses.replace(position, positions=positions, ended=ended)


def _split_state(state: Any) -> tuple[list[Any], list[bool], int]:
    """Return each stream's state, whether it ended, and the next stream of a state."""
    try:
        indices = list(state["iterators_in_use_indices"])
        states = list(state["iterators_in_use_states"])
        ended = [_as_bool(number) for number in state["exhausted"]]
        next_stream = operator.index(state["next_index_in_cycle"])
        operator.index(state["next_index_in_datasets"])
        future_states = state.get("future_states")
    except (AttributeError, LookupError, TypeError) as error:
        raise StateMismatch(
            "Expected the state of a dataset with `mp_prefetch` or"
            " `multithread_prefetch`: a dict with `iterators_in_use_states`,"
            f" `exhausted` and more; got {state!r:.200}. Restore it to the chain that"
            " saved it. If that chain has no workers, pass `streams` to `mp_prefetch`."
        ) from error
    streams = len(indices)
    has_all_streams = indices == list(range(streams)) and not future_states
    has_same_lengths = len(states) == len(ended) == streams
    if not (has_all_streams and has_same_lengths and 0 <= next_stream < streams):
        raise StateMismatch(
            f"The state must have one position for each of {streams} streams, got"
            f" indices {indices}, {len(states)} states, exhausted {ended}, next"
            f" {next_stream}, future states {future_states!r:.200}. Restore it to the"
            " chain that saved it."
        )
    return states, ended, next_stream


def _as_bool(number: Any) -> bool:
    """Return whether a stream has ended; Grain writes 0 or 1."""
    if operator.index(number) not in (0, 1):
        raise TypeError(f"exhausted has {number}")
    return bool(number)
