"""Intended differences from Grain for elements from worker processes."""

import importlib

import numpy as np
import pytest

from differential.pipelines import OURS, THEIRS, ready
from gristmill.errors import StateMismatch

pytestmark = pytest.mark.multiprocess


def from_workers(library, elements, operations=(), *, workers=1, **options):
    """Return an iterator of a loader with workers over a list."""
    legacy = ready(library)
    loader = legacy.DataLoader(
        data_source=elements,
        sampler=legacy.SequentialSampler(len(elements), legacy.NoSharding()),
        operations=operations,
        worker_count=workers,
        **options,
    )
    return iter(loader)


def batched(library, elements):
    """Return one batch of all elements, made in a worker."""
    return next(from_workers(library, elements, [ready(library).Batch(len(elements))]))


@pytest.mark.claim("Arrays from workers are SharedMemoryArray")
def test_arrays_are_plain_and_view_a_slot():
    theirs, ours = (
        next(from_workers(library, [np.zeros(9000)])) for library in (THEIRS, OURS)
    )
    assert type(theirs).__name__ == "SharedMemoryArray"
    assert type(ours) is np.ndarray
    assert type(ours.base).__name__ == "SlotView"


@pytest.mark.claim("With workers, dicts that are not batches arrive with sorted keys")
def test_unbatched_dicts_keep_their_key_order():
    theirs, ours = (
        next(from_workers(library, [{"b": 1, "a": 2}])) for library in (THEIRS, OURS)
    )
    assert list(theirs) == ["a", "b"]
    assert list(ours) == ["b", "a"]


@pytest.mark.claim("With workers, a final Batch uses the dtype of its first element")
def test_last_batch_has_the_common_dtype():
    elements = [np.int64(1), np.float64(2.5)]
    with pytest.raises(TypeError, match="Cannot cast array data"):
        batched(THEIRS, elements)
    batch = batched(OURS, elements)
    assert batch.dtype == np.float64
    assert batch.tolist() == [1, 2.5]


@pytest.mark.claim("With workers, a final Batch of arrays of size 0 raises ValueError")
def test_last_batch_of_empty_arrays_is_empty():
    elements = [np.zeros((0, 3))] * 2
    with pytest.raises(ValueError, match="to have the same structure"):
        batched(THEIRS, elements)
    assert batched(OURS, elements).shape == (2, 0, 3)


@pytest.mark.claim("An exception in a worker ends its stream")
def test_stream_continues_after_an_exception():
    def all_of(library):
        class Fails(ready(library).MapTransform):
            def map(self, element):
                if element == 2:
                    raise KeyError(element)
                return element

        iterator, found = from_workers(library, [*range(6)], [Fails()], workers=2), []
        while True:
            try:
                found.append(next(iterator))
            except KeyError:
                found.append("failed")
            except StopIteration:
                return found

    assert all_of(THEIRS)[:3] == [0, 1, "failed"]
    assert 4 not in all_of(THEIRS)
    assert all_of(OURS) == [0, 1, "failed", 3, 4, 5]


@pytest.mark.claim("With workers, worker_buffer_size=0 fails at the first batch")
def test_zero_buffer_size_computes_nothing_ahead():
    with pytest.raises(ValueError, match="`buffer_size` must be greater than 0"):
        list(from_workers(THEIRS, [5, 6, 7], worker_buffer_size=0))
    assert list(from_workers(OURS, [5, 6, 7], worker_buffer_size=0)) == [5, 6, 7]


def state_of_long_cycle():
    """Return Grain's state of three datasets shared by two workers."""
    whole = {
        "next_index_in_cycle": 0,
        "next_index_in_datasets": 3,
        "iterators_in_use_indices": [0, 1, 2],
        "iterators_in_use_states": [{"next_index": 0}] * 3,
        "exhausted": [0, 0, 0],
        "future_states": {},
    }
    return whole | {
        "next_index_in_datasets": 2,
        "iterators_in_use_indices": [0, 1],
        "iterators_in_use_states": [whole, whole],
        "exhausted": [0, 0],
    }


@pytest.mark.claim(
    "If an interleave's cycle is longer than a worker's share of the "
    "datasets, a state of mp_prefetch that is saved before each worker "
    "returned an element raises IndexError when it is restored"
)
def test_long_cycle_interleave_state_is_refused():
    ready(THEIRS)
    chains = []
    for library in (importlib.import_module(name) for name in (THEIRS, OURS)):
        parts = [library.MapDataset.range(9 * i, 9 * i + 3) for i in range(3)]
        mixed = library.experimental.InterleaveIterDataset(parts, cycle_length=4)
        workers = library.multiprocessing.MultiprocessingOptions(num_workers=2)
        chains.append(mixed.mp_prefetch(workers))
    theirs, ours = map(iter, chains)
    state = theirs.get_state()
    assert state == state_of_long_cycle()
    with pytest.raises(StateMismatch, match=r"the state has 3 .*expected 2"):
        ours.set_state(state)
    ours.set_state(ours.get_state())
    assert list(ours) == [0, 9, 18, 10, 1, 11, 19, 2, 20]
