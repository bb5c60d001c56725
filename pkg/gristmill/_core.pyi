"""Types of the compiled core, which is private; the bindings document it."""

import os
from collections.abc import Callable, Sequence
from enum import Enum
from typing import (
    Any,
    Literal,
    Protocol,
    Self,
    TypedDict,
    final,
    overload,
    type_check_only,
)

import numpy as np
from numpy.typing import NDArray

# csrc/bindings/indices/bind_indices.cpp

# Public as gristmill.experimental.index_shuffle, so the reference shows it.
def index_shuffle(index: int, max_index: int, seed: int, rounds: int) -> int:
    """Return the position of ``index`` in a permutation of [0, ..., max_index].

    Args:
        index: In [0, max_index].
        max_index: The largest index, at most 2**63 - 1.
        seed: Picks the permutation, in [0, 2**32).
        rounds: Rounds of the network, even, from 4 to 1024.

    Raises:
        ValueError: ``index`` or ``rounds`` is out of range.
        TypeError: An argument does not fit its 64 or 32 bits.

    Example:
        >>> [index_shuffle(i, max_index=4, seed=1, rounds=4) for i in range(5)]
        [1, 2, 3, 0, 4]
    """

def permutation(count: int, seed: int) -> NDArray[np.int64]: ...
def window_shuffle(
    positions: NDArray[np.int64], window_size: int, seed: int, length: int
) -> NDArray[np.int64]: ...

# csrc/bindings/indices/bind_plan.cpp

@final
class KeyPlan:
    @staticmethod
    def range(count: int, start: int = 0, step: int = 1) -> KeyPlan: ...
    @staticmethod
    def positions(count: int) -> KeyPlan: ...
    def shard(self, first: int, last: int) -> KeyPlan: ...
    def shuffle(self, seed: int) -> KeyPlan: ...
    def repeat(self, epochs: int | None = None, reseed: bool = True) -> KeyPlan: ...
    def take(self, first: int, step: int, count: int) -> KeyPlan: ...
    def key(self, position: int) -> int: ...
    def keys(self, positions: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def fill(self, first: int, step: int, out: NDArray[np.int64]) -> None: ...
    @property
    def ops(self) -> tuple[tuple[Any, ...], ...]: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Mixture:
    def __init__(self, proportions: Sequence[int]) -> None: ...
    def take(
        self, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...

# csrc/bindings/packing/bind_pack_plan.cpp

@type_check_only
class PackTotals(TypedDict):
    documents: int
    tokens: int
    empty_documents: int
    long_documents: int
    long_tokens: int
    hash: int

@final
class PackPlan:
    def __init__(
        self,
        lengths: NDArray[np.int32] | NDArray[np.int64],
        capacity: int,
        *,
        method: str = "best_fit",
        long_documents: str = "cut",
        window: int = 262144,
        seed: int | None = None,
        num_epochs: int = 1,
        span_costs: NDArray[np.float64] | None = None,
        group_rows: int = 1,
        counts_path: str = "",
        extras: Sequence[tuple[str, NDArray[np.int32] | NDArray[np.int64], int]] = (),
    ) -> None: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def totals(self) -> PackTotals: ...
    def first_row(self, epoch: int) -> int: ...
    def rows(
        self, keys: NDArray[np.int64]
    ) -> tuple[
        NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]
    ]: ...
    def epochs(self, keys: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def costs(self, keys: NDArray[np.int64]) -> NDArray[np.float64]: ...

def deal(costs: NDArray[np.float64], ranks: int) -> NDArray[np.int64]: ...

# csrc/bindings/base

class Pool:
    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...

class Watch:
    def __init__(
        self, callback: Callable[[float], float | None], *, waiting: bool = False
    ) -> None: ...
    def begin(self, delay_s: float) -> None: ...
    def end(self) -> None: ...

# csrc/bindings/batches

class PendingGather:
    def __init__(
        self,
        pool: Pool,
        table: NDArray[Any],
        rows: NDArray[np.int64],
        out: NDArray[Any],
    ) -> None: ...
    def wait(self) -> None: ...

def gather(table: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any]) -> None: ...
def find_chunks(
    bounds: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
def gather_chunks(
    chunks: list[tuple[NDArray[Any], ...]],
    numbers: NDArray[np.int64],
    offsets: NDArray[np.int64],
    outs: list[NDArray[Any]],
) -> None: ...
def interleave(columns: Sequence[NDArray[Any]], out: NDArray[np.uint8]) -> None: ...
def gather_interleaved(
    tables: list[NDArray[np.uint8]],
    numbers: NDArray[np.int64],
    offsets: NDArray[np.int64],
    outs: list[NDArray[Any]],
) -> None: ...
def stack(
    elements: list[Any],
    out: NDArray[Any],
    streaming: bool = False,
) -> int: ...
def stack_scalars(elements: list[Any], out: NDArray[Any]) -> int: ...

# csrc/bindings/processes/bind_worker_group.cpp

def configure_supervisor(argv: list[str], environ: list[bytes]) -> None: ...
def start_launcher(modules: Sequence[str]) -> None: ...
def shutdown_supervisor() -> None: ...
def die_with_parent(parent: int) -> None: ...

class WorkerLog:
    def __init__(
        self, arena_fd: int, blob_fd: int, setup: bytes, modules: Sequence[str] = ()
    ) -> None: ...
    def fileno(self) -> int: ...
    def events(self) -> list[tuple[str, int, int, int, str]]: ...
    def start_worker(self, worker: int, generation: int) -> None: ...
    def kill(self, worker: int) -> None: ...
    def notify_fd(self) -> int: ...
    def dismiss(self) -> None: ...

# csrc/bindings/example/bind_example.cpp

@final
class ExampleParser:
    def __init__(
        self,
        outputs: list[
            tuple[
                Any,
                str,
                np.dtype[Any],
                Sequence[int],
                bool,
                NDArray[Any] | None,
            ]
        ],
        refuse_others: bool,
    ) -> None: ...
    def parse(self, record: object) -> dict[Any, Any]: ...
    def parse_block(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        alloc: Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]] | None = None,
    ) -> dict[Any, NDArray[Any]]: ...

