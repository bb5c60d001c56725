"""The compiled core of gristmill; not a public interface."""

import os
from collections.abc import Callable, Sequence
from enum import Enum
from typing import (
    Any,
    Literal,
    Protocol,
    Self,
    final,
    overload,
    type_check_only,
)

import numpy as np
from numpy.typing import NDArray

# core/permute.hpp

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

def permutation(count: int, seed: int) -> NDArray[np.int64]:
    """Return the positions of [0, ..., count - 1] in a permutation of them.

    It is ``index_shuffle`` of 4 rounds over a whole range at once, but a permutation
    for every ``count``: where Grain's width of the network is one bit short, at 2**16 +
    1, 2**18 + 1, 2**20 + 1 and so on, it takes the next one.

    Args:
        count: How many, at least 0.
        seed: Picks the permutation, in [0, 2**32).

    Returns:
        Shape (count,), dtype int64.

    Raises:
        ValueError: ``count`` is negative.
        TypeError: An argument does not fit its 64 or 32 bits.
    """

# core/window_shuffle.hpp

def window_shuffle(
    positions: NDArray[np.int64], window_size: int, seed: int, length: int
) -> NDArray[np.int64]:
    """Return what comes at each position when windows are shuffled.

    Each epoch of ``length`` positions is cut into windows of ``window_size``, its last
    one ends with it. Window ``w``, counted on through all epochs, is permuted with the
    seed ``seed + w``.

    Args:
        positions: Shape (n,), dtype int64, any layout, any int64s in any order.
        window_size: At least 1.
        seed: Of window 0. ``seed + w`` must be in [0, 2**32) for all windows asked for.
        length: How many positions make an epoch.

    Returns:
        The positions that come in their place, shape (n,), dtype int64.

    Raises:
        ValueError: ``window_size`` is not positive, or ``positions`` are not of one
            dimension.
        TypeError: The seed of a window does not fit 32 bits, or an argument its type.
        ZeroDivisionError: ``length`` is not positive and there are positions.
        OverflowError: A position that comes in place of another exceeds 64 bits.
    """

# core/plan.hpp

