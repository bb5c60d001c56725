"""The program of a torch loader's workers, which fetch the requested batches.

An answer contains a batch and, if requested, the worker's state.  The two are pickled
separately, because the parent may fail to unpickle the batch.

Seeds, `get_worker_info`, fetchers and errors are torch's own, in the order of torch
2.13's torch/utils/data/_utils/worker.py.  Users' code therefore behaves as in one of
torch's workers.
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
from torch.utils.data import default_collate

from gristmill._base.epoch_context import epoch_context
from gristmill._base.types import Alloc, Int64Array
from gristmill._engine import failures, tracebacks
from gristmill._engine.stream import first_unpicklable
from gristmill._torch import layout, private
from gristmill._torch.batches import encoding, native, slot_collation
from gristmill._torch.batches.deferred import deferred_fetch
from gristmill._torch.batches.stages import fetch_timed, stages_of
from gristmill._torch.indices import requests
from gristmill._torch.indices.draws import as_list
from gristmill._torch.layout import State
from gristmill._torch.private import ExceptionWrapper


class Exhausted:
    """Sent in place of a batch by a worker whose dataset has no more batches."""


@dataclasses.dataclass(frozen=True)
class SendFailure:
    """Sent in place of a batch that cannot be pickled."""

    packed_error: bytes  # From `failures.pack_failure`.


@dataclasses.dataclass(frozen=True)
class FetchProgram:
    """A dataset and the options for its batches: the part of a `Runnable` for workers.

    Attributes:
        iterable: Whether the dataset is iterated over; else it is read by keys.
        auto_collation: Whether samples are collated to batches.
        collate_fn: Makes a batch of a list of samples, or converts a sample.
        drop_last: Whether to leave out a last batch that is not full.
        base_seed: Worker i is seeded with ``base_seed + i``.
        workers: The number of workers.
        worker_init_fn: Called with the worker's number, before reading data.
        collate_rules: The rules of ``default_collate``, from `slot_collation.rules`.
        shared_seed: The seed of the first epoch, for datapipes.
        default_dtype: Torch's default dtype in the user's process.
        native: Whether whole batches are gathered if the dataset allows it.
        epoch: The epoch of random steps while the workers start.
        states: The state in which each worker begins its first epoch, or None to leave
            the dataset unchanged; empty if no states are requested.
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

    # See `Runnable`.  Requests of more integers than `position_capacity` are sent in a
    # file.
    tolerant = False
    many_outputs = False
    position_capacity = 1 << 16

    def init_worker(self, worker: int, workers: int) -> None:
        """Do nothing; `open_stream` prepares the worker."""

    def unpicklable_note(self) -> str:
        """See `Runnable`."""
        parts = ("dataset", "collate_fn", "worker_init_fn")
        name = first_unpicklable((part, getattr(self, part)) for part in parts)
        return (
            f"The {name or 'loader'} cannot be pickled. Pass"
            " multiprocessing_context='fork', or num_workers=0."
        )

    def open_stream(self, stream: int, record_address: int = 0) -> FetchStream:
        """Return the stream that a worker runs.

        `record_address` is not used, because samples have no numbers.
        """
        return FetchStream(self, stream)


