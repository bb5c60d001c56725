"""What the workers of a torch loader run: they fetch what they are asked for.

An answer is a pair of a batch and, if that is asked for, the worker's state.  These are
pickled one by one, since a batch may be one that the parent cannot unpickle.

Seeds, `get_worker_info`, fetchers and errors are torch's own (torch 2.13,
torch/utils/data/_utils/worker.py has their order), so that users' code in a worker
sees what it would see in a worker of torch's.
"""

from __future__ import annotations

import dataclasses
import pickle
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterDataPipe, default_collate

from gristmill._base.epochs import here
from gristmill._base.types import Alloc, Int64Array
from gristmill._engine import failures, tracebacks
from gristmill._engine.stream import first_unpicklable
from gristmill._torch import layout, private
from gristmill._torch.batches import encoding, native, slot_collation
from gristmill._torch.batches.deferred import deferred_fetch
from gristmill._torch.batches.stages import fetched, stages_of
from gristmill._torch.indices import requests
from gristmill._torch.indices.draws import as_list
from gristmill._torch.layout import State
from gristmill._torch.private import ExceptionWrapper


class Exhausted:
    """Sent in place of a batch by a worker whose dataset has no more."""


@dataclasses.dataclass(frozen=True)
class Unsent:
    """Sent in place of a batch that cannot be pickled."""

    failure: bytes  # The error, see `failures.pack_failure`.


@dataclasses.dataclass(frozen=True)
class FetchProgram:
    """A dataset and how batches are made of it.  What a worker needs of a `Runnable`.

    Attributes:
        iterable: Whether the dataset is iterated over; else it is asked for keys.
        auto_collation: Whether samples make batches.
        collate_fn: Makes a batch of a list of samples, or converts a sample.
        base_seed: Worker i is seeded with ``base_seed + i``.
        worker_init_fn: Called with the worker's number before all else.
        collate_rules: What ``default_collate`` does, from `slot_collation.rules`.
        shared_seed: Seed of the first epoch, for datapipes.
        default_dtype: Of new tensors, as a fork of the user's process would have it.
        native: Whether whole batches are gathered where the dataset allows it.
        epoch: In which random steps draw as the workers begin.
        states: What each worker begins its first epoch with, None for what its dataset
            is; empty where nobody asks for states.
    """

    dataset: Any
    iterable: bool
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    workers: int
    worker_init_fn: Callable[[int], Any] | None
    collate_rules: slot_collation.Rules
    shared_seed: int | None
    default_dtype: torch.dtype
    native: bool
    epoch: int
    states: Sequence[State | None] = ()

    @property
    def stages(self) -> dict[str, tuple[str, str]]:
        """See `Runnable`."""
        return stages_of(self.dataset, self.iterable, self.collate_fn)

    tolerant = False
    many_outputs = False
    position_capacity = 1 << 16

    def greet(self, worker: int, workers: int) -> None:
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


