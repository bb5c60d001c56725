"""What the workers of a torch loader run: they fetch what they are asked for.

Seeds, `get_worker_info`, fetchers and errors are torch's own (torch 2.13,
torch/utils/data/_utils/worker.py has their order), so that users' code in a worker
sees what it would see in a worker of torch's.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterDataPipe, default_collate

from gristmill._base.types import Alloc, Int64Array
from gristmill._engine.stream import first_unpicklable
from gristmill._torch import private
from gristmill._torch.batches import encoding, native, slot_collation
from gristmill._torch.indices import requests
from gristmill._torch.private import ExceptionWrapper


class Exhausted:
    """Sent in place of a batch by a worker whose dataset has no more."""


@dataclasses.dataclass(frozen=True)
class FetchProgram:
    """A dataset and how batches are made of it.  What a worker needs of a `Runnable`.

    Attributes:
        dataset: The user's.
        iterable: Whether it is iterated over; else it is asked for keys.
        auto_collation: Whether samples make batches.
        collate_fn: Makes a batch of a list of samples, or converts a sample.
        drop_last: Whether a short batch at the end is left out.
        base_seed: Worker i is seeded with ``base_seed + i``.
        workers: How many there are.
        worker_init_fn: Called with the worker's number before all else.
        collate_rules: What ``default_collate`` does, from `slot_collation.rules`.
        shared_seed: Seed of the first epoch, for datapipes.
        default_dtype: Of new tensors, as a fork of the user's process would have it.
        native: Whether whole batches are gathered where the dataset allows it.
    """

    dataset: Any
    iterable: bool
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    workers: int
    worker_init_fn: Callable[[int], Any] | None = None
    collate_rules: slot_collation.Rules = dataclasses.field(
        default_factory=slot_collation.rules
    )
    shared_seed: int | None = None
    default_dtype: torch.dtype = dataclasses.field(
        default_factory=torch.get_default_dtype
    )
    native: bool = False

    # Whether answers are pairs of a batch and a worker's state, or None.
    stateful = False
    tolerant = False
    vector_capacity = 1 << 16

    def greet(self, worker: int) -> None:
        """Nothing; `open_stream` prepares the worker."""

    def unpicklable_note(self) -> str:
        """See `Runnable`."""
        parts = ("dataset", "collate_fn", "worker_init_fn")
        name = first_unpicklable((part, getattr(self, part)) for part in parts)
        return (
            f"The {name or 'loader'} cannot be pickled: its workers need the start"
            " method 'fork', or num_workers=0."
        )

    def open_stream(self, stream: int, at: int = 0) -> FetchStream:
        """What a worker runs; `at` is not used: samples have no numbers."""
        return FetchStream(self, stream)

    def fetcher(self, dataset: Any, collate_fn: Callable[[Any], Any]) -> Any:
        """What fetches batches from a dataset, or from a new iteration over it."""
        kinds = private.DatasetKind
        kind = kinds.Iterable if self.iterable else kinds.Map
        fetcher = kinds.create_fetcher(
            kind, dataset, self.auto_collation, collate_fn, self.drop_last
        )
        if self.native:
            fetch = native.native_fetch(self.dataset, fetcher.fetch)
            fetcher.fetch = fetch or fetcher.fetch
        return fetcher


class FetchStream:
    """Answers requests in one worker.  See `gristmill._engine.stream.Stream`.

    Args:
        program: What it runs.
        worker: Its number.
    """

    def __init__(self, program: FetchProgram, worker: int) -> None:
        self._program = program
        self._worker = worker
        self._dataset = program.dataset
        self._fetcher: Any = None
        self._alloc: Alloc = np.empty
        self._epoch = 0
        self._fetched = 0
        self._exhausted = False
        self._refusal: ExceptionWrapper | None = None
        self._become_worker()

    def answer(self, request: Int64Array, alloc: Alloc) -> Any:
        """The batch that a request asks for, as `encoding.encoded` gives it.

        In its place an exception of the user's code is sent as `ExceptionWrapper`.
        """
        self._alloc = alloc
        return encoding.encoded(self._fetch(requests.unpacked(request)))

    def leave_slot(self) -> None:
        """Let go of the memory of the slot, where the output has been written."""
        slot_collation.move_kept()

    def _fetch(self, request: Any) -> Any:
        if self._refusal is not None:
            # As torch's, the worker says so once.
            refusal, self._refusal = self._refusal, None
            return refusal
        try:
            if isinstance(request, requests.Next):
                return self._fetch_next(request)
            return self._fetcher.fetch(request)
        except Exception:
            return self._failure()

    def _fetch_next(self, request: requests.Next) -> Any:
        self._go_to(request)
        if request.size == 0:
            return None
        while not self._exhausted:
            due = self._fetched == request.number
            self._fetched += 1
            try:
                data = self._fetcher.fetch(_places(request.size))
            except StopIteration:
                self._exhausted = True
            except Exception:
                if due:
                    raise
            else:
                if due:
                    return data
        return Exhausted()

    def _go_to(self, request: requests.Next) -> None:
        """Make the fetcher stand where the output comes next, or before it.

        A new epoch is a new iteration.  So is what goes on in the place of a dead
        worker, or gives an output again: it passes over the outputs before that one.
        """
        if request.epoch == self._epoch and request.number >= self._fetched:
            return
        if isinstance(self._dataset, IterDataPipe):
            self._dataset = _seeded(self._dataset, request.seed)
        self._epoch, self._fetched, self._exhausted = request.epoch, 0, False
        self._fetcher = self._new_fetcher()

    def _new_fetcher(self) -> Any:
        """A fetcher with which the epoch begins."""
        collate_fn = self._program.collate_fn
        if collate_fn is default_collate:
            collate_fn = self._collate
        return self._program.fetcher(self._dataset, collate_fn)

    def _collate(self, samples: Any) -> Any:
        """A batch in the slot, where nobody but torch sees it.

        Users' functions get memory of their own: what they keep of it, as a NumPy view,
        cannot be moved when the slot is handed over.
        """
        with slot_collation.into(self._alloc):
            return default_collate(samples)

    def _become_worker(self) -> None:
        program, worker = self._program, self._worker
        private.set_thread_name("pt_data_worker")
        torch.set_num_threads(1)
        torch.set_default_dtype(program.default_dtype)
        slot_collation.install(program.collate_rules)
        seed = program.base_seed + worker
        random.seed(seed)
        _seed_torch(seed)
        numbers = private.generate_state(program.base_seed, worker)
        np.random.seed(numbers)  # noqa: NPY002 (users' code draws from it)
        if isinstance(self._dataset, IterDataPipe):
            self._dataset = _seeded(self._dataset, program.shared_seed)
        private.set_worker_info(
            id=worker, num_workers=program.workers, seed=seed, dataset=self._dataset
        )
        try:
            if program.worker_init_fn is not None:
                program.worker_init_fn(worker)
            self._fetcher = self._new_fetcher()
        except Exception:
            self._refusal = self._failure()

    def _failure(self) -> ExceptionWrapper:
        """The exception in hand, as torch sends it."""
        return ExceptionWrapper(where=f"in DataLoader worker process {self._worker}")


def _seed_torch(seed: int) -> None:
    """What ``torch.manual_seed`` does, which takes milliseconds for devices."""
    if torch.version.cuda or torch.version.hip or private.compiled_for_xpu():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def _places(size: int) -> list[None] | None:
    """What torch's fetcher takes to stand for a batch of so many, or for a sample."""
    return None if size < 0 else [None] * size


def _seeded(dataset: Any, seed: int | None) -> Any:
    """A datapipe whose shuffles are the same in all workers."""
    from torch.utils.data.graph_settings import apply_random_seed

    generator = torch.Generator()
    generator.manual_seed(seed or 0)
    return apply_random_seed(dataset, generator)