class FetchStream:
    """Answers requests in one worker.  See `gristmill._engine.stream.Stream`.

    The worker's main thread calls all methods.
    """

    def __init__(self, program: FetchProgram, worker: int) -> None:
        self._program = program
        self._worker = worker
        self._dataset = program.dataset
        self._fetcher: Any = None
        # Allocates in the slot of the current request.
        self._alloc: Alloc = np.empty
        # The iteration over the dataset, see `requests.NextBatch`, and the batches
        # fetched in it.
        self._iteration = 0
        self._fetched_count = 0
        self._is_exhausted = False
        # The error of `worker_init_fn` or of the first fetcher, until it is the answer
        # to a request.
        self._start_error: ExceptionWrapper | None = None
        self._set_up_worker()

    def answer(self, request: Int64Array, alloc: Alloc) -> Any:
        """Return the answer to a request, encoded by `encoding.encode`.

        If the user's code raises an exception, an `ExceptionWrapper` replaces the
        batch.
        """
        self._alloc = alloc
        epoch_context.epoch = 0
        if request.item(0) == requests.IN_EPOCH:  # See `requests.with_epoch`.
            epoch_context.epoch = request.item(1)
            request = request[requests.EPOCH_WORDS :]
        unpacked = requests.unpack(request)
        if type(unpacked) is list:  # A batch of keys, the most frequent request.
            data, state = self._fetch(unpacked), None
        else:
            data, state = self._answer_request(unpacked)
        try:
            return encoding.encode(data, state)
        except Exception as error:
            packed_error = failures.pack_failure(error, self._worker)
            return encoding.encode(SendFailure(packed_error), state)

    def leave_slot(self) -> None:
        """Release the memory of the slot, after the output was written."""
        slot_collation.move_live_batches()

    def close(self) -> None:
        """Drop the dataset's iterator, which ends its generators."""
        self._fetcher = None

    def _answer_request(self, request: Any) -> tuple[Any, bytes | None]:
        """Return the batch or other answer, and the worker's state if requested."""
        if isinstance(request, requests.GeneratorStates):
            generator_states = layout.generator_states()
            if request.new_states is not None:
                layout.restore_generators(request.new_states)
            return generator_states, None
        if isinstance(request, requests.Seeded):
            self._seed_batch(request)
            return self._fetch(request.keys), None
        with_state = isinstance(request, requests.WithState)
        data = self._fetch(request.request if with_state else request)
        if isinstance(data, Exhausted):
            # This worker has no later answer that could contain its state, so send it
            # even if it was not requested.
            with_state = bool(self._program.states)
        if not with_state:
            return data, None
        try:
            states = layout.dataset_states(self._dataset, self._fetcher)
            return data, pickle.dumps({layout.WORKER_ID: self._worker, **states}, 5)
        except Exception:
            # The error of the batch, if it has one, is raised instead of this one.
            failed = isinstance(data, ExceptionWrapper)
            return data if failed else self._wrap_exception(), None

    def _seed_batch(self, request: requests.Seeded) -> None:
        """Seed the global generators for a batch, whichever worker computes it."""
        entropy = (self._program.base_seed, request.epoch, request.number)
        words = np.random.SeedSequence(entropy).generate_state(6)
        seed = int(words[0]) << 32 | int(words[1])
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(words[2:])  # noqa: NPY002 (users' code draws from it)

    def _fetch(self, request: Any) -> Any:
        """Return a batch, `Exhausted`, or the wrapped exception of the user's code."""
        if self._start_error is not None:
            # Like torch's workers, report it once.
            start_error, self._start_error = self._start_error, None
            return start_error
        try:
            if isinstance(request, requests.NextBatch):
                return self._fetch_next(request)
            return fetch_timed(self._fetcher, as_list(request))
        except Exception:
            return self._wrap_exception()

    def _fetch_next(self, request: requests.NextBatch) -> Any:
        """Return an iterable dataset's batch, or `Exhausted`; skip the batches before.

        Errors in skipped batches are ignored.
        """
        self._begin_iteration(request)
        if request.size == 0:  # Only begins the iteration, see `NextBatch`.
            return None
        while not self._is_exhausted:
            is_requested = self._fetched_count == request.number
            self._fetched_count += 1
            try:
                # Torch's index for an iterable dataset: a list of `size` times None for
                # a batch, and None for a sample.
                data = fetch_timed(
                    self._fetcher, request.size and [None] * request.size
                )
            except StopIteration:
                self._is_exhausted = True
            except Exception:
                if is_requested:
                    raise
            else:
                if is_requested:
                    return data
        return Exhausted()

    def _begin_iteration(self, request: requests.NextBatch) -> None:
        """Begin a new iteration unless the present one is at or before the batch.

        A new epoch is a new iteration.  A worker that replaces a dead one or repeats a
        batch also begins one, and then skips the batches before the requested one.
        """
        is_same = request.iteration == self._iteration
        if is_same and request.number >= self._fetched_count:
            return
        if isinstance(self._dataset, private.IterDataPipe):
            self._dataset = _seed_datapipe(self._dataset, request.seed)
        self._iteration = request.iteration
        self._fetched_count, self._is_exhausted = 0, False
        self._fetcher = self._new_fetcher()

    def _new_fetcher(self) -> Any:
        """Return a fetcher for a new iteration; the first resumes from a saved state.

        It restores the dataset and the dataset's iterator.
        """
        program, kinds = self._program, private.DatasetKind
        saved = program.states[self._worker] if program.states else None
        if self._iteration > 0:  # A later epoch.
            saved = None
        if saved is not None:
            layout.restore(self._dataset, saved[layout.DATASET_STATE])
        is_torch_collate = program.collate_fn is default_collate
        fetcher = kinds.create_fetcher(
            kinds.Iterable if program.iterable else kinds.Map,
            self._dataset,
            program.auto_collation,
            self._collate if is_torch_collate else program.collate_fn,
            program.drop_last,
        )
        fetcher_state = saved and saved[layout.FETCHER_STATE]
        if fetcher_state is not None and program.iterable:
            # An iterator that had ended raises StopIteration again.
            iterator_state = fetcher_state[layout.DATASET_ITER_STATE]
            layout.restore(fetcher.dataset_iter, iterator_state)
        if program.native:
            fetch = native.native_fetch(program.dataset, fetcher.fetch)
            fetch = fetch or self._deferred_fetch(fetcher.fetch)
            fetcher.fetch = fetch or fetcher.fetch
        return fetcher

    def _collate(self, samples: Any) -> Any:
        """Collate a batch in the slot, for torch's own function only.

        Users' functions get private memory: if they kept a NumPy view of a batch, it
        could not be moved out of the slot.
        """
        with slot_collation.allocate_with(self._alloc):
            return default_collate(samples)

    def _deferred_fetch(self, fetch: native.Fetch) -> native.Fetch | None:
        """Return a fetch that computes deferred steps in the slot, or None."""
        fetch_deferred = deferred_fetch(self._program.dataset, fetch)
        if fetch_deferred is None:
            return None

        def fetch_into_slot(batch: Any) -> Any:
            with slot_collation.allocate_with(self._alloc):
                return fetch_deferred(batch)

        return fetch_into_slot

    def _set_up_worker(self) -> None:
        """Seed this process, call `worker_init_fn`, and open the dataset."""
        program, worker = self._program, self._worker
        epoch_context.epoch, epoch_context.warns = program.epoch, worker == 0
        private.set_thread_name("pt_data_worker")
        torch.set_num_threads(1)
        torch.set_default_dtype(program.default_dtype)
        slot_collation.install(program.collate_rules)
        seed = program.base_seed + worker
        random.seed(seed)
        torch.manual_seed(seed)
        numpy_seed = private.generate_state(program.base_seed, worker)
        np.random.seed(numpy_seed)  # noqa: NPY002 (users' code draws from it)
        if isinstance(self._dataset, private.IterDataPipe):
            self._dataset = _seed_datapipe(self._dataset, program.shared_seed)
        private.set_worker_info(
            id=worker, num_workers=program.workers, seed=seed, dataset=self._dataset
        )
        try:
            if program.worker_init_fn is not None:
                program.worker_init_fn(worker)
            self._fetcher = self._new_fetcher()
        except Exception:
            self._start_error = self._wrap_exception()

    def _wrap_exception(self) -> ExceptionWrapper:
        """Return the exception being handled, in torch's wrapper."""
        kind, error, traceback = sys.exc_info()
        where = f"in DataLoader worker process {self._worker}"
        return ExceptionWrapper(
            (kind, error, tracebacks.filter_traceback(traceback)), where
        )


def _seed_datapipe(dataset: Any, seed: int | None) -> Any:
    """Seed a datapipe, so that its shuffles are the same in all workers."""
    from torch.utils.data.graph_settings import apply_random_seed

    generator = torch.Generator()
    generator.manual_seed(seed or 0)
    return apply_random_seed(dataset, generator)
