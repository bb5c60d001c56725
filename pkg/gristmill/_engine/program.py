"""Defines `Program`, the compiled form of a pipeline, as plain data.

A `Program` is made once, in the user's process, from the arguments of a loader.  It
contains the `sampler`, which chooses the record at each position, the `source` of the
records, and the `batch_stages`: the steps before each batch, and the batch.  It is
pickled to the workers, and each process runs it with the same `Stream` code.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gristmill import operations as legacy
from gristmill import samplers, transforms
from gristmill._base.deferred import deferring
from gristmill._base.object_repr import value_text
from gristmill._base.types import Rules, WorkerInitFn
from gristmill._engine.stage_times import READ, REST
from gristmill._engine.stream import first_unpicklable
from gristmill._hot import steps as step_kinds
from gristmill._hot.block_call import BlockCall
from gristmill.bad_records import OnError
from gristmill.options import ReadOptions
from gristmill.sharding import ShardOptions
from gristmill.sources._record_source import is_far

# The opcode, callable and name of a one-to-one step or filter.
StepSpec = tuple[int, Callable[..., Any], str]
OUR_SOURCES = "gristmill.sources"
# Small outputs that a worker computes at a time.
RUN_RECORDS = 16


@dataclasses.dataclass(frozen=True)
class BatchStage:
    """One-to-one steps and filters, then at most one batch.

    Attributes:
        steps: The steps that each element goes through.
        batch: The transform that groups the elements after the steps.
        deferred: The same steps, except that the last ones return leaves that the batch
            computes, see `gristmill._base.deferred`.  Empty if no step can.
        users_own: Whether some step does not defer its work, so it may be the user's.
    """

    steps: tuple[StepSpec, ...] = ()
    batch: transforms.Batch | transforms.BucketBatch | None = None
    deferred: tuple[StepSpec, ...] = ()
    users_own: bool = True


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled pipeline; see the module's text, and `Runnable`.

    Local element j of shard s of S is global index ``first_index + j * S + s`` of the
    sampler.

    Attributes:
        source: Read by ``source[key]``; a `sources.TableSource` is read natively.
        sampler: Returns record keys, in blocks if it can.
        first_index: Global index of the first element of all shards: 0 in epoch 0.
        shard: The loader's own shard options.
        length: Elements of this shard, all epochs together.
        modulus: Keys are taken modulo this, the length of the source.  0 if no key can
            reach it, or if the source has no length.
        batch_stages: Run by the native stream; empty if `operations` needs records.
        operations: The user's operations, run over `Record` objects when the
            chain has a step that only makes sense on them (flat-map, legacy
            callables, random steps after a batch).  Empty otherwise.
        in_blocks: Whether keys come in blocks, and generators from `seed`, rather
            than both from the sampler's metadata of each record.
        seed: Seed of the records' generators; None if they have none.
        rules: The tree rules of batches: "jax" or "plain".
        streams: Interleaved logical streams that define the order.
        read_options: Threads that read ahead if reads block.
        on_error: How bad records are handled: "raise", "skip" or "substitute".
        max_errors: Bad records that an iterator accepts; None for any number.
        worker_init_fn: Called with (worker, workers) in each worker before all else.
    """

    source: Any
    sampler: Any
    shard: ShardOptions
    length: int
    modulus: int
    batch_stages: tuple[BatchStage, ...]
    operations: tuple[Any, ...]
    in_blocks: bool
    seed: int | None
    rules: Rules
    streams: int
    read_options: ReadOptions
    on_error: OnError = "raise"
    max_errors: int | None = None
    first_index: int = 0
    worker_init_fn: WorkerInitFn | None = None

    in_this_process = "worker_count=0"
    replay_hint = "loader.replay(iterator.get_state())"

    @property
    def stages(self) -> Mapping[str, tuple[str, str]]:
        """Reading, and the grouping of elements after the steps.  See `Runnable`."""
        groups = [stage.batch for stage in self.batch_stages if stage.batch is not None]
        groups += [op for op in self.operations if is_group(op)]
        rest_stage = "order", "the order of records"
        if groups:
            rest_stage = "batch", ", ".join(map(value_text, groups))
        if self.batch_stages and self.batch_stages[0].deferred:
            names = [name for _, _, name in self.batch_stages[0].deferred]
            _, text = rest_stage
            text += f", and the deferred work of {', '.join(names)}"
            rest_stage = "batch", text
        return {READ: ("read", value_text(self.source)), REST: rest_stage}

    @property
    def flat_maps(self) -> int:
        """The number of flat-map steps."""
        return sum(isinstance(op, transforms.FlatMap) for op in self.operations)

    @property
    def opaque(self) -> bool:
        """True if a step holds back records that no position can describe."""
        return any(holds_back(op) for op in self.operations)

    @property
    def position_capacity(self) -> int:
        """Integers in a stream's position: the records read, and see `RecordStream`."""
        count = 1 + self.flat_maps
        if self.buckets is not None:
            # All buckets except for the full one may lack one element.
            count += sum(self.buckets.buckets().sizes)
        return 2 * count + 1 if self.opaque else count

    @property
    def buckets(self) -> transforms.BucketBatch | None:
        """The transform that batches elements by their lengths, if there is one."""
        batch = self.batch_stages[0].batch if self.batch_stages else None
        return batch if isinstance(batch, transforms.BucketBatch) else None

    @property
    def tolerant(self) -> bool:
        """True if bad records are skipped or substituted."""
        return self.on_error != "raise"

    @property
    def owned(self) -> bool:
        """True if one worker computes each stream.  See `Runnable`.

        This is False only if arithmetic alone gives the positions of outputs.
        """
        if self.operations or self.on_error == "skip" or self.buckets is not None:
            return True
        steps = [step for stage in self.batch_stages for step in stage.steps]
        has_filters = any(opcode == step_kinds.FILTER for opcode, _, _ in steps)
        # The elements of a block are kept for the next outputs.
        has_block_steps = any(isinstance(call, BlockCall) for _, call, _ in steps)
        # The records of an interleaved sampler's stream are cheaper to read together.
        # Far sources need read-ahead, so a worker has to own the next records, too.
        is_interleaved = hasattr(self.sampler, "interleaved")
        return has_filters or has_block_steps or is_interleaved or is_far(self.source)

    @property
    def computes_ahead(self) -> bool:
        """True if a thread may compute an output while the caller uses the last one.

        This is True if only Gristmill's code runs, and most of the work releases the
        GIL.
        """
        options = self.read_options
        if not options.num_threads or not options.prefetch_buffer_size:
            return False
        if self.operations or not isinstance(self.sampler, SAMPLERS):
            return False
        first, *later = self.batch_stages
        if not first.deferred or first.users_own or any(stage.steps for stage in later):
            return False
        if any(stage.batch and stage.batch.batch_fn for stage in later):
            return False
        return is_own_source(self.source)

    @property
    def errors_per_output(self) -> int | None:
        """The most bad records of one output before it is abandoned; None for no limit.

        An output of a fixed number of records does not need a limit.
        """
        return self.max_errors if self.owned else None

    @property
    def unit_records(self) -> int:
        """The records of one output, or of a run of small ones."""
        records = self._output_records
        return records if records > 1 else RUN_RECORDS

    @property
    def many_outputs(self) -> bool:
        """True if a unit has several outputs.  See `Runnable`."""
        return self._output_records == 1

    @property
    def _output_records(self) -> int:
        """The product of the batch sizes: the records of one output without filters."""
        product = 1
        for stage in self.batch_stages:
            if isinstance(stage.batch, transforms.Batch):
                product *= stage.batch.batch_size
        return product

    def init_worker(self, worker: int, workers: int) -> None:
        """Call the user's `worker_init_fn`, if there is one."""
        if self.worker_init_fn is not None:
            self.worker_init_fn(worker, workers)

    def unpicklable_note(self) -> str:
        """Return the text of an error if pickling failed.  See `Runnable`."""
        parts = [("data_source", self.source), ("sampler", self.sampler)]
        parts += [(f"operation {type(op).__name__}", op) for op in self.operations]
        for stage in self.batch_stages:
            parts += [(f"operation {name}", call) for _, call, name in stage.steps]
            if stage.batch is not None:
                parts.append(("batch_fn", stage.batch.batch_fn))
        parts.append(("worker_init_fn", self.worker_init_fn))
        name = first_unpicklable(parts)
        if name is None:
            return "The pipeline cannot be pickled, so it cannot be sent to workers."
        return (
            f"The {name} cannot be pickled, so it cannot be sent to workers. "
            "Open files, locks and connections where they are first used, or "
            "use worker_count=0."
        )

    def stream_length(self, stream: int) -> int:
        """Return the number of records of a stream: elements stream, stream+S, ..."""
        return max(0, -(-(self.length - stream) // self.streams))


def is_legacy(operation: Any) -> bool:
    """Return whether an operation is a callable over an iterator of records."""
    return not isinstance(operation, KNOWN)


def is_group(operation: Any) -> bool:
    """Return whether an operation makes elements from several records."""
    return isinstance(operation, BATCHES) or holds_back(operation)


def holds_back(operation: Any) -> bool:
    """Return whether an operation may hold back records that no position describes."""
    return is_legacy(operation) and type(operation) not in ONE_TO_ONE


# Legacy operations that run as steps, see `record_steps`.
ONE_TO_ONE = (legacy.MapOperation, legacy.FilterOperation, legacy.RandomMapOperation)
RANDOM = (transforms.RandomMap, transforms.TfRandomMap)
BATCHES = (transforms.Batch, transforms.BucketBatch)
# Operations that need the metadata of a record, not only its element.
NEED_METADATA = (*RANDOM, transforms.MapWithIndex)
KNOWN = (
    *NEED_METADATA,
    transforms.Map,
    transforms.BlockMap,
    transforms.Filter,
    transforms.FlatMap,
    *BATCHES,
)
# Gristmill's own samplers, whose `seed` defines the generators of records.
SAMPLERS = (
    samplers.DistributedSampler,
    samplers.GroupShuffleSampler,
    samplers.IndexSampler,
    samplers.SequentialSampler,
)


def as_step(op: Any) -> StepSpec:
    """Return a map or filter transform as a step of `_hot.run.run_block`."""
    name = type(op).__name__
    if isinstance(op, transforms.Map):
        return step_kinds.MAP, op.map, name
    if isinstance(op, transforms.BlockMap):
        return step_kinds.MAP, BlockCall(op.block_map, op.block_size), name
    if isinstance(op, transforms.RandomMap):
        return step_kinds.RANDOM_MAP, op.random_map, name
    if isinstance(op, transforms.TfRandomMap):
        return step_kinds.RANDOM_MAP, op.np_random_map, name
    if isinstance(op, transforms.MapWithIndex):
        return step_kinds.MAP_WITH_INDEX, op.map_with_index, name
    return step_kinds.FILTER, op.filter, name


def is_own_source(source: Any) -> bool:
    """Return whether a source runs only Gristmill's code, which is thread-safe."""
    kind = type(source)
    return kind in (list, tuple) or kind.__module__.startswith(OUR_SOURCES)


def batch_stage_of(
    operations: Sequence[Any], batch: transforms.Batch | transforms.BucketBatch | None
) -> BatchStage:
    """Return the stage with some map or filter transforms and the batch after them.

    Its deferred steps are the plain ones up to the last step that cannot defer, and
    then the deferring ones.  There are none unless the batch is a `Batch` without a
    `batch_fn`.
    """
    steps = [as_step(op) for op in operations]
    deferred: list[StepSpec] = []
    for (opcode, _, name), op in zip(
        reversed(steps), reversed(operations), strict=True
    ):
        call = deferring(op)
        if call is None:
            break
        deferred.insert(0, (opcode, call, name))
    plain_count = len(steps) - len(deferred)
    if not (deferred and isinstance(batch, transforms.Batch)) or batch.batch_fn:
        return BatchStage(tuple(steps), batch)
    deferred[:0] = steps[:plain_count]
    return BatchStage(tuple(steps), batch, tuple(deferred), plain_count > 0)


def as_number(key: Any) -> int:
    """Return a record key as an int64; -1 for a key that is not one, like a name."""
    try:
        number = operator.index(key)
    except TypeError:
        return -1
    return number if -(2**63) <= number < 2**63 else -1
