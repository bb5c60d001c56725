"""Checks a loader's arguments, and converts them to the engine's types."""

from __future__ import annotations

import collections.abc
import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill import operations as legacy
from gristmill import samplers, sharding, sources, transforms
from gristmill._base import log
from gristmill._base.argument_checks import (
    check_callable,
    check_instance,
    check_integer,
    check_number,
    kind,
)
from gristmill._engine.program import BATCHES, KNOWN, NEED_METADATA, SAMPLERS, is_legacy
from gristmill._engine.record_nodes import ADVICE
from gristmill._hot.block_call import BlockCall
from gristmill.options import ReadOptions, WorkerCount, is_auto
from gristmill.sources._checks import check_numbered

# The most integers in a position after the first one: records that wait in buckets.
MAX_WAITING = (1 << 16) - 1
STALL_ACTIONS = ("warn", "restart")
# The scheduler's own limit: an output's attempts are counted in few bits.
MAX_RESTARTS = 100


def check_worker_count(worker_count: WorkerCount | None) -> WorkerCount:
    """Return the number of workers; for None, the number of CPU cores.

    Raises:
        TypeError: The number is neither an int nor "auto".
        ValueError: The number is negative.
    """
    if is_auto(worker_count):
        return "auto"
    if worker_count is None:
        return os.cpu_count() or 1
    advice = (
        " Pass 0 to compute in this process, None for one worker per CPU core, or"
        ' "auto" for as many as the consumer needs.'
    )
    check_integer("worker_count", worker_count, advice)
    if (count := int(worker_count)) < 0:
        raise ValueError(
            "Worker count should be greater than or equal zero."
            f"Current worker_count is {worker_count}.{advice}"
        )
    return count


def check_counts(buffer: int, streams: int | None, max_restarts: int) -> None:
    """Raise TypeError or ValueError if an argument of a loader is not a valid count."""
    check_integer("worker_buffer_size", buffer)
    if buffer < 0:
        raise ValueError(
            "Worker buffer size must be greater than or equal zero."
            f"Current worker_buffer_size is {buffer}."
        )
    if streams is not None:
        _check_minimum("streams", streams, 1, "Leave it out for max(worker_count, 1).")
    check_restarts(max_restarts)


def check_restarts(max_restarts: int) -> None:
    """Check the number of retries of a unit whose worker died."""
    _check_minimum("max_restarts", max_restarts, 0, "0 gives up when a worker dies.")
    if max_restarts > MAX_RESTARTS:
        raise ValueError(
            f"max_restarts must be at most {MAX_RESTARTS}, got {max_restarts}. It is"
            " the number of retries of one output, whatever other outputs need."
        )


def _check_minimum(name: str, value: int, minimum: int, advice: str) -> None:
    check_integer(name, value)
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}. {advice}")


def check_readers(sampler: Any, read_options: Any) -> None:
    """Raise TypeError if the sampler or the read options have the wrong type."""
    if not hasattr(type(sampler), "__getitem__") or _lacks_record_keys(sampler):
        raise TypeError(
            "sampler must have __getitem__(index) that returns a RecordMetadata, got"
            f" {kind(sampler)}. Pass an IndexSampler, a SequentialSampler or your own"
            " class."
        )
    if read_options is not None:
        expected = "a ReadOptions or None"
        check_instance("read_options", read_options, ReadOptions, expected)


def _lacks_record_keys(sampler: Any) -> bool:
    """Return whether a sampler is a sequence of objects without a `record_key`."""
    if not isinstance(sampler, (collections.abc.Sequence, np.ndarray)):
        return False  # Only `__getitem__` shows what it returns.
    return not len(sampler) or not hasattr(sampler[0], "record_key")


@functools.cache
def warn_of_lengths(sampler: str, records: int, length: int) -> None:
    """Log that a sampler and the source differ in length, once for each pair."""
    effect, alternative = (
        f"only records of the first {records} are read",
        f"slice it: MapDataset.source(source)[:{records}]",
    )
    if records > length:
        effect = "record keys wrap around, so that some records are read more often"
        alternative = "pass num_epochs"
    log.warning(
        "%s has num_records=%d, but the data source has %d records: %s. Pass"
        " num_records=%d, or use load(), which takes it from the source; len() of a"
        " dict of arrays is its number of columns. If this is intended, %s.",
        sampler,
        records,
        length,
        effect,
        length,
        alternative,
    )


