"""What a pipeline compiles to: plain data that every process understands.

A `Program` is made once, in the user's process, from the arguments of a loader.
It says which record comes at each position (`Keys`), where records are read
(`source`) and what is done with them (`levels`).  It is pickled to the workers
and run by a `Stream`, the same code in every process.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill import operations as legacy
from gristmill import samplers, transforms
from gristmill._base.types import Int64Array, Rules
from gristmill._engine.runnable import first_unpicklable
from gristmill._hot import run as hot_run
from gristmill.bad_records import OnError
from gristmill.options import ReadOptions
from gristmill.records import RecordMetadata
from gristmill.sharding import ShardOptions

Step = tuple[int, Callable[..., Any], str]
# Small outputs that a worker computes at a time.
RUN_RECORDS = 16


@dataclasses.dataclass(frozen=True)
class BatchSpec:
    """Group `size` elements; `make` is the user's batch_fn or None for stacking."""

    size: int
    drop_remainder: bool
    make: Callable[[list[Any]], Any] | None


@dataclasses.dataclass(frozen=True)
class Level:
    """One-to-one steps and filters, then at most one batch."""

    steps: tuple[Step, ...] = ()
    batch: BatchSpec | None = None

    @property
    def filters(self) -> bool:
        """Whether an element may be dropped here."""
        return any(opcode == hot_run.FILTER for opcode, _, _ in self.steps)