@final
class KeyPlan:
    """An immutable formula from positions to record keys.

    Plans are built from ``range`` by methods that return new plans. ``len(plan)`` is
    one epoch; every int64 is a position, and position ``i`` lies in epoch
    ``i // len(plan)``. Plans compare by value and can be hashed and pickled.

    Example:
        >>> plan = KeyPlan.range(5).take(4, -2, 3)
        >>> [plan.key(i) for i in range(3)]
        [4, 2, 0]
    """

    @staticmethod
    def range(count: int, start: int = 0, step: int = 1) -> KeyPlan:
        """Return the keys start, start + step, ..., ``count`` of them."""

    @staticmethod
    def positions(count: int) -> KeyPlan:
        """Return the plan whose keys are the positions, in epochs of ``count``.

        On top of it stand plans for a dataset of ``count`` elements that is not a
        plan itself: their keys are its indices, ``k + epoch * count`` for its element
        ``k``.

        Example:
            >>> plan = KeyPlan.positions(4).take(1, 1, 2).repeat(2)
            >>> [plan.key(i) for i in range(4)]
            [1, 2, 5, 6]
        """

    def shard(self, first: int, last: int) -> KeyPlan:
        """Restrict each epoch to its offsets [first, last).

        Raises:
            ValueError: Not 0 <= first <= last <= len(self).
        """

    def shuffle(self, seed: int) -> KeyPlan:
        """Permute each epoch ``e`` with the seed (seed + e) mod 2**32.

        Raises:
            ValueError: ``seed`` is not in [0, 2**32).
        """

    def repeat(self, epochs: int | None = None, reseed: bool = True) -> KeyPlan:
        """Make one epoch of ``epochs`` epochs; None is endless.

        Args:
            epochs: How many; at least 1.
            reseed: False makes each of them epoch 0.

        Raises:
            ValueError: ``epochs`` is not positive, or the plan is endless already.
            OverflowError: The new length exceeds 2**63 - 1.
        """

    def take(self, first: int, step: int, count: int) -> KeyPlan:
        """Take the offsets first, first + step, ..., ``count`` of them, of each epoch.

        Raises:
            ValueError: One of them is not in [0, len(self)).
        """

    def key(self, position: int) -> int:
        """Return the key at ``position``, any int64.

        Raises:
            ZeroDivisionError: The plan is empty.
            OverflowError: The key of a plan over ``positions`` exceeds 64 bits, or an
                epoch 128 bits, deep in nested endless plans.
        """

    def keys(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ``key(position)`` for each position.

        Neighbours that lie in one epoch are resolved together, as by ``fill``.

        Args:
            positions: Shape (n,), dtype int64, any layout, any int64s in any order.

        Returns:
            The keys, shape (n,), dtype int64.

        Raises:
            ValueError: ``positions`` is not of one dimension.
            TypeError: ``positions`` has another dtype.
            ZeroDivisionError, OverflowError: As of ``key``.
        """

    def fill(self, first: int, step: int, out: NDArray[np.int64]) -> None:
        """Set ``out[k]`` to ``key(first + k * step)``.

        Args:
            first: The first position, any int64.
            step: The way between two positions, any int64.
            out: Shape (n,), dtype int64, C-contiguous and writeable.

        Raises:
            ValueError: ``out`` is not of one dimension, not aligned or read-only.
            TypeError: ``out`` has another dtype or layout.
            OverflowError: A position exceeds 64 bits.
            ZeroDivisionError: The plan is empty and ``out`` is not.
        """

    @property
    def ops(self) -> tuple[tuple[Any, ...], ...]:
        """The operations as tuples (name of the method, *arguments)."""

    def __len__(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

# core/mixture.hpp

@final
class Mixture:
    """An immutable rule that mixes datasets by whole proportions.

    Of any number of first positions each component has its share, to within one, in
    the order of Grain's ``mix``. Every int64 is a position. Mixtures can be pickled.

    Args:
        proportions: One for each component, each positive, their sum below 2**63.

    Raises:
        ValueError: There is none, or one is not positive.
        OverflowError: The sum exceeds 64 bits.

    Example:
        >>> components, positions = Mixture([1, 2]).take(np.arange(6))
        >>> components.tolist(), positions.tolist()
        ([0, 1, 1, 0, 1, 1], [0, 0, 1, 1, 2, 3])
    """

    def __init__(self, proportions: Sequence[int]) -> None: ...
    def take(
        self, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what stands at each position.

        Args:
            positions: Shape (n,), dtype int64, any layout, any int64s in any order.

        Returns:
            The components and the positions in them, both of shape (n,), dtype int64.

        Raises:
            ValueError: ``positions`` is not of one dimension.
            TypeError: ``positions`` has another dtype.
        """

def keep_freed_memory() -> None:
    """Keep memory that was freed for what this process allocates next."""

# core/collate.hpp

class Pool:
    """Threads that read ahead of need; each starts when there is work for it.

    Args:
        threads: At most so many, from 1 to 1024.
    """

    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...

class Watch:
    """Calls back, from a thread of the core, while something takes long.

    Args:
        callback: Called with the time since `begin`, in s; returns the time until it
            is to be called again, in s, or None.  It may still run after `end`.
        waiting: Whether it is called only if the thread that called `begin` waits for
            most of the time, and nothing in this process computes meanwhile.
    """

    def __init__(
        self, callback: Callable[[float], float | None], *, waiting: bool = False
    ) -> None: ...
    def begin(self, delay_s: float) -> None:
        """Watch this thread from now on; the first look is after `delay_s`."""

    def end(self) -> None:
        """Watch no longer: no call begins after this."""

class PendingGather:
    """A ``gather`` by the threads of a pool, which has begun.

    The arrays must not change before it was waited for, or is gone: its end waits,
    too. In a forked child waiting gathers there, into the child's copy of ``out``.

    Raises:
        ValueError, TypeError: As ``gather`` does.
    """

    def __init__(
        self,
        pool: Pool,
        table: NDArray[Any],
        rows: NDArray[np.int64],
        out: NDArray[Any],
    ) -> None: ...
    def wait(self) -> None:
        """Return when ``out`` is filled.

        Raises:
            IndexError: A row is out of range; other rows may have been written.
        """

def gather(table: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
    """Write ``table[rows]`` to ``out``.

    Args:
        table: Shape (N, *S), C-contiguous, any dtype without references.
        rows: Shape (B,), dtype int64, each in [0, N); negative rows are refused.
        out: Shape (B, *S), the table's dtype, C-contiguous, apart from the table.

    Raises:
        IndexError: A row is out of range; nothing was written.
        ValueError: The shapes, dtypes or layouts do not fit each other, or ``out``
            shares memory with another argument.
        TypeError: The dtype holds references, or ``rows`` is not int64.
    """

def find_chunks(
    bounds: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return where rows of a table lie that is kept in chunks.

    Args:
        bounds: Shape (G + 1,): chunk g has the rows ``[bounds[g], bounds[g + 1])``.
        rows: Shape (B,), each in ``[0, bounds[-1])``.

    Returns:
        The chunks that the rows are in, in the order of their first rows, shape
        (C,); for each row the number of its chunk among these, and its place in the
        chunk, both of shape (B,). All int64.

    Raises:
        IndexError: A row is out of range.
        ValueError: The bounds do not ascend from 0, or a shape is another.
        TypeError: An argument is not int64.
    """

def gather_chunks(
    chunks: list[tuple[NDArray[Any], ...]],
    numbers: NDArray[np.int64],
    offsets: NDArray[np.int64],
    outs: list[NDArray[Any]],
) -> None:
    """Write row ``offsets[k]`` of chunk ``numbers[k]`` to row k of columns.

    Args:
        chunks: C tuples of K columns of shape (N, *S), with one N in each chunk,
            C-contiguous, without references.
        numbers: Shape (B,), dtype int64, each in [0, C).
        offsets: Shape (B,), dtype int64, each in [0, N) of its chunk.
        outs: K arrays of shape (B, *S) of the columns' dtypes, C-contiguous, apart
            from the chunks.

    Raises:
        IndexError: A chunk or row is out of range.
        ValueError: The shapes, dtypes or layouts do not fit each other, or an out
            shares memory with a chunk.
        TypeError: A dtype holds references, or an index is not int64.
    """

def interleave(columns: Sequence[NDArray[Any]], out: NDArray[np.uint8]) -> None:
    """Lay the items of columns row by row.

    Args:
        columns: K arrays of shape (N,), C-contiguous, without references.
        out: Shape (N, R), where R is the sum of their item sizes, C-contiguous, apart
            from the columns.

    Raises:
        ValueError: The shapes or layouts do not fit each other, or memory is shared.
        TypeError: A dtype holds references.
    """

def gather_interleaved(
    tables: list[NDArray[np.uint8]],
    numbers: NDArray[np.int64],
    offsets: NDArray[np.int64],
    outs: list[NDArray[Any]],
) -> None:
    """Write row ``offsets[k]`` of table ``numbers[k]`` to item k of columns.

    Args:
        tables: C arrays of shape (N, R) that `interleave` filled.
        numbers: Shape (B,), dtype int64, each in [0, C).
        offsets: Shape (B,), dtype int64, each in [0, N) of its table.
        outs: K arrays of shape (B,), with the dtypes of the columns that were laid
            out, C-contiguous, apart from the tables.

    Raises:
        IndexError: A table or row is out of range.
        ValueError: The shapes or layouts do not fit each other, or memory is shared.
        TypeError: A dtype holds references, or an index is not int64.
    """

def stack(
    elements: list[Any],
    out: NDArray[Any],
    streaming: bool = False,
) -> int:
    """Write B arrays of shape S to ``out``, as ``np.stack`` does.

    Args:
        elements: B exact ndarrays, C-contiguous, of one shape and dtype.
        out: Shape (B, *S), the elements' dtype, C-contiguous, apart from them.
        streaming: Whether long rows are written past the caches, which is faster
            where they are not read soon.

    Returns:
        -1, or the position of the first element that does not fit; nothing was
        written then.

    Raises:
        ValueError: ``out`` is read-only, not C-contiguous, or not of B rows.
        TypeError: The dtype of ``out`` holds references.
    """

def stack_scalars(elements: list[Any], out: NDArray[Any]) -> int:
    """Write B scalars of one exact type to ``out``, as ``np.stack`` does.

    Args:
        elements: B NumPy scalars of the dtype of ``out``, or bools, ints or floats
            if it is bool, int64 or float64.
        out: Shape (B,), a bool, integer, float or complex dtype in native order.

    Returns:
        -1, or the position of the first element that does not fit; those before it
        were written.

    Raises:
        ValueError: ``out`` is read-only, not C-contiguous, or not of shape (B,).
        TypeError: The dtype of ``out`` holds references.
    """

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
    def slot_request_fd(self) -> int: ...
    def dismiss(self) -> None: ...

# core/example.hpp

@final
class ExampleParser:
    """Parses serialized tf.train.Examples.

    Args:
        outputs: What a record becomes: the key, the name of the feature, the dtype
            (object for bytes), the shape of it or of its rows, whether it is that
            shape, and a default of that dtype and shape or None. A feature that is
            not of a fixed shape is any number of rows.
        refuse_others: Whether records may not have other features.

    Raises:
        ValueError: Features cannot be read as one of the dtypes.
    """

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
    def parse(self, record: object) -> dict[Any, Any]:
        """Return what a record, bytes or a buffer of them, becomes.

        Raises:
            CorruptRecord: It has not what the outputs need; the text says where.
            TypeError: It is no buffer.
        """

    def parse_block(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        alloc: Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]] | None = None,
    ) -> dict[Any, NDArray[Any]]:
        """Return what k records become, in arrays of shape ``(k, *S)``.

        Args:
            data: The bytes of the records, of shape ``(n,)``.
            offsets: Where they begin and the last one ends, of shape ``(k + 1,)``.
            alloc: Called with shape and dtype, makes an array.

        Raises:
            CorruptRecord: As `parse`; its ``position`` says of which record.
            ValueError: An output is not fixed or not of numbers, or an array does
                not have the shape or dtype that it must have.
        """

def parse_all_features(record: object) -> dict[str, NDArray[Any]]:
    """Return all features of a tf.train.Example, as arrays of one dimension.

    Raises:
        CorruptRecord: It is none.
        TypeError: It is no buffer.
    """

# core/images/*.hpp

def image_header(data: object) -> tuple[str, int, int, int, int]:
    """Return what a file says of its picture before the pixels.

    That is the format, height and width as stored, channels, and orientation, 1 to
    8, of EXIF or XMP. The format is "jpeg", or "" with zeros and orientation 1 for
    what `render_images` does not read.

    Raises:
        CorruptRecord: It is a JPEG file whose header is damaged.
        TypeError: It is no buffer.
    """

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
) -> None:
    """Decode, turn, crop, resize, flip and lay out n pictures.

    Args:
        images: JPEG files, as buffers of one dimension, and pixels, C-contiguous
            uint8 arrays of shape ``(H, W, C)``.
        plans: Shape ``(n, 10)``: top, left, height and width of the crop of the
            turned picture; height and width that it is resized to; top and left of
            the output in that, with zeros around it; whether to flip the output from
            right to left; the orientation.
        out: Shape ``(n, H, W, C)``, or ``(n, C, H, W)`` with ``chw``, C-contiguous,
            C from 1 to 4; uint8 unless there is a table. A fourth channel of a
            JPEG file is 255, a single one the luminance.
        filter: 0 nearest, 1 box, 2 bilinear, 3 hamming, 4 bicubic, 5 lanczos: those
            of Pillow, whose pixels these are.
        table: Shape ``(C, 256)``, out's dtype, of 1, 2 or 4 bytes: what values
            become. None leaves them as they are.
        chw: Whether channels come before rows and columns.
        draft: Whether JPEG files are decoded at 1/2, 1/4 or 1/8, where that is no
            smaller than what the crop is resized to.
        threads: How many threads render, at most 1024.

    Raises:
        CorruptRecord: A file is damaged, or a crop is not within its picture;
            ``position`` says which of the images. Others may be rendered.
        ValueError: The arguments do not fit each other.
        TypeError: An image is no buffer.
    """

# core/range_cache.hpp

@final
class RangeCache:
    """Bytes of far files, kept in one file of this machine that processes share.

    A far file is an `origin`: numbers of its name and its version, and its size.

    Args:
        folder: Where the file lies; made if it is missing.
        bytes: How large it may become, at least ``least_bytes()``.

    Raises:
        OSError: It can be neither opened nor made.
        ValueError: ``bytes`` is too small.
    """

    def __init__(self, folder: str | bytes, bytes: int) -> None: ...
    @staticmethod
    def least_bytes() -> int: ...
    @property
    def path(self) -> str: ...
    @staticmethod
    def pages_of(
        origin: tuple[int, int, int], offset: int, size: int
    ) -> tuple[int, int]:
        """Return the offset and size of the pages that a range lies in."""

    def read(
        self, origin: tuple[int, int, int], offset: int, size: int
    ) -> bytes | None:
        """Return a range; None if some of it is not there."""

    def write(self, origin: tuple[int, int, int], offset: int, pages: bytes) -> str:
        """Keep whole pages from an offset on, as far as there is room.

        Returns:
            Why nothing is kept any more, once; empty if all is well.

        Raises:
            ValueError: They are no whole pages.
        """

# core/record_reader.hpp

class RecordReader:
    """Records that are read by number; any threads may read at once."""

    def __len__(self) -> int: ...
    def read(self, record: int) -> bytes:
        """Return one record.

        Raises:
            IndexError: ``record`` is not in [0, len(self)).
            CorruptRecord: The record is damaged; others can still be read.
        """

    @overload
    def read_many(
        self, records: NDArray[np.int64], *, packed: Literal[False] = False
    ) -> list[bytes]: ...
    @overload
    def read_many(
        self, records: NDArray[np.int64], *, packed: Literal[True]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the records of the indices (n,), each chunk decoded once.

        Args:
            records: Shape (n,).
            packed: Whether to return bytes (size,) and offsets (n + 1,): record k is
                ``bytes[offsets[k]:offsets[k + 1]]``.
        """

    def sizes(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sizes in bytes; nothing is read if ``knows_sizes``."""

    def close(self) -> None:
        """Close the file when reads under way are done; may be called again."""

    @property
    def closed(self) -> bool: ...
    @property
    def path(self) -> str: ...
    @property
    def knows_sizes(self) -> bool: ...

class PendingRead:
    """A read by the threads of a Pool, begun when this is made.

    Args:
        pool: Whose threads read. A reader that is far away has its own, and is read
            by as many of them as it likes best.
        reader: What is read; it may be closed meanwhile.
        records: Shape (n,).
        packed: See ``RecordReader.read_many``.
        parts: How many threads share the work; 0 for all of the pool.
    """

    def __init__(
        self,
        pool: Pool,
        reader: RecordReader,
        records: NDArray[np.int64],
        *,
        packed: bool = False,
        parts: int = 0,
    ) -> None: ...
    def wait(self) -> Any:
        """Return when all is read: what ``read_many`` returns.

        Raises:
            CorruptRecord: A record is damaged.
            ValueError: The records were returned before.
        """

# core/chunk_cache.hpp

class ChunkCache:
    """Decoded chunks of at most ``max_bytes``, shared by the files made with it."""

    def __init__(self, max_bytes: int) -> None: ...
    @property
    def held_bytes(self) -> int: ...

# core/record_file.hpp

@type_check_only
class RangeReader(Protocol):
    """What a file may be read by instead of the system: see python_file.hpp.

    Several threads call it at once. What it raises comes to the caller as it is.
    """

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int:
        """Bytes of the file."""

    @property
    def gap_bytes(self) -> int:
        """Reading this much in vain costs as much as another read."""

    @property
    def run_bytes(self) -> int:
        """A read of several records has at most this many bytes."""

    @property
    def tail_bytes(self) -> int:
        """What is read of the end of the file when it is opened."""

    @property
    def parallel(self) -> int:
        """How many reads should be under way at once."""

    def read_range(self, offset: int, size: int, /) -> bytes:
        """Return ``size`` bytes from ``offset`` on."""

    def change(self) -> str:
        """Say how the file changed since it was opened; empty if it did not."""

class RecordFile(RecordReader):
    """An ArrayRecord file, open for reading.

    Args:
        file: The path of a regular file, or what is read instead of one.
        verify: Which hashes are compared: "all" of data and headers, "headers", or
            "none".
        access: "pread", or "mmap" for less work per record; a mapped file that
            another process truncates may end this process. Of paths only.
        cache: Keeps decoded chunks of more than one record, of other files too; None
            for one of 64 MiB.
        stamp: Bytes and version of the file that is wanted, as counting told them.
        kept: Where an index of 2^14 chunks or more may be kept. The first that fits is
            mapped; else it is made, and saved to the first that can be written.

    Raises:
        OSError: The file cannot be opened or read.
        CorruptRecord: It is no ArrayRecord file, is damaged, or has another stamp.
        ValueError: ``verify`` or ``access`` is none of the above.
    """

    def __init__(
        self,
        file: str | RangeReader,
        verify: str = "all",
        access: str = "pread",
        cache: ChunkCache | None = None,
        stamp: tuple[int, int] | None = None,
        kept: Sequence[str] = (),
    ) -> None: ...
    def chunk(self, chunk: int) -> tuple[int, int, int, int]:
        """Return (begin, end, size of the records in bytes, records) of a chunk."""

    @property
    def options(self) -> str:
        """The options that the writer had; "" in files of before October 2022."""

    @property
    def group_size(self) -> int:
        """Records in each chunk but the last."""

    @property
    def num_chunks(self) -> int: ...
    @property
    def index_bytes(self) -> int:
        """Memory of the index."""

# core/files/replace_file.hpp

def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all; make its folder if there is none.

    Raises:
        OSError: It cannot be written.
    """

# core/record_set.hpp

class RecordSet(RecordReader):
    """Ranges of several readers' records as one; `close` lets go of the readers.

    Args:
        name: What errors call it.
        ranges: The first record and the number of records of each part.
        open: Called with the numbers of parts, returns their readers, when these are
            needed.
    """

    def __init__(
        self,
        name: str,
        ranges: Sequence[tuple[int, int]],
        open: Callable[[list[int]], Sequence[RecordReader]],
    ) -> None: ...
    def open_part(self, part: int, reader: RecordReader) -> None:
        """Give a part its reader, unless it has one.

        Raises:
            IndexError: There is no such part, or the reader lacks records of it.
        """

# core/tf_record_file.hpp

@final
class ScanProgress:
    """How far a pass over a file is; any thread may look, or cancel it."""

    def __init__(self) -> None: ...
    @property
    def done_bytes(self) -> int: ...
    def cancel(self) -> None:
        """Make the pass end soon, by a CorruptRecord."""

def count_records(
    file: str | RangeReader, verify: str = "all"
) -> tuple[int, int, tuple[int, int]]:
    """Count the records of an ArrayRecord file.

    Reads no more of its end than that takes. Arguments and errors are RecordFile's.

    Returns:
        The number of its records, of its chunks, and its bytes and version.
    """

def count_all_records(
    paths: Sequence[str], verify: str = "all"
) -> list[tuple[int, int, tuple[int, int]]]:
    """Count the records of files of this machine, by several threads.

    Raises what `count_records` raises for the first that fails.
    """

class TfRecordFile(RecordReader):
    """A TFRecord file, open for reading.

    Args:
        file: As of RecordFile.
        verify: Which checksums are compared: "all", those of the "headers", which are
            the lengths, or "none".
        access: As of RecordFile.
        kept: As of RecordFile.
        progress: How far indexing is, where no index is kept.

    Raises:
        OSError: The file cannot be opened or read.
        CorruptRecord: It is no TFRecord file, or is compressed, truncated or damaged.
        ValueError: ``verify`` or ``access`` is none of the above.
    """

    def __init__(
        self,
        file: str | RangeReader,
        verify: str,
        access: str,
        kept: Sequence[str],
        progress: ScanProgress,
    ) -> None: ...
    @property
    def index_path(self) -> str:
        """Where the index is kept; "" if nowhere."""

    @property
    def index_bytes(self) -> int:
        """Memory of the index."""

# core/tar/tar_file.hpp

class TarFile(RecordReader):
    """A tar file, open for reading; a record is the part of it that has a sample.

    Args:
        file: As of RecordFile.
        access: As of RecordFile.
        kept: Files that may hold the index; the first that fits is loaded, else it is
            saved to the first that can be written.
        stamp: As of RecordFile.
        progress: How far indexing is, where none fits.

    Raises:
        OSError: The file cannot be opened or read.
        CorruptRecord: It is no tar file, or is compressed, truncated or damaged.
        ValueError: ``access`` is unknown.
    """

    def __init__(
        self,
        file: str | RangeReader,
        access: str,
        kept: Sequence[str],
        stamp: tuple[int, int] | None,
        progress: ScanProgress,
    ) -> None: ...
    @property
    def stamp(self) -> tuple[int, int]:
        """Bytes and version of the file."""

    @property
    def index_bytes(self) -> int:
        """Memory of the index."""

def tar_sample(record: bytes, url: str) -> dict[str, Any]:
    """Return the fields of a record of a TarFile, with its key and ``url``.

    Raises:
        CorruptRecord: It is none, or two fields have one name.
    """

# core/bag/bag_file.hpp

class BagFile(RecordReader):
    """A Bagz file, open for reading.

    Args:
        file: As of RecordFile.
        limits: The file of the limits; None if they are at the end of ``file``.
        access: As of RecordFile.
        compressed: Whether each record is, with zstd.
        stamp: As of RecordFile.

    Raises:
        OSError: A file cannot be opened or read.
        CorruptRecord: It is no Bagz file, or is truncated or damaged.
        ValueError: ``access`` is unknown.
    """

    def __init__(
        self,
        file: str | RangeReader,
        limits: str | RangeReader | None,
        access: str,
        compressed: bool,
        stamp: tuple[int, int] | None,
    ) -> None: ...
    @property
    def index_bytes(self) -> int:
        """Memory of the limits."""

def count_bag(
    file: str | RangeReader, limits: str | RangeReader | None, access: str
) -> tuple[int, tuple[int, int]]:
    """Return how many records a Bagz file has, and its stamp.

    Arguments and errors are those of BagFile.
    """

# core/tf_record_parser.hpp

@final
class TfRecordStream:
    """The records in a stream of bytes, in order.

    Args:
        source: Has ``readinto(room)``, which fills the front of a memoryview and
            returns how many bytes that were; 0 are the end.
        name: What errors call the stream.
        verify: As of TfRecordFile.
        record: The number of the first record.
        offset: Where it begins, of which ``source`` knows nothing.
    """

    def __init__(
        self, source: Any, name: str, verify: str, record: int, offset: int
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes:
        """Return the next record.

        Raises:
            CorruptRecord: It is damaged.  If only its data are, the one after it comes
                next.
            ValueError: Another thread is reading.
        """

    @property
    def record(self) -> int:
        """The number of the record that comes next."""

    @property
    def offset(self) -> int:
        """Where that begins."""

def tf_record_compression(begin: bytes) -> str:
    """Return "GZIP", "ZLIB" or "" for the first 12 bytes of a TFRecord file."""

# core/scheduler.hpp

@final
class NextResult:
    """What ``Scheduler.next`` found; ``kind`` says which fields count."""

    @property
    def kind(self) -> str:
        """One of output, end, timeout, died, full, closed and forked."""

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

    # died; after a timeout worker, idle, stream and record say what is waited for
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
    # After a slow unit, in s: the time since its claim, the usual time of a unit, and
    # the time that this call has waited.
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
    def need(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def used(self) -> int: ...
    @property
    def kept(self) -> int: ...
    @property
    def kept_bytes(self) -> int: ...

class Scheduler:
    """Publishes units of work to worker processes and delivers outputs in order.

    Args:
        workers: Processes, from 1 to 4094.
        buffer: Units that each may be ahead, beyond the two in hand.
        kind: Who computes a unit, and what.
        unit_records: Records in a unit of kind RANGE.
        max_restarts: How often a unit that ended its worker is tried again.
        memory_limit: Bytes of shared memory, 0 for 80 % of what there is.
        lengths: Records of each stream, -1 where unknown or endless.
        positions: Position of each stream, 1 to `position_capacity` integers.
        next_stream: The stream whose output is due.
        ended: Which streams have ended.
        position_capacity: Integers that a position or request may have, at most 65536.
        in_order: Whether outputs come in order; else as they are done.
        exits_final: Whether no worker takes the place of one that exited.
        slow_s: Time after which a unit is reported, once, if it has also taken 20
            times as long as those before it; negative for never.

    Raises:
        ValueError: An argument is out of range.
        OSError: The shared memory cannot be had.
    """

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
    def on_slot_requested(self) -> None: ...
    def on_failed(self, why: str) -> None: ...
    def ask(self, stream: int, request: Sequence[int] | NDArray[np.int64]) -> None: ...
    def start(
        self,
        blob_fd: int,
        setup: bytes,
        modules: Sequence[str] = (),
        inherited: Sequence[int] = (),
    ) -> None: ...
    def next(self, timeout_s: float) -> NextResult: ...
    def advance(self) -> None: ...
    def hold(self) -> int: ...
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

# core/pinned_slot.hpp

class PinnedSlot:
    """Keeps a slot's pages where they are for as long as it lives.

    The range is ``nbytes`` bytes from ``address`` on, in whole pages.
    """

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

def pin_slot(address: int) -> PinnedSlot | None: ...

# core/worker_end.hpp

STATUS_OK: int
STATUS_END: int
STATUS_ERROR: int
STATUS_MOVED: int

class UnitKind(Enum):
    """Who computes a unit: any worker, or the stream's owner."""

    RANGE = 0  # records [first, first + count) of the stream, by any worker
    SEQUENTIAL = 1  # what comes next in the stream, by its owner
    REQUEST = 2  # what is asked for, by the stream's owner

class Work:
    """A claimed unit."""

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
    def proceed(self) -> bool: ...
    @property
    def position_before(self) -> NDArray[np.int64]: ...
    @property
    def address(self) -> int: ...
    @property
    def capacity(self) -> int: ...

class WorkerEnd:
    """A worker's end of the shared memory; holds one unit at a time.

    Raises:
        OSError: The arena cannot be mapped.
        ValueError: ``arena_fd`` is no arena, or has no such worker.
    """

    def __init__(
        self, arena_fd: int, slot_request_fd: int, worker: int, generation: int
    ) -> None: ...
    def claim(self) -> Work | None:
        """Wait for a unit; None when told to stop.

        Raises:
            RuntimeError: The unit claimed before is neither committed nor lost.
        """

    def need(self, bytes: int) -> int | None:
        """Wait for a larger slot, whose address is returned.

        None if the unit is lost: no longer wanted, or there is no memory for it.
        The content of the old slot is gone.

        Raises:
            RuntimeError: No unit is claimed.
        """

    def commit(
        self,
        status: int,
        outputs: int,
        bytes: int,
        position_after: Sequence[int] | NDArray[np.int64],
    ) -> None:
        """Hand the unit to the parent, with the position after it.

        Raises:
            RuntimeError: No unit is claimed.
            ValueError: An argument does not fit the unit.
        """

    def is_awaited(self) -> bool:
        """Return True if the consumer waits for an output of the unit."""

    def offer_part(
        self,
        outputs: int,
        bytes: int,
        position_after: Sequence[int] | NDArray[np.int64],
    ) -> bool:
        """Offer the unit's first outputs to the parent; returns whether it could.

        The position is that after them.  The slot is the parent's until `resume`.

        Raises:
            RuntimeError: No unit is claimed.
            ValueError: An argument does not fit the unit, or it is not a range.
        """

    def can_resume(self) -> bool:
        """Return True if `resume` does not wait."""

    def resume(self) -> Work | None:
        """Wait for the answer to an offer; returns the unit as it is now.

        It begins after the part if that was taken.  None if it is lost, see `need`.
        """

    def set_startup_error(self, text: str) -> None: ...
    def tell(self, text: str) -> None:
        """Let others read a text in the place of the one before, 2,040 bytes of it."""

    @property
    def workers(self) -> int:
        """How many workers there are, this one among them."""

    @property
    def max_unit_bytes(self) -> int:
        """Bytes of outputs above which a worker cuts a unit of several outputs."""

    @property
    def position_capacity(self) -> int: ...
    @property
    def at_address(self) -> int: ...