def parse_all_features(record: object) -> dict[str, NDArray[Any]]: ...

# csrc/bindings/images/bind_images.cpp

def image_header(data: object) -> tuple[str, int, int, int, int]: ...
def render_images(
    images: list[Any],
    plans: NDArray[np.int32],
    out: NDArray[Any],
    *,
    filter: int = 2,
    table: NDArray[Any] | None = None,
    chw: bool = False,
    draft: bool = False,
    threads: int = 1,
) -> None: ...

# csrc/bindings/files/bind_range_cache.cpp

@final
class RangeCache:
    def __init__(self, folder: str | bytes, bytes: int) -> None: ...
    @staticmethod
    def min_bytes() -> int: ...
    @property
    def path(self) -> str: ...
    @staticmethod
    def pages_of(
        origin: tuple[int, int, int], offset: int, size: int
    ) -> tuple[int, int]: ...
    def read(
        self, origin: tuple[int, int, int], offset: int, size: int
    ) -> bytes | None: ...
    def write(self, origin: tuple[int, int, int], offset: int, pages: bytes) -> str: ...

# csrc/bindings/files/bind_record_reader.cpp

class RecordReader:
    def __len__(self) -> int: ...
    # Records are bytes, or arrays if the reader has a dtype.
    def read(self, record: int) -> Any: ...
    @overload
    def read_many(
        self, records: NDArray[np.int64], *, packed: Literal[False] = False
    ) -> list[Any]: ...
    @overload
    def read_many(
        self, records: NDArray[np.int64], *, packed: Literal[True]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
    @overload
    def read_slices(
        self,
        records: NDArray[np.int64],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        item_bytes: int,
        *,
        packed: Literal[False] = False,
    ) -> list[Any]: ...
    @overload
    def read_slices(
        self,
        records: NDArray[np.int64],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        item_bytes: int,
        *,
        packed: Literal[True],
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
    def sizes(self, records: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def path(self) -> str: ...
    @property
    def knows_sizes(self) -> bool: ...

class PendingRead:
    def __init__(
        self,
        pool: Pool,
        reader: RecordReader,
        records: NDArray[np.int64],
        *,
        packed: bool = False,
        parts: int = 0,
    ) -> None: ...
    def wait(self) -> Any: ...

# csrc/bindings/array_record/bind_codec.cpp

def decompress(codec: str, data: bytes, size: int) -> bytes: ...

# csrc/bindings/array_record/bind_record_file.cpp

class ChunkCache:
    def __init__(self, max_bytes: int) -> None: ...
    @property
    def held_bytes(self) -> int: ...

@type_check_only
class RangeReader(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def gap_bytes(self) -> int: ...
    @property
    def run_bytes(self) -> int: ...
    @property
    def tail_bytes(self) -> int: ...
    @property
    def parallel(self) -> int: ...
    def read_range(self, offset: int, size: int, /) -> bytes: ...
    def change(self) -> str: ...

class RecordFile(RecordReader):
    def __init__(
        self,
        file: str | RangeReader,
        verify: str = "all",
        access: str = "pread",
        cache: ChunkCache | None = None,
        stamp: tuple[int, int] | None = None,
        index_paths: Sequence[str] = (),
    ) -> None: ...
    def chunk(self, chunk: int) -> tuple[int, int, int, int]: ...
    @property
    def options(self) -> str: ...
    @property
    def group_size(self) -> int: ...
    @property
    def num_chunks(self) -> int: ...
    @property
    def index_bytes(self) -> int: ...

# csrc/bindings/files/bind_replace_file.cpp

def replace_file(path: str | os.PathLike[str], data: bytes) -> None: ...

# csrc/bindings/files/bind_file_lock.cpp

@final
class FileLock:
    def __init__(self, path: str, max_wait_ms: int) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *args: object) -> None: ...

# csrc/bindings/files/bind_record_set.cpp

class RecordSet(RecordReader):
    def __init__(
        self,
        name: str,
        ranges: Sequence[tuple[int, int]],
        open: Callable[[list[int]], Sequence[RecordReader]],
        dtype: np.dtype[Any] | None = None,
    ) -> None: ...
    def open_part(self, part: int, reader: RecordReader) -> None: ...
    def lengths(
        self, records: Sequence[int], item_bytes: int, index_paths: Sequence[str]
    ) -> NDArray[np.integer[Any]]: ...

# csrc/bindings/tf_record

@final
class ScanProgress:
    def __init__(self) -> None: ...
    @property
    def done_bytes(self) -> int: ...
    def cancel(self) -> None: ...

def count_records(
    file: str | RangeReader, verify: str = "all"
) -> tuple[int, int, tuple[int, int]]: ...
def count_all_records(
    paths: Sequence[str], verify: str = "all"
) -> list[tuple[int, int, tuple[int, int]]]: ...

class TfRecordFile(RecordReader):
    def __init__(
        self,
        file: str | RangeReader,
        verify: str,
        access: str,
        index_paths: Sequence[str],
        progress: ScanProgress,
    ) -> None: ...
    @property
    def index_path(self) -> str: ...
    @property
    def index_bytes(self) -> int: ...

# csrc/bindings/tar/bind_tar_file.cpp

class TarFile(RecordReader):
    def __init__(
        self,
        file: str | RangeReader,
        access: str,
        index_paths: Sequence[str],
        stamp: tuple[int, int] | None,
        progress: ScanProgress,
    ) -> None: ...
    @property
    def stamp(self) -> tuple[int, int]: ...
    @property
    def index_bytes(self) -> int: ...

def tar_sample(record: bytes, url: str) -> dict[str, Any]: ...

# csrc/bindings/bag/bind_bag_file.cpp

class BagFile(RecordReader):
    def __init__(
        self,
        file: str | RangeReader,
        limits: str | RangeReader | None,
        access: str,
        compressed: bool,
        stamp: tuple[int, int] | None,
    ) -> None: ...
    @property
    def index_bytes(self) -> int: ...

def count_bag(
    file: str | RangeReader, limits: str | RangeReader | None, access: str
) -> tuple[int, tuple[int, int]]: ...

@final
class TfRecordStream:
    def __init__(
        self, source: Any, name: str, verify: str, record: int, offset: int
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    @property
    def record(self) -> int: ...
    @property
    def offset(self) -> int: ...

def tf_record_compression(begin: bytes) -> str: ...

# csrc/bindings/files/bind_span_file.cpp

class SpanFile(RecordReader):
    @property
    def index_path(self) -> str: ...

# csrc/bindings/lines/bind_frame_stream.cpp

class FrameStream:
    def __init__(self, compression: str) -> None: ...
    def step(
        self, from_: bytes | memoryview, to: bytearray | memoryview
    ) -> tuple[int, int, bool]: ...

# csrc/bindings/lines/bind_line_file.cpp

def open_line_file(
    file: str | RangeReader,
    access: str,
    index_paths: Sequence[str],
    cache: ChunkCache,
    progress: ScanProgress,
) -> SpanFile: ...

# csrc/bindings/tokens/bind_document_index.cpp

def open_token_file(
    file: str | RangeReader,
    access: str,
    begin: int,
    width: int,
    eos: int,
    bos: int | None,
    index_paths: Sequence[str],
    progress: ScanProgress,
) -> SpanFile: ...

# csrc/bindings/tokens/bind_megatron_index.cpp

@final
class MegatronIndex:
    def __init__(
        self, file: str | RangeReader, access: str, documents: bool
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def dtype_code(self) -> int: ...
    @property
    def modes(self) -> bytes: ...

def open_megatron_file(
    file: str | RangeReader, access: str, index: MegatronIndex, noun: str
) -> SpanFile: ...

# csrc/bindings/mds/bind_mds_index.cpp

def open_mds_shard(
    file: str | RangeReader, access: str, samples: int, bytes: int
) -> SpanFile: ...

# csrc/bindings/files/bind_array_file.cpp

@final
class ArrayPlace:
    def __init__(
        self, key: int, index_paths: Sequence[str], data_path: str
    ) -> None: ...
    @property
    def key(self) -> int: ...

# csrc/bindings/tokens/bind_token_rows.cpp

@final
class ShuffleRule:
    def __init__(
        self,
        *,
        seed: int,
        row_tokens: int,
        has_extra_token: bool,
        epochs: int,
        first_epochs: int,
        rows: int,
        first_rows: int,
        tokens: int,
    ) -> None: ...

@final
class TokenRows:
    @staticmethod
    def chunked(
        lengths: NDArray[Any],
        longest: int,
        row_tokens: int,
        documents: Sequence[int],
        rows: Sequence[int],
        place: ArrayPlace,
    ) -> TokenRows: ...
    @staticmethod
    def shuffled(
        lengths: NDArray[Any], longest: int, rule: ShuffleRule, place: ArrayPlace
    ) -> TokenRows: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def has_index_file(self) -> bool: ...
    @property
    def index_path(self) -> str: ...
    def rows(
        self, keys: NDArray[np.int64]
    ) -> tuple[
        NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]
    ]: ...
    def array(self, i: int) -> bytes: ...

def summarize_lengths(lengths: NDArray[Any]) -> tuple[int, int, int]: ...

# csrc/bindings/tokens/bind_blend.cpp

@final
class Blend:
    @staticmethod
    def weighted(weights: Sequence[float], size: int, place: ArrayPlace) -> Blend: ...
    @staticmethod
    def exhaustive(sizes: Sequence[int], place: ArrayPlace) -> Blend: ...
    @property
    def counts(self) -> list[int]: ...
    @property
    def has_index_file(self) -> bool: ...
    @property
    def index_path(self) -> str: ...
    def __len__(self) -> int: ...
    def find(
        self, keys: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...

# csrc/bindings/schedule/bind_scheduler.cpp

@final
class NextResult:
    @property
    def kind(self) -> str: ...

    # output
    @property
    def stream(self) -> int: ...
    @property
    def error(self) -> bool: ...
    @property
    def index(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def bytes(self) -> int: ...

    # exited; after a timeout, worker, idle, stream and record describe the worker
    # that the consumer waits for
    @property
    def worker(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def record(self) -> int: ...
    @property
    def attempts(self) -> int: ...
    @property
    def at_start(self) -> bool: ...
    @property
    def idle(self) -> bool: ...
    # slow, in seconds: the time since the claim of the unit, the usual time of a unit,
    # and the time that this call has waited
    @property
    def busy_s(self) -> float: ...
    @property
    def usual_s(self) -> float: ...
    @property
    def waited_s(self) -> float: ...
    @property
    def wait_status(self) -> int | None: ...
    @property
    def text(self) -> str: ...

    # full
    @property
    def needed_bytes(self) -> int: ...
    @property
    def limit_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def viewed_slots(self) -> int: ...
    @property
    def viewed_bytes(self) -> int: ...

class Scheduler:
    def __init__(
        self,
        *,
        workers: int,
        buffer: int,
        kind: UnitKind,
        unit_records: int,
        max_restarts: int,
        memory_limit: int,
        lengths: Sequence[int],
        positions: Sequence[Sequence[int] | NDArray[np.int64]],
        next_stream: int,
        ended: Sequence[bool],
        position_capacity: int = 8,
        in_order: bool = True,
        exits_final: bool = False,
        slow_s: float = -1.0,
    ) -> None: ...
    def start_alone(self) -> None: ...
    def on_started(self, worker: int, generation: int, pid: int) -> None: ...
    def on_exited(self, worker: int, generation: int, wait_status: int) -> None: ...
    def on_worker_notified(self) -> None: ...
    def on_failed(self, why: str) -> None: ...
    def add_request(
        self, stream: int, request: Sequence[int] | NDArray[np.int64]
    ) -> None: ...
    def start(
        self,
        blob_fd: int,
        setup: bytes,
        modules: Sequence[str] = (),
        inherited: Sequence[int] = (),
    ) -> None: ...
    def next(self, timeout_s: float) -> NextResult: ...
    def advance(self) -> None: ...
    def add_view(self) -> int: ...
    def position(self) -> tuple[list[NDArray[np.int64]], int, list[bool]]: ...
    def reset(
        self,
        positions: Sequence[Sequence[int] | NDArray[np.int64]],
        next_stream: int,
        ended: Sequence[bool],
    ) -> None: ...
    def processes(self) -> list[tuple[int, bool, int | None]]: ...
    def counts(self) -> list[tuple[int, int, int, int, bytes]]: ...
    def kill(self, worker: int) -> None: ...
    def close(self) -> None: ...
    @property
    def arena_fd(self) -> int: ...

class PinnedSlot:
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

def pin_slot(address: int) -> PinnedSlot | None: ...

# csrc/bindings/schedule/bind_worker_end.cpp

def keep_freed_memory() -> None: ...

STATUS_OK: int
STATUS_END: int
STATUS_ERROR: int
STATUS_MOVED: int

class UnitKind(Enum):
    RANGE = 0  # records [first, first + count) of the stream, by any worker
    SEQUENTIAL = 1  # the next outputs of the stream, by its owner
    REQUEST = 2  # the outputs that were requested, by the stream's owner

class Work:
    @property
    def id(self) -> int: ...
    @property
    def stream(self) -> int: ...
    @property
    def kind(self) -> UnitKind: ...
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def continues_stream(self) -> bool: ...
    @property
    def position_before(self) -> NDArray[np.int64]: ...
    @property
    def address(self) -> int: ...
    @property
    def capacity(self) -> int: ...

class Arena:
    def __init__(self, memory_limit: int) -> None: ...
    @property
    def fd(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def charged(self) -> int: ...
    def take(
        self, bytes: int, beyond_limit: bool = False
    ) -> tuple[int, int] | None: ...
    def charge_populated(self, offset: int, bytes: int) -> None: ...
    def give_back(self, offset: int) -> None: ...

class WorkerEnd:
    def __init__(
        self, arena_fd: int, notify_fd: int, worker: int, generation: int
    ) -> None: ...
    def claim(self) -> Work | None: ...
    def request_larger_slot(self, bytes: int) -> int | None: ...
    def commit(
        self,
        status: int,
        outputs: int,
        bytes: int,
        position_after: Sequence[int] | NDArray[np.int64],
    ) -> None: ...
    def is_awaited(self) -> bool: ...
    def offer_part(
        self,
        outputs: int,
        bytes: int,
        position_after: Sequence[int] | NDArray[np.int64],
    ) -> bool: ...
    def can_resume(self) -> bool: ...
    def resume(self) -> Work | None: ...
    def set_startup_error(self, text: str) -> None: ...
    def publish_status(self, text: str) -> None: ...
    @property
    def workers(self) -> int: ...
    @property
    def max_unit_bytes(self) -> int: ...
    @property
    def position_capacity(self) -> int: ...
    @property
    def current_record_address(self) -> int: ...

# csrc/bindings/schedule/bind_pool_lane.cpp

class PoolResults:
    def __init__(self) -> None: ...
    def take(self) -> list[tuple[int, int, int, float, float, bytes]]: ...

class PoolLane:
    def __init__(
        self,
        arena_fd: int,
        notify_fd: int,
        worker: int,
        generation: int,
        results: PoolResults,
    ) -> None: ...
    def serve(
        self, socket: int, server: int, sends: bool
    ) -> tuple[Literal["stop", "request", "packet"], bytes]: ...
    @property
    def served(self) -> int: ...