class FetchStream:
    """Answers requests in one worker.  See `gristmill._engine.stream.Stream`."""

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
        """Return what a request asks for, by `encoding.encoded`, and the state.

        In its place an exception of the user's code is sent as `ExceptionWrapper`.
        """
        self._alloc = alloc
        here.epoch = 0
        if request.item(0) == requests.IN_EPOCH:
            here.epoch = request.item(1)
            request = request[requests.EPOCH_WORDS :]
        unpacked = requests.unpacked(request)
        if type(unpacked) is list:
            data, state = self._fetch(unpacked), None
        else:
            data, state = self._answer(unpacked)
        try:
            return encoding.encoded(data, state)
        except Exception as error:
            failure = failures.pack_failure(error, self._worker)
            return encoding.encoded(Unsent(failure), state)

    def leave_slot(self) -> None:
        """Let go of the memory of the slot, where the output has been written."""
        slot_collation.move_kept()

    def close(self) -> None:
        """Let go of the dataset's iterator, whose generators end then."""
        self._fetcher = None

    def _answer(self, request: Any) -> tuple[Any, Any]:
        if isinstance(request, requests.Generators):
            found = layout.generator_states()
            if request.wanted is not None:
                layout.restore_generators(request.wanted)
            return found, None
        with_state = isinstance(request, requests.WithState)
        data = self._fetch(request.request if with_state else request)
        if isinstance(data, Exhausted):
            with_state = bool(self._program.states)
        if not with_state:
            return data, None
        try:
            states = layout.dataset_states(self._dataset, self._fetcher)
            return data, pickle.dumps({layout.WORKER_ID: self._worker, **states}, 5)
        except Exception:
            failed = isinstance(data, ExceptionWrapper)
            return data if failed else self._failure(), None

    def _fetch(self, request: Any) -> Any:
        if self._refusal is not None:
            # As torch's, the worker says so once.
            refusal, self._refusal = self._refusal, None
            return refusal
        try:
            if isinstance(request, requests.Next):
                return self._fetch_next(request)
            return fetched(self._fetcher, as_list(request))
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
                # What stands for a batch of so many, or for a sample.
                data = fetched(self._fetcher, request.size and [None] * request.size)
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
        """A fetcher with which an epoch begins, the first one where that goes on."""
        program, kinds = self._program, private.DatasetKind
        saved = program.states[self._worker] if program.states else None
        if self._epoch > 0:
            saved = None
        if saved is not None:
            layout.restore(self._dataset, saved[layout.DATASET_STATE])
        ours = program.collate_fn is default_collate
        fetcher = kinds.create_fetcher(
            kinds.Iterable if program.iterable else kinds.Map,
            self._dataset,
            program.auto_collation,
            self._collate if ours else program.collate_fn,
            program.drop_last,
        )
        of_fetcher = saved and saved[layout.FETCHER_STATE]
        if of_fetcher is not None and program.iterable:
            # One that had ended says so again when it is asked.
            layout.restore(fetcher.dataset_iter, of_fetcher[layout.DATASET_ITER_STATE])
        if program.native:
            fetch = native.native_fetch(program.dataset, fetcher.fetch)
            fetch = fetch or self._deferred_fetch(fetcher.fetch)
            fetcher.fetch = fetch or fetcher.fetch
        return fetcher

    def _collate(self, samples: Any) -> Any:
        """A batch in the slot, where nobody but torch sees it.

        Users' functions get memory of their own: what they keep of it, as a NumPy view,
        cannot be moved when the slot is handed over.
        """
        with slot_collation.into(self._alloc):
            return default_collate(samples)

    def _deferred_fetch(self, fetch: native.Fetch) -> native.Fetch | None:
        """A fetch that computes batches in the slot, where steps leave that to them."""
        compute = deferred_fetch(self._program.dataset, fetch)
        if compute is None:
            return None

        def fetch_into_slot(batch: Any) -> Any:
            with slot_collation.into(self._alloc):
                return compute(batch)

        return fetch_into_slot

    def _become_worker(self) -> None:
        program, worker = self._program, self._worker
        here.epoch, here.warns = program.epoch, worker == 0
        private.set_thread_name("pt_data_worker")
        torch.set_num_threads(1)
        torch.set_default_dtype(program.default_dtype)
        slot_collation.install(program.collate_rules)
        seed = program.base_seed + worker
        random.seed(seed)
        torch.manual_seed(seed)
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
        kind, error, whole = sys.exc_info()
        where = f"in DataLoader worker process {self._worker}"
        return ExceptionWrapper((kind, error, tracebacks.shown(whole)), where)


def _seeded(dataset: Any, seed: int | None) -> Any:
    """A datapipe whose shuffles are the same in all workers."""
    from torch.utils.data.graph_settings import apply_random_seed

    generator = torch.Generator()
    generator.manual_seed(seed or 0)
    return apply_random_seed(dataset, generator)
