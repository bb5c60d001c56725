"""Grain's DataLoader: a source, a sampler and operations, iterated in order."""

from __future__ import annotations

import collections.abc
import json
import os
import time
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from gristmill import _log, checkpoint, samplers, sharding, transforms
from gristmill import operations as legacy
from gristmill._checks import check_integer
from gristmill._engine import program as engine
from gristmill._engine import state as states
from gristmill._engine.local import LocalRun
from gristmill._engine.remote import RemoteOptions, RemoteRun
from gristmill.errors import StateMismatch
from gristmill.options import MultiprocessingOptions, ReadOptions

T = TypeVar("T")
STALL_ACTIONS = ("warn", "restart")
_NO_SHARDING = sharding.NoSharding()


class DataLoader(Generic[T]):
    """Reads records in the sampler's order and runs operations on them.

    Iterating gives the elements that leave the last operation.  With ``Batch(B)``
    an array leaf of shape ``S`` and dtype ``D`` becomes one of shape ``(B, *S)``
    and dtype ``D``; the last batch may be shorter.

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

    def __init__(  # noqa: PLR0913 (Grain's arguments, and ours)
        self,
        *,
        data_source: Any,
        sampler: Any,
        operations: Sequence[Any] = (),
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
    ) -> None:
        workers = _worker_count(worker_count)
        _check_counts(worker_buffer_size, streams, max_restarts)
        self._explicit_streams = streams
        self._data_source = data_source
        self._sampler = sampler
        self._operations = _operations(operations)
        self._read_options = read_options or ReadOptions()
        self._multiprocessing_options = MultiprocessingOptions(
            num_workers=workers,
            per_worker_buffer_size=worker_buffer_size,
            enable_profiling=enable_profiling,
        )
        self._remote = RemoteOptions(
            workers=workers,
            buffer=int(worker_buffer_size),
            max_restarts=int(max_restarts),
            memory_limit=_memory_limit(memory_limit),
            stall_timeout=_stall_timeout(stall_timeout),
            stall_action=_stall_action(stall_action),
        )
        self._shard_options = _shard_options(shard_options, sampler)
        _check_readers(sampler, read_options)
        self._program = self._compile(int(streams or max(workers, 1)))
        self._pipeline = self._describe()

    @property
    def multiprocessing_options(self) -> MultiprocessingOptions:
        """Worker count and buffer size."""
        return self._multiprocessing_options

    # Grain's private names, which code around it reads.

    @property
    def _local_num_workers(self) -> int:
        return max(self._multiprocessing_options.num_workers, 1)

    @property
    def _global_num_workers(self) -> int:
        return self._local_num_workers * self._shard_options.shard_count

    def __iter__(self) -> DataLoaderIterator[T]:
        return DataLoaderIterator(self, None)

    def replay(self, state: bytes) -> T:
        """Compute again what the iterator with this state would give next.

        It runs in this process, where a debugger can follow, and advances nothing.

        Args:
            state: What ``get_state()`` returned.

        Raises:
            StopIteration: Nothing follows this state.
        """
        position = self._restore(state)
        run = LocalRun(self._program_for(position), position)
        try:
            output: T = run.next()
        finally:
            run.close()
        return output

    def _compile(self, streams: int) -> engine.Program:
        return engine.compile_program(
            source=self._data_source,
            sampler=self._sampler,
            shard=self._shard_options,
            operations=self._operations,
            streams=streams,
            read_options=self._read_options,
        )

    def _describe(self) -> states.Pipeline:
        source = self._data_source
        in_memory = isinstance(source, (list, tuple, np.ndarray))
        if not in_memory:
            source = self._program.source
        return states.Pipeline(
            sampler=repr(self._sampler),
            data_source=str(type(source)) if in_memory else repr(source),
            shard=self._shard_options,
            length=self._program.keys.length,
            flat_maps=self._program.flat_maps,
            opaque=self._program.opaque,
            widened=engine.differs_from_grain(self._sampler),
        )

    def _start(self) -> states.Position:
        workers = self._multiprocessing_options.num_workers
        return self._pipeline.start(workers, self._program.streams)

    def _restore(self, state: bytes, validate: bool = True) -> states.Position:
        position = states.decode(self._pipeline, state, validate)
        wanted = self._explicit_streams
        if wanted is not None and wanted != position.streams:
            raise StateMismatch(
                f"Checkpoint has {position.streams} streams, but the loader was made "
                f"with streams={wanted}. The number of streams defines the order, so "
                "it cannot change within a run: leave streams= out, or set it to "
                f"{position.streams}."
            )
        return position

    def _program_for(self, position: states.Position) -> engine.Program:
        if position.streams == self._program.streams:
            return self._program
        return self._compile(position.streams)

    def _run(self, position: states.Position) -> LocalRun | RemoteRun:
        program = self._program_for(position)
        if self._remote.workers == 0:
            return LocalRun(program, position)
        return RemoteRun(program, position, self._remote)


class DataLoaderIterator(checkpoint.Checkpointable, collections.abc.Iterator[T]):
    """Iterates over a `DataLoader`; its position can be saved and restored.

    Not thread-safe.  Batches, and all that comes from workers, are the caller's to
    keep and to change; without either, an element is what the source returned.

    Args:
        data_loader: The loader.
        state: Where to begin: a state's JSON object, or None for the beginning.
        validate_state: Whether a state must name this sampler and data source.  It
            must always be a position of these operations.

    Raises:
        StateMismatch: The state is of another pipeline.
    """

    def __init__(
        self,
        data_loader: DataLoader[T],
        state: dict[str, Any] | None,
        validate_state: bool = True,
    ) -> None:
        self._data_loader = data_loader
        self._validate_state = validate_state
        self._run: LocalRun | RemoteRun = data_loader._run(data_loader._start())
        self._waited_s = 0.0
        self._outputs = 0
        self._profiles = data_loader.multiprocessing_options.enable_profiling
        if state is not None:
            self.set_state(json.dumps(state, indent=4).encode())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._profiles:
            return self._profiled_next()
        output: T = self._run.next()
        return output

    def get_state(self) -> bytes:
        """The position, as JSON text: a few integers, whatever was computed ahead."""
        return states.encode(self._data_loader._pipeline, self._run.position)

    def set_state(self, state: bytes) -> None:
        """Continue after the output at which `get_state` returned `state`.

        Nothing is replayed.  The worker count may differ from the one that the
        state was saved with: the order of elements stays the state's.

        Raises:
            StateMismatch: The state is of another pipeline.
            IndexError: The state points past the end of the data.
        """
        position = self._data_loader._restore(state, self._validate_state)
        if position.streams == self._run.position.streams:
            self._run.restart(position)
            return
        self._run.close()
        self._run = self._data_loader._run(position)

    def start_prefetch(self) -> None:
        """Start computing in the background, before the first ``next``."""
        self._run.start_prefetch()

    def ids(self) -> npt.NDArray[np.int64]:
        """Record keys that the last output was made of, int64, shape (k,)."""
        return self._run.keys.copy()

    def close(self) -> None:
        """End the workers now rather than when the iterator is collected.

        The position stays: `next` goes on from it, and starts them again.
        """
        self._run.close()

    def __str__(self) -> str:
        return f"PyGrainDatasetIterator(state={self.get_state().decode()})"

    def _profiled_next(self) -> T:
        began = time.perf_counter()
        try:
            output: T = self._run.next()
        except StopIteration:
            _log.warning(
                "%d outputs, waited %.3f s for them in all",
                self._outputs,
                self._waited_s,
            )
            raise
        self._waited_s += time.perf_counter() - began
        self._outputs += 1
        return output


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
    """
    sampler = samplers.IndexSampler(
        num_records=len(source),
        shuffle=shuffle,
        seed=seed,
        num_epochs=num_epochs,
        shard_options=shard_options,
    )
    operations = list(transformations)
    if batch_size is not None:
        operations.append(transforms.Batch(batch_size, drop_remainder=drop_remainder))
    return DataLoader(
        data_source=source,
        sampler=sampler,
        operations=operations,
        worker_count=worker_count,
        read_options=read_options,
    )


