"""The iterator of a `DataLoader`."""

from __future__ import annotations

import collections.abc
import copy
import dataclasses
import json
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from gristmill import checkpoint, monitoring
from gristmill._base import log
from gristmill._base.latest_iterators import set_latest
from gristmill._base.object_repr import call_text
from gristmill._base.trials import NotTriedError
from gristmill._base.types import T
from gristmill._engine import state as states
from gristmill._engine.auto_run import ChosenWorkers
from gristmill._engine.compilation import LoaderProgram
from gristmill._engine.local import LocalRun
from gristmill._engine.record_errors import ErrorCounter
from gristmill._engine.remote import RemoteOptions, RemoteRun
from gristmill._engine.tracebacks import cut_own_frames
from gristmill._engine.workers import check_workers
from gristmill._observe.watch import Watch
from gristmill.bad_records import BadRecords, ErrorPolicy
from gristmill.options import MultiprocessingOptions, ReadOptions

if TYPE_CHECKING:
    from gristmill._base.report import Report
    from gristmill._base.source_counts import SourceCount


class IteratedLoader(Protocol):
    """The part of a `DataLoader` that its iterators and trials use."""

    _pipeline: states.SavedPipeline
    _program: LoaderProgram
    _error_policy: ErrorPolicy
    _read_options: ReadOptions
    _remote: RemoteOptions
    _explicit_streams: int | None

    _chosen: ChosenWorkers | None

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions: ...
    @property
    def _worker_count_of_states(self) -> int: ...
    @property
    def _epoch(self) -> int: ...
    def _compile(self, streams: int) -> LoaderProgram: ...
    def _restore(self, state: bytes, validate: bool = True) -> states.RunPosition: ...
    def _run(
        self, position: states.RunPosition, counter: ErrorCounter
    ) -> LocalRun | RemoteRun: ...


