"""Requests to the workers of a loader, packed as integers.

The core sends a request to a worker and keeps it until it is answered, so that the
replacement of a dead worker gets the same request.  See `_core.Scheduler`, kind
REQUEST.
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
from gristmill._torch.indices.draws import IndexBatch

# The first integer of a request that is not pickled.  Pickles begin with their length.
_BLOCK, _IN_FILE, _RANGE, _KEY, _NEXT, _WITH_STATE = -1, -2, -4, -5, -6, -7
_SEEDED = -8
# Represents None in a `NextBatch`, whose integers are not negative.
_NONE = -1
# The first integer of a request with an epoch; the second one is the epoch.
IN_EPOCH = -3
EPOCH_WORDS = 2
_FILE_NAME = "gristmill-request"


@dataclasses.dataclass(frozen=True)
class NextBatch:
    """Requests the next batch, or sample, of an iterable dataset.

    Attributes:
        iteration: The number of this iteration over the dataset, from 0.
        number: The number of the worker's earlier requests in this iteration.
        size: Samples in the batch, or None for a single sample without a batch.  0 only
            begins the iteration, of any kind of dataset.
        seed: The seed of the iteration, for datapipes.
    """

    iteration: int
    number: int
    size: int | None
    seed: int | None


@dataclasses.dataclass(frozen=True)
class GeneratorStates:
    """Requests the states of a worker's random generators.

    Attributes:
        new_states: The states to set after that; None leaves the generators unchanged.
    """

    new_states: Any = None


@dataclasses.dataclass(frozen=True)
class WithState:
    """Requests a batch, and the state of the worker after it."""

    request: Any


@dataclasses.dataclass(frozen=True)
class Seeded:
    """Requests a batch of a map-style dataset from a worker that is seeded for it.

    Attributes:
        keys: The batch's keys.
        epoch: The number of its epoch.
        number: Its number in the epoch, from 0.
    """

    keys: Any
    epoch: int
    number: int


def pack(request: Any) -> Int64Array:
    """Pack a request as integers.

    The request is an instance of a class above or, for a map-style dataset, a key, a
    batch of keys, or an `IndexBatch`.

    Raises:
        Exception: The error that pickling a key raised.
    """
    if type(request) is IndexBatch:
        block = request.block
        if type(block) is range:
            return np.array([_RANGE, block.start, block.stop])
        words = np.empty(len(block) + 1, np.int64)
        words[0], words[1:] = _BLOCK, block
        return words
    if type(request) is int and request.bit_length() < 64:
        return np.array((_KEY, request))
    if type(request) is NextBatch:
        size = _NONE if request.size is None else request.size
        seed = _NONE if request.seed is None else request.seed
        return np.array((_NEXT, request.iteration, request.number, size, seed))
    if type(request) is WithState:
        return np.concatenate([(_WITH_STATE,), pack(request.request)])
    if type(request) is Seeded:
        head = (_SEEDED, request.epoch, request.number)
        return np.concatenate([head, pack(request.keys)])
    return pack_int64(_pickle(request))


def move_to_file(words: Int64Array) -> tuple[Int64Array, io.FileIO]:
    """Write a request that is too long for the core to a file.

    The file is a memfd; workers open it by this process's descriptor number.

    Returns:
        A request that refers to the file, and the file.  The caller must close the
        file after the request is answered.
    """
    file = io.FileIO(os.memfd_create(_FILE_NAME, os.MFD_CLOEXEC), "w")
    file.write(words.data)
    return np.array([_IN_FILE, os.getpid(), file.fileno()]), file


def read_if_in_file(words: Int64Array) -> Int64Array:
    """Return a request that does not refer to a file, see `move_to_file`.

    Raises:
        OSError: The parent dropped the request, and does not wait for the answer.
    """
    start = EPOCH_WORDS if words.item(0) == IN_EPOCH else 0
    if words.item(start) != _IN_FILE:
        return words
    return np.concatenate([words[:start], _read_file(*words[start + 1 :].tolist())])


def with_epoch(words: Int64Array, epoch: int) -> Int64Array:
    """Prepend the epoch in which random steps draw to a request."""
    return np.concatenate([[IN_EPOCH, epoch], words])


def unpack(words: Int64Array) -> Any:
    """Undo `pack`, except that an `IndexBatch` becomes a list."""
    kind = words.item(0)
    if kind == _BLOCK:
        return words[1:].tolist()
    if kind == _KEY:
        return words.item(1)
    if kind == _NEXT:
        iteration, number, size, seed = words[1:].tolist()
        size, seed = (None if word == _NONE else word for word in (size, seed))
        return NextBatch(iteration, number, size, seed)
    if kind == _WITH_STATE:
        return WithState(unpack(words[1:]))
    if kind == _SEEDED:
        epoch, number = words[1:3].tolist()
        return Seeded(unpack(words[3:]), epoch, number)
    if kind == _RANGE:
        return [*range(*words[1:].tolist())]
    if kind == _IN_FILE:
        return unpack(_read_file(*words[1:].tolist()))
    return pickle.loads(unpack_int64(words))


def _read_file(pid: int, fd: int) -> Int64Array:
    """Read the integers of a request from a file.

    Raises:
        OSError: The parent dropped the request, and does not wait for the answer.
    """
    path = f"/proc/{pid}/fd/{fd}"
    target = os.readlink(path)
    if not target.startswith(f"/memfd:{_FILE_NAME}"):
        raise OSError(
            f"{path} must be the file of a request, got {target}: the request was"
            " dropped."
        )
    return np.fromfile(path, np.int64)


def _pickle(request: Any) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, 5)
    pickler.dispatch_table = _REDUCTIONS
    with contextlib.suppress(Exception):
        pickler.dump(request)
        return file.getvalue()
    return open_files.dumps(request)


def _reduce_tensor(tensor: torch.Tensor) -> Any:
    """Reduce a tensor to its own values; torch would pickle its whole storage."""
    try:
        return torch.from_numpy, (tensor.numpy(),)
    except (RuntimeError, TypeError):
        return tensor.__reduce_ex__(5)


_REDUCTIONS = collections.ChainMap(
    {torch.Tensor: _reduce_tensor}, copyreg.dispatch_table
)
