"""Chains of datasets computed by threads: experimental.multithread_prefetch."""

import json

import numpy as np
import pytest

import gristmill as g
from gristmill import experimental

prefetch = experimental.multithread_prefetch


def numbers(count=30):
    return g.MapDataset.range(count)


def add_draw(x, rng):
    return (x, int(rng.integers(1000)))


def taken(iterator):
    return [np.asarray(element).tolist() for element in iterator]


CHAINS = {
    "batches": lambda: numbers().shuffle(seed=1).to_iter_dataset().batch(4),
    "filter": lambda: numbers().to_iter_dataset().filter(lambda x: x % 3 > 0).batch(3),
    "random": lambda: numbers().seed(5).to_iter_dataset().random_map(add_draw),
    "random before": lambda: numbers().seed(5).random_map(add_draw).to_iter_dataset(),
    "few": lambda: numbers(1).to_iter_dataset(),
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("buffer", [1, 50])
def test_order_and_states_match_streams(chain, threads, buffer):
    dataset = CHAINS[chain]()
    none = g.MultiprocessingOptions(num_workers=0)
    alone = iter(dataset.mp_prefetch(none, streams=threads))
    iterator = iter(prefetch(dataset, threads, buffer))
    elements, states = [], [iterator.get_state()]
    assert states[0] == alone.get_state()
    for element in alone:
        elements.append(np.asarray(element).tolist())
        assert np.asarray(next(iterator)).tolist() == elements[-1]
        states.append(iterator.get_state())
        assert states[-1] == alone.get_state()
    assert next(iterator, None) is next(iterator, None) is None
    assert iterator.get_state() == alone.get_state()
    for place in (len(elements), 0, len(elements) // 2):
        iterator.set_state(json.loads(json.dumps(states[place])))
        assert iterator.get_state() == states[place]
        assert taken(iterator) == elements[place:]


def test_sequential_slices_are_contiguous():
    dataset = prefetch(numbers(7).to_iter_dataset(), 2, 1, sequential_slice=True)
    assert taken(dataset) == [0, 4, 1, 5, 2, 6, 3]


def test_zero_threads_return_the_dataset_itself():
    dataset = numbers().to_iter_dataset()
    assert prefetch(dataset, 0, 1) is dataset


def test_threads_copy_steps_and_share_the_source():
    class Counting(g.transforms.Map):
        def __init__(self):
            self.seen = 0

        def map(self, x):
            self.seen += 1
            return [x, self.seen]

    class Source:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return index

        def __deepcopy__(self, memo):
            raise AssertionError("the source was copied")

    dataset = g.MapDataset.source(Source()).to_iter_dataset().map(Counting())
    assert list(prefetch(dataset, 2, 1)) == [
        [0, 1],
        [1, 1],
        [2, 2],
        [3, 2],
        [4, 3],
        [5, 3],
    ]


def test_error_keeps_its_place_and_is_consumed():
    def fails(x):
        if x == 5:
            raise LookupError("no 5")
        return x

    dataset = numbers(10).map(fails).to_iter_dataset().batch(2)
    iterator = iter(prefetch(dataset, 2, 3))
    assert [next(iterator).tolist() for _ in range(3)] == [[0, 2], [1, 3], [4, 6]]
    with pytest.raises(LookupError, match="no 5"):
        next(iterator)
    state = iterator.get_state()
    assert taken(iterator) == [[8], [7, 9]]
    iterator.set_state(state)
    assert taken(iterator) == [[8], [7, 9]]


def test_workers_divide_the_streams():
    inner = prefetch(numbers(12).to_iter_dataset(), 4, 1)
    options = g.MultiprocessingOptions(num_workers=2)
    # Worker 0 has streams 0 and 2 of four, worker 1 has 1 and 3.
    assert taken(inner.mp_prefetch(options)) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