@dataclasses.dataclass(frozen=True)
class Keys:
    """Which record stands at each local position of this shard.

    Local element j of shard s of S is global index ``j * S + s`` of the sampler.

    Attributes:
        sampler: Gives record keys, in blocks where it can.
        shard: The loader's own shard options.
        length: Elements of this shard, all epochs together.
        modulus: Keys are taken modulo this, the length of the source; 0 where no
            key can reach it, or where it has no length.
    """

    sampler: Any
    shard: ShardOptions
    length: int
    modulus: int

    def block(self, first: int, step: int, count: int) -> tuple[Int64Array, Int64Array]:
        """Record keys and global indices of local elements first, first+step, ...

        Only for samplers that have `record_keys`.  Both arrays have shape (count,).
        """
        shards = self.shard.shard_count
        start = first * shards + self.shard.shard_index
        stride = step * shards
        keys = self.sampler.record_keys(start, stride, count)
        if self.modulus:
            keys %= self.modulus
        return keys, np.arange(start, start + stride * count, stride, dtype=np.int64)

    def metadata(self, position: int) -> RecordMetadata:
        """The sampler's own metadata of one local element."""
        shards = self.shard.shard_count
        found: RecordMetadata = self.sampler[position * shards + self.shard.shard_index]
        return found

    def source_key(self, record_key: Any) -> Any:
        """The key that the source is asked for: numbers wrap, names are as they are."""
        if not self.modulus or isinstance(record_key, (str, bytes)):
            return record_key
        try:
            return record_key % self.modulus
        except TypeError:
            return record_key


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled pipeline; see the module's text.

    Attributes:
        source: Read by ``source[key]``; a `sources.TableSource` is read natively.
        keys: Positions to record keys.
        levels: Run by the native stream; empty where `operations` needs records.
        operations: The user's operations, run over `Record` objects when the
            chain has a step that only makes sense on them (flat-map, legacy
            callables, random steps after a batch).  Empty otherwise.
        in_blocks: Whether keys come in blocks, and generators from `seed`, rather
            than both from the sampler's metadata of each record.
        seed: Seed of the records' generators; None where they have none.
        rules: How batches are taken apart: "jax" or "plain".
        streams: Interleaved logical streams that define the order.
        read_options: Threads that read ahead where reading is slow.
        on_error: What becomes of bad records: "raise", "skip" or "substitute".
        max_errors: Bad records that an iterator passes over; None for any number.
    """

    source: Any
    keys: Keys
    levels: tuple[Level, ...]
    operations: tuple[Any, ...]
    in_blocks: bool
    seed: int | None
    rules: Rules
    streams: int
    read_options: ReadOptions
    on_error: OnError = "raise"
    max_errors: int | None = None

    @property
    def over_records(self) -> bool:
        """Whether this runs over `Record` objects."""
        return bool(self.operations)

    @property
    def flat_maps(self) -> int:
        """How many flat-map steps there are."""
        return sum(isinstance(op, transforms.FlatMap) for op in self.operations)

    @property
    def opaque(self) -> bool:
        """Whether a step keeps records back that no position can describe."""
        return any(holds_back(op) for op in self.operations)

    @property
    def vector_length(self) -> int:
        """Integers in a stream's position: records read, then see `Stream`."""
        here = 1 + self.flat_maps
        return 2 * here + 1 if self.opaque else here

    @property
    def vector_capacity(self) -> int:
        """See `Runnable`."""
        return self.vector_length

    @property
    def one_to_one(self) -> bool:
        """Whether positions of outputs follow from arithmetic alone."""
        if self.over_records or self.on_error == "skip":
            return False
        return not any(level.filters for level in self.levels)

    @property
    def tolerant(self) -> bool:
        """Whether bad records are passed over."""
        return self.on_error != "raise"

    @property
    def owned(self) -> bool:
        """Whether each stream is computed by one worker, from the beginning on."""
        return not self.one_to_one or keeps_streams_apart(self.keys.sampler)

    @property
    def errors_per_output(self) -> int | None:
        """Bad records of one output after which it is given up; None for never.

        An output of a fixed number of records comes to an end by itself.
        """
        return self.max_errors if self.owned else None

    @property
    def records_per_output(self) -> int:
        """Records that make one full output of a one-to-one chain."""
        product = 1
        for level in self.levels:
            if level.batch is not None:
                product *= level.batch.size
        return product

    @property
    def unit_records(self) -> int:
        """See `Runnable`: one output, or a run of small ones."""
        batch = self.records_per_output
        return batch if batch > 1 else RUN_RECORDS

    @property
    def in_this_process(self) -> str:
        """See `Runnable`."""
        return "worker_count=0"

    @property
    def replay_hint(self) -> str:
        """See `Runnable`."""
        return "loader.replay(iterator.get_state())"

    def greet(self, worker: int) -> None:
        """See `Runnable`: there is nothing to do."""

    def unpicklable_note(self) -> str:
        """See `Runnable`."""
        parts = [("data_source", self.source), ("sampler", self.keys.sampler)]
        parts += [(f"operation {type(op).__name__}", op) for op in self.operations]
        for level in self.levels:
            parts += [(f"operation {name}", call) for _, call, name in level.steps]
            if level.batch is not None:
                parts.append(("batch_fn", level.batch.make))
        name = first_unpicklable(parts)
        if name is None:
            return "The pipeline cannot be pickled, so it cannot be sent to workers."
        return (
            f"The {name} cannot be pickled, so it cannot be sent to workers. "
            "Open files, locks and connections where they are first used, or "
            "use worker_count=0."
        )

    def stream_length(self, stream: int) -> int:
        """Records of one stream: it takes local elements stream, stream+S, ..."""
        return max(0, -(-(self.keys.length - stream) // self.streams))


def is_legacy(operation: Any) -> bool:
    """Whether this is a callable over an iterator of records."""
    return not isinstance(operation, KNOWN)


def holds_back(operation: Any) -> bool:
    """Whether a legacy operation may keep records that no position describes."""
    return is_legacy(operation) and type(operation) not in ONE_TO_ONE


ONE_TO_ONE = (
    legacy.MapOperation,
    legacy.FilterOperation,
    legacy.RandomMapOperation,
)
KNOWN = (
    transforms.Map,
    transforms.RandomMap,
    transforms.MapWithIndex,
    transforms.TfRandomMap,
    transforms.Filter,
    transforms.FlatMap,
    transforms.Batch,
)


SAMPLERS = (
    samplers.GroupShuffleSampler,
    samplers.IndexSampler,
    samplers.SequentialSampler,
)


def keeps_streams_apart(sampler: Any) -> bool:
    """Whether each stream has records of its own that are cheaper to read together."""
    return hasattr(sampler, "interleaved")


def as_number(key: Any) -> int:
    """A record key as an int64; -1 stands for a key that is none, such as a name."""
    try:
        number = operator.index(key)
    except TypeError:
        return -1
    return number if -(2**63) <= number < 2**63 else -1
