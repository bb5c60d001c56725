"""Grain's DataLoader: a source, a sampler and operations, iterated in order."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Never, Unpack, overload

import numpy.typing as npt

from gristmill import samplers, sharding, sources, transforms
from gristmill._base.argument_checks import check_flag
from gristmill._base.lazy_names import public_names
from gristmill._base.torch_names import OF_LOAD, OF_LOADER, reject_torch_names
from gristmill._base.types import Array, D, K, S, Scalar, T, WorkerInitFn
from gristmill._engine import arguments, compilation
from gristmill._engine import state as states
from gristmill._engine.auto_run import AutoRun, start_choice
from gristmill._engine.local import LocalRun
from gristmill._engine.no_output import warn_of_no_output
from gristmill._engine.record_errors import ErrorCounter
from gristmill._engine.remote import RemoteOptions, RemoteRun
from gristmill._engine.workers import WorkerBackend, check_backend
from gristmill.bad_records import ErrorPolicy, OnError
from gristmill.loader._epochs import Epochs
from gristmill.loader._iterator import DataLoaderIterator
from gristmill.loader._load_arguments import Batching, Loading
from gristmill.loader._reportable import Reportable
from gristmill.loader._source_text import text_in_states
from gristmill.loader._worker_counts import WorkerCounts
from gristmill.operations import Operation
from gristmill.options import (
    AUTO_STREAMS,
    MultiprocessingOptions,
    ReadOptions,
    WorkerCount,
)
from gristmill.sources import Columns, RandomAccessDataSource
from gristmill.sources._checks import length_of

__all__ = ["DataLoader", "DataLoaderIterator", "load"]

_NO_SHARDING = sharding.NoSharding()


class DataLoader(Epochs, WorkerCounts, Reportable[T]):
    """Reads records in the sampler's order and runs operations on them.

    Iterating returns the outputs of the last operation.  With ``Batch(B)`` an array
    leaf of shape ``S`` becomes one of shape ``(B, *S)``; the last batch may be shorter.
    ``len(loader)`` is the number of outputs.  It raises TypeError if a filter, a
    flat-map, ``on_error="skip"`` or an endless sampler leaves the number open.
    Order, random draws and checkpoints are Grain's: with ``worker_count=W`` the
    elements form ``max(W, 1)`` interleaved streams, and stream ``w`` takes elements
    ``w, w+W, w+2W, ...`` through all operations, batching included.

    Args:
        data_source: Has ``__len__`` and ``__getitem__(int)``, or is a dict of arrays.
        sampler: Chooses the record at each position.
        operations: Transformations, run in this order on every record.
        worker_count: Processes that compute; 0 for this one, None for one per core.
            "auto" starts one, and adds or ends some while the consumer waits, or does
            not, within the cores and the memory; `report()` explains it.
        worker_buffer_size: Outputs a worker computes ahead, besides its current two.
        shard_options: The part of the data to read; by default the sampler's.
        read_options: Threads that read ahead from a slow source.
        enable_profiling: Whether to log the time that the caller waited, at the end.
        streams: Interleaved streams that define the order, by default
            ``max(worker_count, 1)``.  Set it for the same order with any worker count.
            With "auto" it is 1, or 8 if only one worker can compute each stream: after
            a filter or a flat-map, with ``on_error="skip"``, and from URLs.
        max_restarts: Number of times to retry an element that killed its worker.
        stall_timeout: Seconds without an output after which a warning names the
            worker, its record and its Python stack.  None never warns.
        stall_action: "warn", or "restart" to also kill the worker and start another.
        memory_limit: Bytes of shared memory that outputs may take, kept ones
            included; by default 80 % of the available memory.
        on_error: What to do if a record cannot be read, or a step before the first
            batch raises.  "raise" raises the exception.  "skip" drops the record, like
            a filter: one worker computes each stream, and a stream that skips 1000
            records in a row passes its turn.  "substitute" replaces it by another
            record of the stream, which gets its index and random numbers: the first
            good one of the next 8, else one 16, 32, 64, ... after it, then any, 1024 in
            all.  If all fail, it raises TooManyErrors.  States count bad records.
        max_errors: Bad records that an iterator accepts, None for any number.  One
            more raises TooManyErrors before the output that it belongs to, or instead
            of it if that output alone has too many.  The next call continues.
        quarantine: Path of a log.  Each bad record adds a line of JSON when its output
            is delivered, and another one if that is repeated from an older state.
        workers: A `gristmill.ray.RayWorkers` to use instead of local processes.
        worker_init_fn: Called with (worker, workers) in each worker before all else.

    Raises:
        ValueError: An argument is out of range; TypeError if it has the wrong type.

    Example:
        >>> source, sampler = np.arange(5) * 10, samplers.SequentialSampler(5)
        >>> pairs = [transforms.Batch(2)]
        >>> loader = DataLoader(data_source=source, sampler=sampler, operations=pairs)
        >>> [batch.tolist() for batch in loader]
        [[0, 10], [20, 30], [40]]
    """

    # Whether `load` made it, whose `shard_options` are those of the sampler.
    _shards_sampler = False

    @reject_torch_names(OF_LOADER)
    def __init__(  # noqa: PLR0913 (Grain's arguments, and ours)
        self,
        *,
        data_source: RandomAccessDataSource[Any] | Columns,
        sampler: samplers.Sampler,
        operations: Sequence[transforms.AnyTransform | Operation] = (),
        worker_count: WorkerCount | None = 0,
        worker_buffer_size: int = 1,
        shard_options: sharding.ShardOptions | None = None,
        read_options: ReadOptions | None = None,
        enable_profiling: bool = False,
        streams: int | None = None,
        max_restarts: int = 1,
        stall_timeout: float | None = 60.0,
        stall_action: str = "warn",
        memory_limit: int | None = None,
        on_error: OnError = "raise",
        max_errors: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        workers: WorkerBackend | None = None,
        worker_init_fn: WorkerInitFn | None = None,
    ) -> None:
        count = arguments.check_worker_count(worker_count)
        check_backend(workers)
        arguments.check_counts(worker_buffer_size, streams, max_restarts)
        check_flag("enable_profiling", enable_profiling)
        self._error_policy = ErrorPolicy(on_error, max_errors, quarantine)
        self._explicit_streams = streams
        self._worker_init_fn = worker_init_fn
        self._data_source = data_source
        self._sampler = sampler
        self._operations = arguments.check_operations(operations)
        self._read_options = read_options or ReadOptions()
        self._multiprocessing_options = MultiprocessingOptions(
            count, worker_buffer_size, enable_profiling
        )
        self._chosen = start_choice("worker_count", count, workers)
        self._remote = RemoteOptions(
            workers=1 if count == "auto" else count,
            buffer=int(worker_buffer_size),
            max_restarts=int(max_restarts),
            memory_limit=arguments.check_memory_limit(memory_limit),
            stall_timeout=arguments.check_stall_timeout(stall_timeout),
            stall_action=arguments.check_stall_action(stall_action),
            backend=workers,
        )
        self._shard_options = arguments.check_shard_options(shard_options, sampler)
        arguments.check_readers(sampler, read_options)
        self._program = self._compile_first(streams)
        arguments.check_ranks(
            sampler, self._shard_options, self._operations, self._program.streams
        )
        arguments.check_records(sampler, self._program.source)
        self._pipeline = states.SavedPipeline(
            program=self._program,
            sampler=repr(sampler),
            data_source=text_in_states(data_source, self._program.source),
            differs_from_grain=compilation.differs_from_grain(sampler),
        )
        warn_of_no_output(self._program, self._operations)
        self._watch_epochs(self._operations)

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions:
        """Worker count and buffer size."""
        return self._multiprocessing_options

    def __iter__(self) -> DataLoaderIterator[T]:
        return self._register(DataLoaderIterator(self, None))

    def __len__(self) -> int:
        return compilation.count_outputs(self._program, self._operations)

    def __bool__(self) -> bool:
        # Like Grain.  Without this method, `bool` would call `len`, which may raise.
        return True

    def replay(self, state: bytes) -> T:
        """Compute the output after a state again, here, and advance no iterator.

        Args:
            state: A state that ``get_state()`` returned.

        Returns:
            The output, a new object.

        Raises:
            StopIteration: The state is at the end.
        """
        position = self._restore(state)
        # Only the iterator counts bad records.
        program = dataclasses.replace(self._program_for(position), max_errors=None)
        run = LocalRun(program, position, None)
        try:
            output: T = run.next()
        finally:
            run.close()
        return output

    def _compile_first(self, streams: int | None) -> compilation.LoaderProgram:
        """Return the program for the argument `streams`."""
        program = self._compile(int(streams or max(self._remote.workers, 1)))
        if self._chosen is not None and streams is None and program.owned:
            return self._compile(AUTO_STREAMS)
        return program

    def _compile(self, streams: int) -> compilation.LoaderProgram:
        """Return the program for epoch 0 with a number of streams."""
        return compilation.compile_program(
            source=self._data_source,
            sampler=self._sampler,
            shard=self._shard_options,
            operations=self._operations,
            streams=streams,
            read_options=self._read_options,
            policy=self._error_policy,
            worker_init_fn=self._worker_init_fn,
        )

    def _restore(self, state: bytes, validate: bool = True) -> states.RunPosition:
        """Return the position in a state; check its number of streams."""
        position = states.decode(self._pipeline, state, validate)
        states.check_streams(position, self._explicit_streams)
        return position

    def _program_for(self, position: states.RunPosition) -> compilation.LoaderProgram:
        """Return the program with the streams and the epoch of a position."""
        same = position.streams == self._program.streams
        program = self._program if same else self._compile(position.streams)
        return compilation.in_epoch(program, position.epoch)

    def _run(
        self, position: states.RunPosition, counter: ErrorCounter
    ) -> LocalRun | RemoteRun:
        """Return a run that begins at a position, which it may change."""
        program = self._program_for(position)
        if self._remote.workers == 0 and self._remote.backend is None:
            return LocalRun(program, position, counter, program.computes_ahead)
        if self._chosen is not None:
            return AutoRun(program, position, self._remote, self._chosen, counter)
        return RemoteRun(program, position, self._remote, counter)


@overload
def load(
    source: Columns, *, batch_size: None = None, **how: Unpack[Loading]
) -> DataLoader[dict[str, Any]]: ...


@overload
def load(
    source: Columns, **how: Unpack[Batching]
) -> DataLoader[dict[str, npt.NDArray[Any]]]: ...


# Any matches Never, so a source of unknown type selects this overload.
@overload
def load(
    source: RandomAccessDataSource[Never], **how: Unpack[Batching]
) -> DataLoader[Any]: ...


@overload
def load(
    source: RandomAccessDataSource[S],
    *,
    batch_size: None = None,
    **how: Unpack[Loading],
) -> DataLoader[S]: ...


@overload
def load(
    source: RandomAccessDataSource[Array[D]], **how: Unpack[Batching]
) -> DataLoader[npt.NDArray[D]]: ...


@overload
def load(
    source: RandomAccessDataSource[Scalar], **how: Unpack[Batching]
) -> DataLoader[npt.NDArray[Any]]: ...


@overload
def load(
    source: RandomAccessDataSource[dict[K, Never]], **how: Unpack[Batching]
) -> DataLoader[dict[K, Any]]: ...


@overload
def load(
    source: RandomAccessDataSource[dict[K, Array[D]]], **how: Unpack[Batching]
) -> DataLoader[dict[K, npt.NDArray[D]]]: ...


@overload
def load(
    source: RandomAccessDataSource[Any] | Columns,
    *,
    num_epochs: int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    shard_options: sharding.ShardOptions = ...,
    transformations: Sequence[transforms.AnyTransform | Operation] = (),
    batch_size: int | None = None,
    drop_remainder: bool = False,
    worker_count: WorkerCount | None = 0,
    read_options: ReadOptions | None = None,
    workers: WorkerBackend | None = None,
    worker_init_fn: WorkerInitFn | None = None,
) -> DataLoader[Any]: ...


@reject_torch_names(OF_LOAD)
def load(  # noqa: PLR0913 (Grain's arguments)
    source: Any,
    *,
    num_epochs: int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    shard_options: sharding.ShardOptions = _NO_SHARDING,
    transformations: Sequence[Any] = (),
    batch_size: int | None = None,
    drop_remainder: bool = False,
    worker_count: WorkerCount | None = 0,
    read_options: ReadOptions | None = None,
    workers: WorkerBackend | None = None,
    worker_init_fn: WorkerInitFn | None = None,
) -> DataLoader[Any]:
    """Make a `DataLoader` over `source` with an `IndexSampler`.

    Args:
        source: See `DataLoader`.
        num_epochs: Times to go through the data; None for no end.
        shuffle: Whether each epoch has its own random order.
        seed: The seed of the order and of random transformations.
        shard_options: The part of the data to read; all of it by default.
        transformations: See `DataLoader`.
        batch_size: Elements per batch; None leaves them single.
        drop_remainder: Whether to leave out a last, shorter batch.
        worker_count: See `DataLoader`.
        read_options: See `DataLoader`.
        workers: See `DataLoader`.
        worker_init_fn: See `DataLoader`.

    Returns:
        The loader, which can be iterated over any number of times.

    Raises:
        ValueError: An argument is out of range; TypeError if it has the wrong type.

    Example:
        >>> loader = load(np.arange(5) * 10, batch_size=2, num_epochs=1)
        >>> [batch.tolist() for batch in loader]
        [[0, 10], [20, 30], [40]]
    """
    operations = arguments.check_operations(transformations, "transformations")
    check_flag("drop_remainder", drop_remainder)
    sampler = samplers.IndexSampler(
        num_records=length_of(sources.as_source(source)),
        shuffle=shuffle,
        seed=seed,
        num_epochs=num_epochs,
        shard_options=shard_options,
    )
    if batch_size is not None:
        operations.append(transforms.Batch(batch_size, drop_remainder=drop_remainder))
    loader: DataLoader[Any] = DataLoader(
        data_source=source,
        sampler=sampler,
        operations=operations,
        worker_count=worker_count,
        read_options=read_options,
        workers=workers,
        worker_init_fn=worker_init_fn,
    )
    loader._shards_sampler = True
    return loader


def __dir__() -> list[str]:
    return public_names(__all__)
