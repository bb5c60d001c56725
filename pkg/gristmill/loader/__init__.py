"""Grain's DataLoader: a source, a sampler and operations, iterated in order."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any, Never, Required, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

from gristmill import samplers, sharding, sources, transforms
from gristmill._base.checks import check_flag
from gristmill._base.listing import listed
from gristmill._base.torch_names import OF_LOAD, OF_LOADER, refusing_names_of_torch
from gristmill._base.types import Array, D, K, S, Scalar, T, WorkerInitFn
from gristmill._engine import arguments, compilation
from gristmill._engine import state as states
from gristmill._engine.local import LocalRun
from gristmill._engine.no_output import warn_of_no_output
from gristmill._engine.record_errors import Tally
from gristmill._engine.remote import RemoteOptions, RemoteRun
from gristmill._engine.workers import Place, check_place
from gristmill.bad_records import ErrorPolicy, OnError
from gristmill.loader._epochs import Epochs
from gristmill.loader._iterator import DataLoaderIterator
from gristmill.loader._shown import Shown
from gristmill.operations import Operation
from gristmill.options import MultiprocessingOptions, ReadOptions
from gristmill.sources import Columns, RandomAccessDataSource
from gristmill.sources._checks import length_of
from gristmill.sources._folder import without_place

__all__ = ["DataLoader", "DataLoaderIterator", "load"]

_NO_SHARDING = sharding.NoSharding()


class DataLoader(Epochs, Shown[T]):
    """Reads records in the sampler's order and runs operations on them.

    Iterating gives the elements that leave the last operation.  With ``Batch(B)``
    an array leaf of shape ``S`` and dtype ``D`` becomes one of shape ``(B, *S)``
    and dtype ``D``; the last batch may be shorter.

    ``len(loader)`` is how many these are, and a TypeError where a filter, a flat-map,
    ``on_error="skip"`` or an endless sampler leaves that open.

    Order, random draws and checkpoints are Grain's: with ``worker_count=W`` the
    elements form ``max(W, 1)`` interleaved streams, and stream ``w`` takes elements
    ``w, w+W, w+2W, ...`` through all operations, batching included.

    Args:
        data_source: Anything with ``__len__`` and ``__getitem__(int)``; a NumPy
            array or a dict of arrays of equal length is read natively.
        sampler: Which record comes at each position.
        operations: Transformations, run in this order on every record.
        worker_count: Processes that compute.  0 computes in this process, None
            takes the number of CPU cores.
        worker_buffer_size: Outputs that each worker may be ahead, beyond the two
            that it works on.
        shard_options: Which part of the data this loader reads; by default the
            sampler's.
        read_options: Threads that read ahead from a source that is slow to answer.
        enable_profiling: Log, at the end of the data, how long it was waited for.
        streams: Interleaved streams that define the order, by default
            ``max(worker_count, 1)``.  Set it to get the same elements with any
            ``worker_count``.
        max_restarts: How often an element that killed its worker is tried again.
        stall_timeout: Seconds without an output after which a warning names the
            worker, its record and what it is doing.  None never warns.
        stall_action: "warn", or "restart" to kill the worker then and start another.
        memory_limit: Bytes of shared memory that outputs may take, kept ones
            included; by default 80 % of the memory there is.
        on_error: What becomes of a record that cannot be read, or for which a step
            before the first batch raises.  "raise" raises the exception; "skip"
            leaves the record out, as a filter would, and like with one each stream
            is computed by one worker; "substitute" puts another record of its stream
            in its place, with its index and random numbers, so that there are as
            many elements as without errors: the next good one of the 8 behind it,
            else one 16, 32, 64, ... behind, else any, up to 1024 in all; where they
            fail as well it raises TooManyErrors.  States count both.  A stream that
            skips 1000 and finds nothing else passes its turn.
        max_errors: Bad records that an iterator passes over, None for any number.
            Those of the output that is one too many raise TooManyErrors before it,
            and an output is given up that meets more of them on its own.  Asked
            again, the iterator goes on all the same.
        quarantine: Path of a log, to which a line of JSON is added for each bad
            record when the output that it would have been in is delivered: again
            after going back to an older state.
        workers: Where workers run, a `gristmill.ray.RayWorkers`; by default they are
            `worker_count` processes of this machine.  The order is as without:
            `worker_count` and `streams` say it.
        worker_init_fn: Called with (worker, workers) first in each worker, if any.

    Raises:
        ValueError: An argument is out of range.
        TypeError: An argument has the wrong type.

    Example:
        >>> sampler = samplers.SequentialSampler(5)
        >>> loader = DataLoader(
        ...     data_source=np.arange(5) * 10,
        ...     sampler=sampler,
        ...     operations=[transforms.Batch(2)],
        ... )
        >>> [batch.tolist() for batch in loader]
        [[0, 10], [20, 30], [40]]
    """

    @refusing_names_of_torch(OF_LOADER)
    def __init__(  # noqa: PLR0913 (Grain's arguments, and ours)
        self,
        *,
        data_source: RandomAccessDataSource[Any] | Columns,
        sampler: samplers.Sampler,
        operations: Sequence[transforms.AnyTransform | Operation] = (),
        worker_count: int | None = 0,
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
        workers: Place | None = None,
        worker_init_fn: WorkerInitFn | None = None,
    ) -> None:
        count = arguments.worker_count(worker_count)
        check_place(workers)
        arguments.check_counts(worker_buffer_size, streams, max_restarts)
        check_flag("enable_profiling", enable_profiling)
        self._error_policy = ErrorPolicy(on_error, max_errors, quarantine)
        self._explicit_streams = streams
        self._worker_init_fn = worker_init_fn
        self._data_source = data_source
        self._sampler = sampler
        self._operations = arguments.checked_operations(operations)
        self._read_options = read_options or ReadOptions()
        self._multiprocessing_options = MultiprocessingOptions(
            count, worker_buffer_size, enable_profiling
        )
        self._remote = RemoteOptions(
            workers=count,
            buffer=int(worker_buffer_size),
            max_restarts=int(max_restarts),
            memory_limit=arguments.memory_limit(memory_limit),
            stall_timeout=arguments.stall_timeout(stall_timeout),
            stall_action=arguments.stall_action(stall_action),
            place=workers,
        )
        self._shard_options = arguments.checked_shard_options(shard_options, sampler)
        arguments.check_readers(sampler, read_options)
        made = int(streams or max(count, 1))
        arguments.check_ranks(sampler, self._shard_options, self._operations, made)
        self._program = self._compile(made)
        arguments.check_records(sampler, self._program.source)
        self._pipeline = states.Pipeline(
            program=self._program,
            sampler=repr(sampler),
            data_source=_text_in_states(data_source, self._program.source),
            widened=compilation.differs_from_grain(sampler),
        )
        warn_of_no_output(self._program, self._operations)
        self._watch_epochs(self._operations)

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions:
        """Worker count and buffer size."""
        return self._multiprocessing_options

    @property
    def _local_num_workers(self) -> int:
        # This and the next are Grain's private names, which code around it reads.
        return max(self._multiprocessing_options.num_workers, 1)

    @property
    def _global_num_workers(self) -> int:
        return self._local_num_workers * self._shard_options.shard_count

    def __iter__(self) -> DataLoaderIterator[T]:
        return self._counted(DataLoaderIterator(self, None))

    def __len__(self) -> int:
        return compilation.outputs(self._program, self._operations)

    def __bool__(self) -> bool:
        # Grain's loader is true, whatever it gives, and not every length is known.
        return True

    def set_epoch(self, epoch: int) -> None:
        """Let the next iterators give another epoch: its order and its random draws.

        Epoch e has the records, their order, indices and random numbers of the e-th
        epoch of a sampler with ``num_epochs=None``.  With ``num_epochs=n`` an iterator
        gives n epochs, from the sampler's epoch ``n * epoch`` on; without an end it
        goes on from epoch `epoch`.  Iterators that were made before stay in theirs.

        Args:
            epoch: At least 0, else ValueError; a new loader gives epoch 0.

        Raises:
            TypeError: It is not an int, or the sampler, one of your own, has no method
                ``set_epoch(epoch)``, which is called on a copy of it.
            OverflowError: It is more than 64 bits can count.

        Example:
            >>> loader = load(range(4), shuffle=True, seed=1, num_epochs=1)
            >>> first = list(loader)
            >>> loader.set_epoch(1)
            >>> first, list(loader)
            ([1, 2, 3, 0], [0, 3, 1, 2])
        """
        self._choose(epoch)

    def replay(self, state: bytes) -> T:
        """Compute again what the iterator with this state would give next.

        It runs in this process, where a debugger can follow, and advances nothing.

        Args:
            state: What ``get_state()`` returned.

        Raises:
            StopIteration: Nothing follows this state.
        """
        position = self._restore(state)
        # No limit: it was the iterator's to tell.
        program = dataclasses.replace(self._program_for(position), max_errors=None)
        run = LocalRun(program, position, None)
        try:
            output: T = run.next()
        finally:
            run.close()
        return output

    def _compile(self, streams: int) -> compilation.LoaderProgram:
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
        position = states.decode(self._pipeline, state, validate)
        states.check_streams(position, self._explicit_streams)
        return position

    def _program_for(self, position: states.RunPosition) -> compilation.LoaderProgram:
        same = position.streams == self._program.streams
        program = self._program if same else self._compile(position.streams)
        return compilation.in_epoch(program, position.epoch)

    def _run(self, position: states.RunPosition, tally: Tally) -> LocalRun | RemoteRun:
        program = self._program_for(position)
        if self._remote.workers == 0 and self._remote.place is None:
            return LocalRun(program, position, tally, program.computes_ahead)
        return RemoteRun(program, position, self._remote, tally)


def _text_in_states(given: Any, source: Any) -> str:
    """Return what states call a source, the same as in earlier releases.

    Args:
        given: What the user passed.
        source: What stands for it.
    """
    if isinstance(given, (list, tuple, np.ndarray)):
        return str(type(given))
    # The `repr` of this node shows elements or paths.  Its module is imported if the
    # program has made one.
    nodes = sys.modules.get("gristmill._dataset.nodes.source")
    is_node = nodes is not None and type(source) is nodes.SourceMapDataset
    return without_place(f"{source}" if is_node else repr(source))


class Loading(TypedDict, total=False):
    """Arguments of `load` that say nothing of what its elements are."""

    num_epochs: int | None
    shuffle: bool
    seed: int | None
    shard_options: sharding.ShardOptions
    transformations: tuple[()]
    worker_count: int | None
    read_options: ReadOptions | None
    workers: Place | None
    worker_init_fn: WorkerInitFn | None


class Batching(Loading, total=False):
    """Arguments of `load` for batches of a source's elements."""

    batch_size: Required[int]
    drop_remainder: bool


