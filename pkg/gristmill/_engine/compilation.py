"""Compiles the arguments of a loader to a program that opens its own streams."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from gristmill import operations as legacy
from gristmill import samplers, sources, transforms
from gristmill._base.argument_checks import check_callable
from gristmill._base.types import WorkerInitFn
from gristmill._engine.bucket_stream import BucketStream
from gristmill._engine.deferring_stream import DeferringStream
from gristmill._engine.native_stream import NativeStream
from gristmill._engine.program import (
    BATCHES,
    NEED_METADATA,
    RANDOM,
    SAMPLERS,
    BatchStage,
    Program,
    batch_stage_of,
    is_legacy,
)
from gristmill._engine.record_stream import RecordStream
from gristmill._engine.stream import PROGRAM_MODULES, Stream
from gristmill.bad_records import ErrorPolicy
from gristmill.batching import tree_rules
from gristmill.options import ReadOptions
from gristmill.sharding import ShardOptions

PROGRAM_MODULES.append(__name__)
# Operations that return an unknown number of elements.
_UNCOUNTED = (transforms.Filter, transforms.FlatMap, transforms.BucketBatch)
# The limit for an epoch's first index: the indices of the epoch must fit into 64 bits.
MAX_FIRST_INDEX = 1 << 62


class LoaderProgram(Program):
    """A program that opens its own streams."""

    def open_stream(self, stream: int, record_address: int = 0) -> Stream:
        """Return a stream.  See `Runnable`.

        A worker reads ahead only if its streams are owned.  Outside of workers,
        `record_address` is 0.
        """
        kind: type[RecordStream | NativeStream] = NativeStream
        if self.operations:
            kind = RecordStream
        elif self.buckets is not None:
            kind = BucketStream
        elif self.batch_stages[0].deferred:
            kind = DeferringStream
        looks_ahead = self.owned if record_address else True
        return kind(self, stream, record_address, looks_ahead)


def compile_program(
    *,
    source: Any,
    sampler: Any,
    shard: ShardOptions,
    operations: Sequence[Any],
    streams: int,
    read_options: ReadOptions,
    policy: ErrorPolicy,
    worker_init_fn: WorkerInitFn | None,
) -> LoaderProgram:
    """Compile a loader's arguments; check `worker_init_fn`, but not the others."""
    if worker_init_fn is not None:
        check_callable("worker_init_fn", worker_init_fn)
    readable = sources.as_source(source)
    if hasattr(sampler, "interleaved"):
        sampler = sampler.interleaved(streams * int(shard.shard_count))
    # NumPy's integers, which options may hold, would overflow.
    shard = ShardOptions(
        int(shard.shard_index), int(shard.shard_count), shard.drop_remainder
    )
    over_records = _needs_records(operations)
    return LoaderProgram(
        source=readable,
        sampler=sampler,
        shard=shard,
        length=_shard_length(sampler, shard),
        modulus=_modulus(readable, sampler),
        batch_stages=() if over_records else _batch_stages(operations),
        operations=tuple(operations) if over_records else (),
        in_blocks=_in_blocks(sampler, operations),
        seed=sampler.seed if isinstance(sampler, SAMPLERS) else None,
        rules=tree_rules(),
        streams=streams,
        read_options=read_options,
        on_error=policy.on_error,
        max_errors=policy.max_errors,
        worker_init_fn=worker_init_fn,
    )


def in_epoch(program: LoaderProgram, epoch: int) -> LoaderProgram:
    """Return the program for another epoch, given that for epoch 0.

    Its sampler is a copy after ``set_epoch``, or an endless one that is read from
    `first_index` on.  The given program does not change.

    Raises:
        TypeError: The sampler has no epochs.
        OverflowError: The epoch has indices of more than 64 bits.
    """
    if not epoch:
        return program
    sampler = program.sampler
    if hasattr(sampler, "set_epoch"):
        sampler = copy.copy(sampler)
        sampler.set_epoch(epoch)
        length = _shard_length(sampler, program.shard)
        return dataclasses.replace(program, sampler=sampler, length=length)
    if not isinstance(sampler, SAMPLERS):
        name = type(sampler).__name__
        raise TypeError(
            f"sampler must have set_epoch(epoch) for epoch {epoch}, got a {name}"
            f" without it. Define it so that {name}()[index] depends on the epoch."
        )
    first = sampler._first_index(epoch)
    if first >= MAX_FIRST_INDEX:
        raise OverflowError(
            f"The first index of epoch {epoch} must be below {MAX_FIRST_INDEX}, got"
            f" {first}. Pass a smaller epoch."
        )
    return dataclasses.replace(program, sampler=sampler._endless(), first_index=first)