def _worker_count(worker_count: int | None) -> int:
    if worker_count is None:
        return os.cpu_count() or 1
    _check_number("worker_count", worker_count)
    if worker_count < 0:
        raise ValueError(
            "Worker count should be greater than or equal zero."
            f"Current worker_count is {worker_count}. Pass 0 to compute in this "
            "process, or None for one worker per CPU core."
        )
    return int(worker_count)


def _check_counts(buffer: int, streams: int | None, max_restarts: int) -> None:
    check_integer("worker_buffer_size", buffer)
    if buffer < 0:
        raise ValueError(
            "Worker buffer size must be greater than or equal zero."
            f"Current worker_buffer_size is {buffer}."
        )
    if streams is not None:
        check_integer("streams", streams)
        if streams < 1:
            raise ValueError(
                f"streams must be at least 1, got {streams}. Leave it out for "
                "max(worker_count, 1)."
            )
    check_integer("max_restarts", max_restarts)
    if max_restarts < 0:
        raise ValueError(
            f"max_restarts must be at least 0, got {max_restarts}. 0 gives up when a "
            "worker dies."
        )


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number or None, got {_kind(value)}.")


def _check_readers(sampler: Any, read_options: Any) -> None:
    if not hasattr(sampler, "__getitem__"):
        raise TypeError(
            "The sampler must have __getitem__(index) that returns a RecordMetadata, "
            f"got {_kind(sampler)}. Pass an IndexSampler, a SequentialSampler or one "
            "of your own."
        )
    if read_options is not None and not isinstance(read_options, ReadOptions):
        raise TypeError(
            f"read_options must be a ReadOptions or None, got {_kind(read_options)}."
        )