class DataLoaderIterator(checkpoint.Checkpointable, collections.abc.Iterator[T]):
    """Iterates over a `DataLoader`; its position can be saved and restored.

    Not thread-safe.  The caller owns batches, and all outputs of workers, and may
    change them.  Without batches and workers, an element is the object that the source
    returned.

    Args:
        data_loader: The loader.
        state: The start: a state's JSON object, or None for the beginning.
        validate_state: Whether a state must name this sampler and data source.  It
            must always be a position of these operations.

    Raises:
        StateMismatch: The state belongs to another pipeline.

    Example:
        >>> iterator = iter(gristmill.load(range(10), batch_size=2))
        >>> first, state = next(iterator), iterator.get_state()
        >>> expected = next(iterator)
        >>> iterator.set_state(state)
        >>> next(iterator).tolist() == expected.tolist() == [2, 3]
        True
    """

    # True after `set_state`.  `PassStart` then does not warn of a repeated epoch.
    _from_state = False
    # Counts from the last call of `consumed` on; None before the first one.
    _consumed_counter: Any = None

    def __init__(
        self,
        data_loader: IteratedLoader,
        state: dict[str, Any] | None,
        validate_state: bool = True,
    ) -> None:
        self._data_loader = data_loader
        self._validate_state = validate_state
        pipeline, program = data_loader._pipeline, data_loader._program
        workers = data_loader._worker_count_of_states
        self._error_counter = ErrorCounter(
            data_loader._error_policy, pipeline.data_source
        )
        epoch = data_loader._epoch
        start = pipeline.origin(workers, program.streams, epoch)
        self._run = data_loader._run(start, self._error_counter)
        if state is not None:
            self.set_state(json.dumps(state, indent=4).encode())
        # With profiling, the time of all calls is logged at the end, so time each call.
        samples = not data_loader.multiprocessing_options.enable_profiling
        self._watch = Watch(
            self, monitoring.record_get_next, times_periodically=samples
        )
        set_latest(data_loader, self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        watch = self._watch
        watch.calls_until_timed -= 1
        try:
            if watch.calls_until_timed > 0:
                output: T = self._run.next()
            else:
                output = watch.call(self, lambda iterator: iterator._run.next())
        except StopIteration:
            if self._data_loader.multiprocessing_options.enable_profiling:
                watch.count(self)
                log.warning(
                    "%d outputs, waited %.3f s in total",
                    watch.outputs,
                    watch.total_ns / 1e9,
                )
            raise
        except BaseException as error:
            cut_own_frames(error)
            raise
        return output

    def get_state(self) -> bytes:
        """Return the position as JSON text: a few integers, and no computed outputs."""
        return states.encode(self._data_loader._pipeline, self._run.position)

    def set_state(self, state: bytes) -> None:
        """Continue after the output at which `get_state` returned `state`.

        No outputs are computed again.  The worker count may differ from the one when
        the state was saved; the order of elements is that of the state.

        Args:
            state: The result of `get_state` of an iterator over an equal loader.

        Raises:
            StateMismatch: The state belongs to another pipeline.
            IndexError: The state points past the end of the data.
        """
        position = self._data_loader._restore(state, self._validate_state)
        self._from_state = True
        self._error_counter.restore_count(position.errors)
        current = self._run.position
        # A run belongs to one program, which depends on both of these.
        if (position.streams, position.epoch) == (current.streams, current.epoch):
            self._run.go_to(position)
            return
        self._run.close()
        self._run = self._data_loader._run(position, self._error_counter)

    def start_prefetch(self) -> None:
        """Start computing in the background, before the first ``next``."""
        self._run.start_prefetch()

    def set_workers(self, count: int) -> None:
        """Change the number of workers that compute the next outputs.

        Elements, order and states stay the same, since the loader's streams define
        them.  The current workers continue until the new ones have started, so `next`
        does not wait for these.  The new workers compute outputs again that the current
        ones have computed ahead.  With ``worker_count="auto"``, the number then stays.

        Args:
            count: The number of processes, or of actors with a
                `gristmill.ray.RayWorkers`; at least 1.

        Raises:
            ValueError: It is less than 1, or the loader computes in this process.
        """
        check_workers(count)
        if isinstance(self._run, LocalRun):
            raise ValueError(
                "set_workers needs a loader with workers, but this one has"
                " worker_count=0. Make one with worker_count=1, and with streams=1 for"
                " the same order."
            )
        self._run.set_workers(int(count))

    def ids(self) -> npt.NDArray[np.int64]:
        """Return the keys of the last output's records, int64 of shape (k,)."""
        return self._run.keys.copy()

    @property
    def errors(self) -> BadRecords:
        """The records that were skipped or substituted: their number, and the last."""
        return self._error_counter.bad_records

    def consumed(
        self, lengths: collections.abc.Mapping[str, Any] | None = None
    ) -> dict[str, SourceCount]:
        """Count what was delivered so far from the source.

        The numbers follow from the state, for any number of workers.  They are those of
        this shard and this iterator alone: add up those of all shards.  Records that a
        filter or `on_error` left out count.  Padding does not, nor do elements that
        wait in buckets.  After filters, flat maps and buckets, and with
        ``on_error="skip"``, records of a last batch that ``drop_remainder`` drops
        count.

        Args:
            lengths: The tokens of each record, ints of shape (n,), by the name of the
                source: its attribute ``name``, else its text.  By default those that
                its method ``lengths()`` returns, if it has one.  Pass the same object
                in each call, which then counts only what was delivered since the last.

        Returns:
            A `SourceCount` with ``elements``, ``tokens`` and ``epochs`` for the name of
            the source.  Metrics and ``gristmill top`` show the last result.

        Raises:
            ValueError: `lengths` does not fit the source.
            TypeError: An operation holds back records that no state describes.

        Example:
            >>> iterator = iter(gristmill.load([7, 8, 9, 10], batch_size=3))
            >>> batch = next(iterator)
            >>> iterator.consumed()["[7, 8, 9, 10]"].epochs
            0.75
        """
        from gristmill._observe.accounting import consumed_of

        return consumed_of(self, lengths)

    def _new_counter(self, lengths: collections.abc.Mapping[str, Any] | None) -> Any:
        """Return the counter of `consumed`."""
        from gristmill.loader._consumed import LoaderCounter  # Imports datasets.

        return LoaderCounter(self._data_loader, lengths)

    def report(self, verify: bool = False, seconds: float = 2.0) -> Report:
        """Return a report of what limits the speed, and which changes would help.

        It is based on the times of calls of ``next`` and, for some outputs, of each
        stage: reading, each operation by name, batching, and moving outputs from
        workers.

        Args:
            verify: Whether to try changes, for up to five times `seconds`.  New
                iterators run the pipeline unchanged, with outputs from a cache, with
                one more worker, and with each change that `Report.untried` would name.
                This iterator keeps its position.
            seconds: The time for each of these runs, in s.

        Returns:
            A `Report`.  Its `checks` are the changes that were tried, and its `advice`
            names those that helped.

        Raises:
            ValueError: `seconds` is not positive.

        Example:
            >>> iterator = iter(gristmill.load(range(100), batch_size=10, num_epochs=1))
            >>> for batch in iterator:
            ...     pass
            >>> iterator.report().outputs
            10
        """
        from gristmill._observe.reporting import report_of

        return report_of(self, verify, seconds)

    @property
    def _reading_threads(self) -> int:
        """The threads that read ahead, for the reports of `_observe`."""
        return int(self._data_loader._read_options.num_threads)

    def _trial(self) -> LoaderTrial:
        """Return the trial of this iterator's loader, for `report` with `verify`."""
        return LoaderTrial(self._data_loader, self)

    def close(self) -> None:
        """End the workers now, not when the iterator is garbage-collected.

        The position is kept: `next` starts workers again and continues from it.
        """
        self._run.close()

    def __repr__(self) -> str:
        return call_text(self, self._data_loader)

    def __str__(self) -> str:
        return f"PyGrainDatasetIterator(state={self.get_state().decode()})"


class LoaderTrial:
    """A `gristmill._observe.verification.Trial` of a loader.

    Args:
        data_loader: The loader.
        iterator: The user's iterator, whose state is the start; None for the beginning.
    """

    def __init__(
        self, data_loader: IteratedLoader, iterator: DataLoaderIterator[Any] | None
    ) -> None:
        # See `Trial.workers`.  A user's iterator may have changed its number.
        chosen = data_loader._chosen
        self.workers = data_loader._remote.workers if chosen is None else chosen.count
        self._state = None
        if iterator is not None:
            self.workers = iterator._run.workers
            self._state = json.loads(iterator.get_state())
        if data_loader._remote.backend is not None:
            self.workers = 0  # No worker runs on this machine.
        loader = copy.copy(data_loader)
        if not getattr(loader._remote.backend, "allows_copies", True):
            loader._remote = dataclasses.replace(loader._remote, backend=None)
            self.workers = loader._remote.workers
        policy = loader._error_policy
        # Bad records of a trial are not written to the quarantine file.
        loader._error_policy = ErrorPolicy(policy.on_error, policy.max_errors, None)
        loader._chosen = None  # The trial compares fixed numbers.
        self._loader = loader

    def open(
        self, extra_workers: int, from_position: bool, threads: int | None = None
    ) -> DataLoaderIterator[Any]:
        # See `Trial.open` for the arguments.  Only this copy of the loader changes.
        loader = copy.copy(self._loader)
        if threads is not None:
            size = max(loader._read_options.prefetch_buffer_size, threads)
            loader._read_options = ReadOptions(threads, size)
            loader._program = loader._compile(loader._program.streams)
        if loader._remote.backend is not None and extra_workers:
            raise NotTriedError("actors of a cluster compute.")
        workers = self.workers + extra_workers
        loader._remote = dataclasses.replace(loader._remote, workers=workers)
        state = self._state if from_position else None
        if (
            extra_workers
            and loader._program.owned
            and workers > loader._program.streams
        ):
            if loader._explicit_streams is not None:
                streams = loader._explicit_streams
                raise NotTriedError(f"each of the {streams} streams needs one worker.")
            # Each owned stream has one worker, so the trial has more streams, to which
            # the state does not apply.
            loader._program = loader._compile(workers)
            state = None
        return DataLoaderIterator(loader, state, validate_state=False)

    def close(self, iterator: DataLoaderIterator[Any]) -> None:
        iterator.close()

    def encode_output(self, output: Any) -> Any:
        return output

    def decode_output(self, sent: Any) -> Any:
        return sent
