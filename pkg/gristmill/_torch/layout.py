"""The layout of a loader's state, which is torchdata's.

A state is a plain dict.  Without workers:

    _index_sampler_state, _sampler_iter_state, _sampler_iter_yielded
        (see `resume/sampler_position.py`)
    _num_yielded, _IterableDataset_len_called, _shared_seed,
    fetcher_state: None or {dataset_iter_state, fetcher_ended}, dataset_state,
    _iterator_finished

With workers, whose latest snapshot may be some batches old:

    _snapshot:
        _snapshot_step, _last_yielded_worker_id,
        _main_snapshot: {_num_workers, the first three above, _base_seed,
                         _IterableDataset_len_called, _shared_seed},
        _worker_snapshots: {worker_0: {worker_id, dataset_state, fetcher_state}, ...}
    _steps_since_snapshot, _iterator_finished

Gristmill adds keys, which torchdata's loader ignores.  After the first epoch:

    _epoch: its number, from which random steps of Gristmill's datasets draw

Next to the index sampler's three keys, if batches are not delivered in order:

    _given_ahead: numbers of batches that were delivered before batch 0, which is the
        sampler's next batch

Before the first batch of an epoch without workers:

    _seed_pending: True if torch's default generator draws the seed of the order later

At the end of an epoch:

    _generators: the states, in hexadecimal digits, from which the next epoch is drawn:
        torch's default generator, and the loader's if it has one
    _worker_generators: of persistent workers, a list of `generator_states`
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from gristmill._torch import private

State: TypeAlias = dict[str, Any]

INDEX_SAMPLER = "_index_sampler_state"
SAMPLER_ITER = "_sampler_iter_state"
SAMPLER_YIELDED = "_sampler_iter_yielded"
LEN_CALLED = "_IterableDataset_len_called"
SHARED_SEED = "_shared_seed"
FINISHED = "_iterator_finished"
NUM_YIELDED = "_num_yielded"
FETCHER_STATE = "fetcher_state"
DATASET_STATE = "dataset_state"
DATASET_ITER_STATE = "dataset_iter_state"
FETCHER_ENDED = "fetcher_ended"
SNAPSHOT = "_snapshot"
SNAPSHOT_STEP = "_snapshot_step"
LAST_WORKER = "_last_yielded_worker_id"
MAIN_SNAPSHOT = "_main_snapshot"
WORKER_SNAPSHOTS = "_worker_snapshots"
STEPS_SINCE = "_steps_since_snapshot"
NUM_WORKERS = "_num_workers"
BASE_SEED = "_base_seed"
WORKER_ID = "worker_id"
EPOCH = "_epoch"
DELIVERED_AHEAD = "_given_ahead"
SEED_PENDING = "_seed_pending"
GENERATORS = "_generators"
WORKER_GENERATORS = "_worker_generators"


def is_stateful(part: Any) -> bool:
    """Return whether a user's object has torchdata's methods to save and restore it."""
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def state_of(part: Any) -> State | None:
    """Return the state of a user's object, None if it is not stateful."""
    if not is_stateful(part):
        return None
    state: State = part.state_dict()
    return state


def restore(part: Any, state: State | None) -> bool:
    """Restore a user's object if it is stateful, and return whether it was restored."""
    if state is None or not is_stateful(part):
        return False
    part.load_state_dict(state)
    return True


def copy_state(state: State) -> State:
    """Return a copy of a state whose own parts may be written to."""
    return {
        key: dict(part) if isinstance(part, dict) else part
        for key, part in state.items()
    }


def dataset_states(dataset: Any, fetcher: Any) -> State:
    """Return the states of a dataset and of its iteration by one of torch's fetchers.

    The state of a dataset that is its own iterator is that of the iterator.
    """
    iteration = getattr(fetcher, "dataset_iter", None)
    if iteration is None:
        return {FETCHER_STATE: None, DATASET_STATE: state_of(dataset)}
    fetcher_state = {
        DATASET_ITER_STATE: state_of(iteration),
        FETCHER_ENDED: fetcher.ended,
    }
    own_state = None if iteration is dataset else state_of(dataset)
    return {FETCHER_STATE: fetcher_state, DATASET_STATE: own_state}