@overload
def load(
    source: Columns, *, batch_size: None = None, **how: Unpack[Loading]
) -> DataLoader[dict[str, Any]]: ...


@overload
def load(
    source: Columns, **how: Unpack[Batching]
) -> DataLoader[dict[str, npt.NDArray[Any]]]: ...


# Any alone is Never, too: a source of which nothing is known comes here.
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
    worker_count: int | None = 0,
    read_options: ReadOptions | None = None,
    workers: Place | None = None,
    worker_init_fn: WorkerInitFn | None = None,
) -> DataLoader[Any]: ...


@refusing_names_of_torch(OF_LOAD)
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
    worker_count: int | None = 0,
    read_options: ReadOptions | None = None,
    workers: Place | None = None,
    worker_init_fn: WorkerInitFn | None = None,
) -> DataLoader[Any]:
    """A DataLoader over `source` with an `IndexSampler`, in one call.

    Args:
        source: See `DataLoader`.
        num_epochs: Times to go through the data; None goes on for ever.
        shuffle: Whether each epoch has its own random order.
        seed: Of the order and of random transformations.
        shard_options: Which part of the data is read; all of it by default.
        transformations: See `DataLoader`.
        batch_size: Elements per batch; None leaves them single.
        drop_remainder: Whether a last, shorter batch is left out.
        worker_count: See `DataLoader`.
        read_options: See `DataLoader`.
        workers: See `DataLoader`.
        worker_init_fn: See `DataLoader`.

    Example:
        >>> loader = load(np.arange(5) * 10, batch_size=2, num_epochs=1)
        >>> [batch.tolist() for batch in loader]
        [[0, 10], [20, 30], [40]]
    """
    operations = arguments.checked_operations(transformations, "transformations")
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
    return DataLoader(
        data_source=source,
        sampler=sampler,
        operations=operations,
        worker_count=worker_count,
        read_options=read_options,
        workers=workers,
        worker_init_fn=worker_init_fn,
    )


def __dir__() -> list[str]:
    return listed(__all__)