def check_records(sampler: Any, source: Any) -> None:
    """Check that a sampler can read a source; warn if their lengths differ.

    Raises:
        TypeError: The source's records have no numbers.
    """
    if not isinstance(sampler, SAMPLERS):
        return
    check_numbered(source)
    length = sources.known_length(source)
    if length not in (None, sampler.num_records):
        warn_of_lengths(type(sampler).__name__, sampler.num_records, length)


def check_ranks(
    sampler: Any,
    shard: sharding.ShardOptions,
    operations: Sequence[Any],
    streams: int,
) -> None:
    """Check that the loader's shards are the ranks of a `DistributedSampler`.

    Warns if the batches of the loader do not divide those of the sampler.

    Raises:
        ValueError: The number of shards differs from the sampler's number of ranks.
    """
    if not isinstance(sampler, samplers.DistributedSampler):
        return
    ranks = sampler.shard_options.shard_count
    if shard.shard_count != ranks:
        raise ValueError(
            f"shard_count of the loader must be {ranks}, the number of ranks of its"
            f" DistributedSampler, got {shard.shard_count}. Pass shard_options only to"
            " the sampler."
        )
    sizes = [int(op.batch_size) for op in operations if type(op) is transforms.Batch]
    divisor = math.prod(sizes) * streams
    if sizes and sampler.batch_size > 1 and sampler.batch_size % divisor:
        log.warning(
            "DistributedSampler has batch_size=%d, but the loader needs %d elements for"
            " a batch of %d in each of its %d streams: the last batches will not be"
            " full. Pass batch_size=%d to the sampler.",
            sampler.batch_size,
            divisor,
            math.prod(sizes),
            streams,
            divisor,
        )


def check_stall_timeout(seconds: float | None) -> float:
    """Return the timeout in seconds; -1 for None, which never warns."""
    if seconds is None:
        return -1.0
    check_number("stall_timeout", seconds)
    # This form rejects NaN, too.
    if not seconds > 0:
        raise ValueError(
            f"stall_timeout must be more than 0 seconds, or None, got {seconds}."
        )
    return float(seconds)


def check_stall_action(action: str) -> str:
    """Return the action, or raise ValueError if it is unknown."""
    if action not in STALL_ACTIONS:
        raise ValueError(
            f"stall_action must be one of {STALL_ACTIONS}, got {action!r}."
        )
    return action


def check_memory_limit(limit: int | None) -> int:
    """Return the limit in bytes; 0 for None, which stands for the default."""
    if limit is None:
        return 0
    check_integer("memory_limit", limit)
    if limit <= 0:
        raise ValueError(
            f"memory_limit must be more than 0 bytes, got {limit}. Leave it out for "
            "80 % of the available memory."
        )
    return limit


def check_shard_options(
    shard_options: sharding.ShardOptions | None, sampler: Any
) -> sharding.ShardOptions:
    """Return a loader's shard options, by default those of its sampler.

    Samplers of this package have them in `_shard_options`.

    Raises:
        TypeError: `shard_options` is not a ShardOptions.
        ValueError: There are no shard options.
    """
    if shard_options is not None and not isinstance(
        shard_options, sharding.ShardOptions
    ):
        raise TypeError(
            f"shard_options must be a ShardOptions, got {kind(shard_options)}. Pass "
            "NoSharding() or ShardOptions(shard_index, shard_count)."
        )
    options = shard_options
    if options is None:
        options = getattr(sampler, "_shard_options", None)
    if not isinstance(options, sharding.ShardOptions):
        raise ValueError(
            "No shard options were provided to the DataLoader. Please pass "
            "shard_options=NoSharding() or another ShardOptions: the sampler "
            f"{type(sampler).__name__} has none either."
        )
    return options