@dataclasses.dataclass(frozen=True)
class SavedState:
    """A state that a loader resumes from.

    Attributes:
        main: The position in the index sampler, and the seeds of torch's iterator.
        step: The number of batches delivered before the snapshot.
        finished: Whether the epoch was over.
        parts: The states of the dataset and its iteration: one for each worker, or one
            of a loader without workers.
        generators: The states of torch's default generator, and of the loader's if it
            has one, from which the next epoch is drawn; empty in the middle of one.
        worker_generators: The states of persistent workers' generators, from which the
            next epoch's samples are drawn; empty in the middle of an epoch.
        later_steps: The number of batches delivered after the snapshot.
        workers: The number of workers.
        last_worker: The worker that computed the last batch.
        epoch: See `gristmill._torch.epochs`; 0 if the state does not contain it.
    """

    main: State
    step: int
    finished: bool
    parts: list[State | None]
    generators: list[torch.Tensor]
    worker_generators: Sequence[State]
    later_steps: int = 0
    workers: int = 0
    last_worker: int = -1
    epoch: int = 0


def has_dataset_states(parts: Iterable[State | None]) -> bool:
    """Return whether workers' states contain states of datasets or their iterators."""
    for part in filter(None, parts):
        fetcher = part[FETCHER_STATE] or {DATASET_ITER_STATE: None}
        # If not both are None.
        if not part[DATASET_STATE] is fetcher[DATASET_ITER_STATE] is None:
            return True
    return False


def read(state: Mapping[str, Any], loader: Any) -> SavedState:
    """Return a state in the form that `loader` resumes from.

    Raises:
        AssertionError: `state` is of a loader of another kind, or of one with another
            number of workers, each with a state of the dataset.
    """
    workers = loader.num_workers
    map_style = loader._dataset_kind == private.DatasetKind.Map
    key, kind = (
        (SNAPSHOT, "multiprocess") if workers else (NUM_YIELDED, "single process")
    )
    # A map-style dataset resumes from both kinds.
    if key not in state and not (
        map_style and (SNAPSHOT in state or NUM_YIELDED in state)
    ):
        raise AssertionError(
            f"State doesn't contain key '{key}' expected for {kind} dataloader"
        )
    saved = _parse(state)
    has_states = any(part and part[DATASET_STATE] is not None for part in saved.parts)
    if saved.workers != workers and (not map_style or has_states):
        raise AssertionError(
            f"num_workers must be {saved.workers}, as in the loader that was saved, got"
            f" {workers}: each worker's copy of the dataset has its own state."
        )
    return saved


def _parse(state: Mapping[str, Any]) -> SavedState:
    epoch_fields = {
        "finished": state[FINISHED],
        "generators": [*map(from_hex_digits, state.get(GENERATORS, ()))],
        "worker_generators": state.get(WORKER_GENERATORS, ()),
        "epoch": state.get(EPOCH, 0),
    }
    if SNAPSHOT not in state:
        main = dict(state)
        return SavedState(
            main=main, step=state[NUM_YIELDED], parts=[main], **epoch_fields
        )
    snapshot = state[SNAPSHOT]
    main, worker_states = snapshot[MAIN_SNAPSHOT], snapshot.get(WORKER_SNAPSHOTS, {})
    workers = main[NUM_WORKERS]
    return SavedState(
        main=main,
        step=snapshot[SNAPSHOT_STEP],
        parts=[worker_states.get(f"worker_{worker}") for worker in range(workers)],
        later_steps=state[STEPS_SINCE],
        workers=workers,
        last_worker=snapshot[LAST_WORKER],
        **epoch_fields,
    )


def hex_digits(state: torch.Tensor) -> str:
    """Return the state of one of torch's generators as hexadecimal digits."""
    return bytes(state.numpy()).hex()


def from_hex_digits(digits: str) -> torch.Tensor:
    """Return the state that `hex_digits` has converted."""
    return torch.frombuffer(bytearray.fromhex(digits), dtype=torch.uint8)


def generator_states() -> State:
    """Return the states of torch's, Python's and NumPy's generators, fit for JSON."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002 (users draw from it)
    return {
        "torch": hex_digits(torch.get_rng_state()),
        "random": random.getstate(),
        "numpy": [name, np.asarray(keys).tolist(), *rest],
    }


def restore_generators(states: State) -> None:
    """Restore the states that `generator_states` has returned."""
    torch.set_rng_state(from_hex_digits(states["torch"]))
    version, internal_state, gauss_next = states["random"]
    random.setstate((version, tuple(internal_state), gauss_next))
    np.random.set_state(tuple(states["numpy"]))  # noqa: NPY002
