"""What the workers of a loader are asked for, as integers.

The core carries a request to a worker and keeps it until it is answered, so that the
successor of a dead worker is asked the same.  See `_core.Scheduler`, kind REQUEST.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import dataclasses
import io
import os
import pickle
from typing import Any

import numpy as np
import torch

from gristmill._base import open_files
from gristmill._base.types import Int64Array
from gristmill._engine.stream import pack_int64, unpack_int64
from gristmill._torch.indices.draws import Drawn

# The first integer of a request that is not pickled; a pickle's is its length.
_BLOCK, _IN_FILE, _RANGE, _KEY, _NEXT, _WITH_STATE = -1, -2, -4, -5, -6, -7
# Stands for None in a `Next`, whose integers are not negative.
_NONE = -1
# The first integer of a request with an epoch; the second one is its number.
IN_EPOCH = -3
EPOCH_WORDS = 2
_FILE_NAME = "gristmill-request"


@dataclasses.dataclass(frozen=True)
class Next:
    """Asks for what comes next in a dataset that is iterated over.

    Attributes:
        epoch: Counts the iterations over the dataset.
        number: How many were asked for before in this epoch.
        size: Samples in a batch, None for one sample that is no batch; 0 for nothing
            but to begin the epoch, of any dataset.
        seed: Of the epoch, for datapipes.
    """

    epoch: int
    number: int
    size: int | None
    seed: int | None


@dataclasses.dataclass(frozen=True)
class Generators:
    """Asks for the states of a worker's random generators.

    Attributes:
        wanted: What they are to be from now on; None leaves them as they are.
    """

    wanted: Any = None


@dataclasses.dataclass(frozen=True)
class WithState:
    """Asks for a batch, and the state of the worker that has made it."""

    request: Any


def packed(request: Any) -> Int64Array:
    """A request as integers.

    It is of one of the classes above, or what the dataset of a map-style loader is
    asked for: a key, a batch of them, or a `Drawn`.

    Raises:
        Exception: Whatever pickling a key raised.
    """
    if type(request) is Drawn:
        block = request.block
        if type(block) is range:
            return np.array([_RANGE, block.start, block.stop])
        words = np.empty(len(block) + 1, np.int64)
        words[0], words[1:] = _BLOCK, block
        return words
    if type(request) is int and request.bit_length() < 64:
        return np.array((_KEY, request))
    if type(request) is Next:
        size = _NONE if request.size is None else request.size
        seed = _NONE if request.seed is None else request.seed
        return np.array((_NEXT, request.epoch, request.number, size, seed))
    if type(request) is WithState:
        return np.concatenate([(_WITH_STATE,), packed(request.request)])
    return pack_int64(_pickled(request))


def moved_to_file(words: Int64Array) -> tuple[Int64Array, io.FileIO]:
    """A request that is too long for the core: what stands for it, and where it is.

    The file has no name: workers open it by the number of this process's descriptor.
    It is the caller's to close when the request is answered.
    """
    file = io.FileIO(os.memfd_create(_FILE_NAME, os.MFD_CLOEXEC), "w")
    file.write(words.data)
    return np.array([_IN_FILE, os.getpid(), file.fileno()]), file


def in_epoch(words: Int64Array, epoch: int) -> Int64Array:
    """A request, behind the epoch in which its samples are drawn."""
    return np.concatenate([[IN_EPOCH, epoch], words])


def unpacked(words: Int64Array) -> Any:
    """The request that `packed` was given; a list in place of a `Drawn`."""
    kind = words.item(0)
    if kind == _BLOCK:
        return words[1:].tolist()
    if kind == _KEY:
        return words.item(1)
    if kind == _NEXT:
        epoch, number, size, seed = words[1:].tolist()
        size, seed = (None if word == _NONE else word for word in (size, seed))
        return Next(epoch, number, size, seed)
    if kind == _WITH_STATE:
        return WithState(unpacked(words[1:]))
    if kind == _RANGE:
        return [*range(*words[1:].tolist())]
    if kind == _IN_FILE:
        return unpacked(_read(*words[1:].tolist()))
    return pickle.loads(unpack_int64(words))


def _read(pid: int, fd: int) -> Int64Array:
    """The words of a request that is in a file.

    Raises:
        OSError: The request was dropped: nobody waits for the answer.
    """
    path = f"/proc/{pid}/fd/{fd}"
    found = os.readlink(path)
    if not found.startswith(f"/memfd:{_FILE_NAME}"):
        raise OSError(f"{path} is {found}; expected a request, which was dropped")
    return np.fromfile(path, np.int64)


def _pickled(request: Any) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5)
    pickler.dispatch_table = _REDUCTIONS
    with contextlib.suppress(Exception):
        pickler.dump(request)
        return file.getvalue()
    return open_files.dumps(request)


def _reduced(tensor: torch.Tensor) -> Any:
    """A tensor by itself: torch would pickle all of the storage that it views."""
    try:
        return torch.from_numpy, (tensor.numpy(),)
    except (RuntimeError, TypeError):
        return tensor.__reduce_ex__(5)


_REDUCTIONS = collections.ChainMap({torch.Tensor: _reduced}, copyreg.dispatch_table)