def changes_with_epoch(program: LoaderProgram, operations: Sequence[Any]) -> bool:
    """Return whether a loader runs for one epoch, and its data depends on the epoch."""
    sampler = program.sampler
    if not isinstance(sampler, SAMPLERS):
        return hasattr(sampler, "set_epoch")
    if sampler._num_epochs != 1:
        return False
    kinds = (*RANDOM, legacy.RandomMapOperation)
    has_random_steps = any(isinstance(op, kinds) for op in operations)
    return sampler._shuffle or (has_random_steps and sampler.seed is not None)


def _in_blocks(sampler: Any, operations: Sequence[Any]) -> bool:
    """Return whether only the keys of the records' metadata are needed."""
    if not samplers.reads_in_blocks(sampler):
        return False
    own = isinstance(sampler, SAMPLERS)
    return own or not any(isinstance(op, NEED_METADATA) for op in operations)


def _needs_records(operations: Sequence[Any]) -> bool:
    """Return whether the operations run over `Record` objects, see `record_stream`."""
    follows_batch = False
    for op in operations:
        if is_legacy(op) or isinstance(op, transforms.FlatMap):
            return True
        if follows_batch and isinstance(op, NEED_METADATA):
            return True
        follows_batch = follows_batch or isinstance(op, BATCHES)
    return False


def _batch_stages(operations: Sequence[Any]) -> tuple[BatchStage, ...]:
    stages: list[BatchStage] = []
    ops: list[Any] = []
    for op in operations:
        if isinstance(op, transforms.Batch):
            # NumPy's integers would get into positions.
            op = transforms.Batch(int(op.batch_size), op.drop_remainder, op.batch_fn)
            stages.append(batch_stage_of(ops, op))
            ops = []
        elif isinstance(op, transforms.BucketBatch):
            stages.append(batch_stage_of(ops, op))
            ops = []
        else:
            ops.append(op)
    if ops or not stages:
        stages.append(batch_stage_of(ops, None))
    return tuple(stages)


def _shard_length(sampler: Any, shard: ShardOptions) -> int:
    """Return the number of elements of a shard.

    Without drop_remainder, the first shards get one more.
    """
    total = _sampler_length(sampler)
    quotient, remainder = divmod(total, shard.shard_count)
    if not shard.drop_remainder and shard.shard_index < remainder:
        return quotient + 1
    return quotient


def _sampler_length(sampler: Any) -> int:
    """Return ``len(sampler)``, or else find the first IndexError by binary search."""
    if hasattr(sampler, "__len__"):
        return len(sampler)
    low, high = 0, 2**63 - 1
    while low < high:
        middle = (low + high) // 2
        try:
            sampler[middle]
            low = middle + 1
        except IndexError:
            high = middle
    return low


def _modulus(source: Any, sampler: Any) -> int:
    length = sources.known_length(source)
    if length is None:
        return 0
    if isinstance(sampler, SAMPLERS) and sampler.num_records <= length:
        return 0
    return length


def differs_from_grain(sampler: Any) -> bool:
    """Return whether Grain's shuffle loses a record here, so that our order differs.

    That is so if the sampler's part of the data has 4**k + 1 records, k >= 8.
    """
    if not isinstance(sampler, samplers.IndexSampler) or not sampler.shuffle:
        return False
    last = len(sampler.plan()) - 1
    # A power of 4 has one bit set, and an odd number of bits.
    return last >= 4**8 and last & (last - 1) == 0 and last.bit_length() % 2 == 1


def count_outputs(program: Program, operations: Sequence[Any]) -> int:
    """Return the number of outputs of a program that was compiled from `operations`.

    Raises:
        TypeError: The number is not known before iterating, or there is no end.
    """
    if reason := _why_unknown(program, operations):
        raise TypeError(f"object of type 'DataLoader' has no len(): {reason}")
    total = 0
    for stream in range(program.streams):
        count = program.stream_length(stream)
        for op in operations:
            if isinstance(op, transforms.Batch):
                full, rest = divmod(count, int(op.batch_size))
                count = full + (rest > 0 and not op.drop_remainder)
        total += count
    return total


def _why_unknown(program: Program, operations: Sequence[Any]) -> str | None:
    """Return the reason why the number of outputs is unknown; None if it is known."""
    # A sampler without an end has the largest possible length.
    if program.length >= sys.maxsize // program.shard.shard_count:
        return "its sampler has no end. Pass num_epochs."
    if program.on_error == "skip":
        return "on_error='skip' may leave records out."
    for op in operations:
        if isinstance(op, _UNCOUNTED) or is_legacy(op):
            return f"{type(op).__name__} may give more or fewer elements than it gets."
    return None
