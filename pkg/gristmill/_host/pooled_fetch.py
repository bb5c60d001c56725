"""The program of a torch loader whose workers are those of a pool.

A worker number of a rank is a stream here.  One process computes the streams of several
ranks, and each stream behaves as if it had the process for itself: it has its own
dataset, random generators and `get_worker_info`.  The worker's process swaps the
generators when it changes the stream.

The outputs of a stream depend on its earlier requests, since these have drawn random
numbers.  Each request therefore has the digest of all requests of its stream before it.
Ranks that read the same outputs have the same digests while they are in step.  A rank
that resumes from a state is not, so a stream has a copy of everything for each of them.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import io
import pickle
import random
from typing import Any, ClassVar

import numpy as np
import torch
import torch.utils.data

from gristmill._base import open_files
from gristmill._base.epoch_context import epoch_context
from gristmill._base.types import Alloc, Int64Array
from gristmill._torch import private
from gristmill._torch.batches import slot_collation
from gristmill._torch.batches.program_pickling import ProgramPickle
from gristmill._torch.workers.fetch import FetchProgram, FetchStream

# The digest before the first request.
START = 0
# A request begins with the digests before and after it.
DIGEST_WORDS = 2
# Copies of a stream for ranks that are not in step.
MAX_COPIES = 64
# Arrays and tensors of more bytes, and collections of more items, are not copied.
MAX_COPIED_BYTES = 64 << 10
MAX_COPIED_ITEMS = 1024


def digest_after(before: int, words: Int64Array) -> int:
    """Return the digest of a stream's requests up to the one in `words`."""
    digest = hashlib.blake2b(words.tobytes(), digest_size=8, key=before.to_bytes(8))
    # Positive, as a request number, and not `START`.
    return int.from_bytes(digest.digest()) >> 1 | 1


@dataclasses.dataclass(frozen=True)
class PooledFetchProgram(FetchProgram):
    """A `FetchProgram` for a pool.

    Attributes:
        run: Differs between iterators that do not read the same outputs.
    """

    run: str = ""

    def open_stream(  # type: ignore[override]
        self, stream: int, record_address: int = 0
    ) -> PooledFetchStream:
        """See `FetchProgram.open_stream`."""
        return PooledFetchStream(self, stream)

    def unpicklable_note(self) -> str:
        return (
            "The dataset, collate_fn and worker_init_fn of a loader with"
            " gristmill.host.share are sent to the workers of the host. Open files,"
            " locks and connections in __getitem__ or worker_init_fn."
        )


class PooledProgramPickle(ProgramPickle):
    """Pickles a program for processes that are not children of this one."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        function, (*arguments, tracker) = super().__reduce_ex__(protocol)
        # The resource tracker of this process is only for children, too.
        if len(self.inherited) > (tracker is not None):
            raise RuntimeError(
                "The dataset has a lock, a queue, or a tensor in shared memory, which"
                " only children of this process can use, but the workers of"
                " gristmill.host.share are not its children. Make it in __getitem__ or"
                " worker_init_fn, or use a tensor that is not shared."
            )
        return function, (*arguments, None)


class PooledFetchStream:
    """Answers the requests to one worker number.  See `FetchStream`."""

    def __init__(self, program: PooledFetchProgram, worker: int) -> None:
        self._program = program
        self._worker = worker
        # By the digest of the requests that each one has answered, the last one last.
        self._copies: collections.OrderedDict[int, IsolatedStream]
        self._copies = collections.OrderedDict()

    def answer(self, request: Int64Array, alloc: Alloc) -> Any:
        """See `FetchStream.answer`; the request begins with two digests."""
        before, after = request[:DIGEST_WORDS].tolist()
        copy = self._copies.pop(before, None)
        if copy is None:
            # The first request, or the process that had this stream was lost.
            IsolatedStream.leave_process()
            copy = IsolatedStream(_copy_program(self._program), self._worker)
        self._copies[after] = copy
        if len(self._copies) > MAX_COPIES:
            self._copies.popitem(last=False)[1].close()
        copy.enter_process()
        return copy.answer(request[DIGEST_WORDS:], alloc)

    def leave_slot(self) -> None:
        """See `FetchStream.leave_slot`."""
        slot_collation.move_live_batches()

    def close(self) -> None:
        """Drop the iterators of the datasets."""
        while self._copies:
            self._copies.popitem()[1].close()


class IsolatedStream(FetchStream):
    """A stream that has the process's generators while it computes."""

    # The stream that has them now.
    _present: ClassVar[IsolatedStream | None] = None
    # The process's generators when this stream left it.
    _generators: tuple[Any, Any, torch.Tensor]
    _worker_info: Any = None

    def __init__(self, program: FetchProgram, worker: int) -> None:
        IsolatedStream._present = self
        super().__init__(program, worker)

    @classmethod
    def leave_process(cls) -> None:
        """Let the present stream keep the state of the process."""
        if (present := cls._present) is not None:
            present._generators = (
                random.getstate(),
                np.random.get_state(),  # noqa: NPY002 (users' code draws from it)
                torch.get_rng_state(),
            )
            present._worker_info = torch.utils.data.get_worker_info()
        cls._present = None

    def enter_process(self) -> None:
        """Give the process the state that it had when this stream left it."""
        if IsolatedStream._present is self:
            return
        self.leave_process()
        IsolatedStream._present = self
        python, numpy, torch_state = self._generators
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(torch_state)
        private.set_worker_info_object(self._worker_info)
        epoch_context.warns = self._worker == 0
        torch.set_default_dtype(self._program.default_dtype)
        slot_collation.install(self._program.collate_rules)

    def close(self) -> None:
        """See `FetchStream.close`."""
        super().close()
        if IsolatedStream._present is self:
            IsolatedStream._present = None


def _copy_program(program: PooledFetchProgram) -> PooledFetchProgram:
    """Return a copy whose objects can change without changing the program's.

    Large arrays and collections are not copied: all streams of a process have the same
    ones.
    """
    file, kept = io.BytesIO(), list[Any]()
    try:
        _CopyPickler(file, kept).dump(program)
        file.seek(0)
        copy: PooledFetchProgram = _CopyUnpickler(file, kept).load()
    except Exception as error:
        if program.iterable:
            error.add_note(
                "A worker of the pool copies an IterableDataset for each rank."
            )
            raise
        return program  # A map-style dataset rarely changes.
    return copy


class _CopyPickler(open_files.Pickler):
    def __init__(self, file: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(file, 5)
        self._kept = kept

    def persistent_id(self, obj: Any) -> int | None:
        """Return a number in place of the pickle of an object that is not copied."""
        if not _is_kept(obj):
            return None
        self._kept.append(obj)
        return len(self._kept) - 1


class _CopyUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, kept: list[Any]) -> None:
        super().__init__(file)
        self._kept = kept

    def persistent_load(self, number: Any) -> Any:
        return self._kept[number]


@functools.cache
def _size_limit(cls: Any) -> int | None:
    """Return the bytes or items of the largest copied object of a class; None: any."""
    if cls is torch.Tensor or cls is torch.nn.Parameter or issubclass(cls, np.ndarray):
        return MAX_COPIED_BYTES
    if cls in (bytes, bytearray, str):
        return MAX_COPIED_BYTES
    return MAX_COPIED_ITEMS if cls in (list, tuple, dict, set, frozenset) else None


def _is_kept(obj: Any) -> bool:
    if isinstance(obj, type):
        return True
    cls: Any = type(obj)
    limit = _size_limit(cls)
    if limit is None:
        return False
    size: int = obj.nbytes if hasattr(obj, "nbytes") else len(obj)
    return size > limit