def _check_callable(op: Any, where: str) -> None:
    """Raise TypeError if `op` cannot map an iterator of records to another one."""
    if not callable(op):
        raise TypeError(
            f"{where} must be callable or a transformation (an instance of Map,"
            " BlockMap, RandomMap, MapWithIndex, Filter, FlatMap or Batch), got"
            f" {kind(op)}."
        )
    # A class can be called, too, but only a class of iterators returns one.
    if not isinstance(op, type) or hasattr(op, "__next__"):
        return
    name = op.__name__
    if issubclass(op, (*KNOWN, legacy.OneByOne, legacy.BatchOperation)):
        raise TypeError(
            f"{where} must be an instance, got the class {name}. Pass {name}()."
        )
    raise TypeError(
        f"{where} must return an iterator, got the class {name}, whose instances are"
        f" not iterators. {ADVICE}"
    )


def check_operations(operations: Sequence[Any], name: str = "operations") -> list[Any]:
    """Return the operations as a list, with `Batch` for each `BatchOperation`.

    Args:
        operations: The user's argument.
        name: The name of that argument, for errors.

    Raises:
        TypeError: An operation has the wrong type.
        ValueError: A value is out of range, or operations cannot be combined.
    """
    if not isinstance(operations, collections.abc.Iterable):
        raise TypeError(
            f"{name} must be a sequence, got {kind(operations)}. Put a single "
            "operation in a list."
        )
    operations_to_run = []
    for number, op in enumerate(operations):
        if type(op) is legacy.BatchOperation:
            op = transforms.Batch(op.batch_size, op.drop_remainder, op.batch_fn)
        if isinstance(op, transforms.Batch):
            check_integer(f"batch_size of {name}[{number}]", op.batch_size)
            if op.batch_size <= 0:
                raise ValueError(
                    f"batch_size must be positive, got {op.batch_size} in"
                    f" {name}[{number}]."
                )
            if op.batch_fn is not None:
                check_callable(f"batch_fn of {name}[{number}]", op.batch_fn)
        if is_legacy(op):
            _check_callable(op, f"{name}[{number}]")
        if isinstance(op, transforms.BlockMap):
            BlockCall(op.block_map, op.block_size)  # Checks the size.
        if isinstance(op, transforms.FlatMap) and not hasattr(op, "max_fan_out"):
            raise TypeError(
                f"{name}[{number}], a {kind(op)}, must have the attribute max_fan_out:"
                " the largest number of elements that it returns for one element."
            )
        operations_to_run.append(op)
    _check_buckets(operations_to_run, name)
    return operations_to_run


def _check_buckets(operations: Sequence[Any], name: str) -> None:
    """Raise ValueError if operations cannot be combined with a `BucketBatch`."""
    batch_numbers = [n for n, op in enumerate(operations) if isinstance(op, BATCHES)]
    bucket_numbers = [
        n for n in batch_numbers if isinstance(operations[n], transforms.BucketBatch)
    ]
    if not bucket_numbers:
        return
    # Batches have no index and no generator for these.
    later = operations[batch_numbers[0] :]
    incompatible = [op for op in later if isinstance(op, NEED_METADATA)]
    incompatible += [
        op for op in operations if is_legacy(op) or isinstance(op, transforms.FlatMap)
    ]
    if incompatible or bucket_numbers != batch_numbers[:1]:
        raise ValueError(
            f"The BucketBatch of {name} must be the first operation that batches, the"
            " only BucketBatch, and without flat maps, functions over Records, and"
            " random or index steps after it, got"
            f" {[type(op).__name__ for op in operations]}. Leave these out, or use a"
            " chain: MapDataset.source(...).to_iter_dataset().apply(...)."
        )
    max_waiting = sum(operations[bucket_numbers[0]].buckets().sizes)
    if max_waiting > MAX_WAITING:
        raise ValueError(
            f"The batch sizes of the BucketBatch of {name} must sum up to at most"
            f" {MAX_WAITING}, got {max_waiting}. Pass smaller batch sizes."
        )