def _kind(value: Any) -> str:
    """The type of an argument; its value would be the user's data."""
    return type(value).__name__


def _stall_timeout(seconds: float | None) -> float:
    if seconds is None:
        return -1.0
    _check_number("stall_timeout", seconds)
    # Written so that NaN fails, too.
    if not seconds > 0:
        raise ValueError(
            f"stall_timeout must be more than 0 seconds, or None, got {seconds}."
        )
    return float(seconds)


def _stall_action(action: str) -> str:
    if action not in STALL_ACTIONS:
        raise ValueError(
            f"stall_action must be one of {STALL_ACTIONS}, got {action!r}."
        )
    return action


def _memory_limit(limit: int | None) -> int:
    if limit is None:
        return 0
    check_integer("memory_limit", limit)
    if limit <= 0:
        raise ValueError(
            f"memory_limit must be more than 0 bytes, got {limit}. Leave it out for "
            "80 % of the memory there is."
        )
    return limit


def _shard_options(
    given: sharding.ShardOptions | None, sampler: Any
) -> sharding.ShardOptions:
    if given is not None and not isinstance(given, sharding.ShardOptions):
        raise TypeError(
            f"shard_options must be a ShardOptions, got {_kind(given)}. Pass "
            "NoSharding() or ShardOptions(shard_index, shard_count)."
        )
    found = given if given is not None else getattr(sampler, "_shard_options", None)
    if not isinstance(found, sharding.ShardOptions):
        raise ValueError(
            "No shard options were provided to the DataLoader. Please pass "
            "shard_options=NoSharding() or another ShardOptions: the sampler "
            f"{type(sampler).__name__} has none either."
        )
    return found


def _operations(operations: Sequence[Any]) -> list[Any]:
    if not isinstance(operations, collections.abc.Iterable):
        raise TypeError(
            f"operations must be a sequence, got {_kind(operations)}. Put a single "
            "operation in a list."
        )
    checked = []
    for number, op in enumerate(operations):
        if type(op) is legacy.BatchOperation:
            op = transforms.Batch(op.batch_size, op.drop_remainder, op.batch_fn)
        if isinstance(op, transforms.Batch):
            check_integer(f"batch_size of operations[{number}]", op.batch_size)
            if op.batch_size <= 0:
                raise ValueError(
                    f"batch_size must be positive, got {op.batch_size} in "
                    f"operations[{number}]."
                )
        if engine.is_legacy(op) and (isinstance(op, type) or not callable(op)):
            name = op.__name__ if isinstance(op, type) else type(op).__name__
            raise TypeError(
                f"operations[{number}] is {name!r}, which is neither a transformation "
                "(an instance of Map, RandomMap, MapWithIndex, Filter, FlatMap or "
                "Batch) nor callable."
            )
        checked.append(op)
    return checked
