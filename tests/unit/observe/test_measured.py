"""Tests that measuring does not change the elements of a chain."""

import numpy as np
import pytest

import gristmill as grain
from gristmill import experimental
from gristmill._observe import observed, summary

MapDataset = grain.MapDataset
NO_THREADS = grain.ReadOptions(num_threads=0)


def tokens(x):
    return {"tokens": np.arange(x % 7 + 1)}


def packed(ds):
    return experimental.FirstFitPackIterDataset(
        ds.map(tokens), length_struct={"tokens": 8}, num_packing_bins=3
    )


def interleaved(count):
    parts = [MapDataset.range(i, 20 + i).map(str) for i in range(count)]
    return experimental.InterleaveIterDataset(parts, cycle_length=2)


class Splits(experimental.FlatMapTransform):
    max_fan_out = 3

    def flat_map(self, x):
        return [x] * (x % 3)


CHAINS = {
    "plain": lambda: MapDataset.range(40).to_iter_dataset(),
    "random": lambda: (
        MapDataset.range(40).seed(7).shuffle().random_map(lambda x, r: x + r.random())
    ).to_iter_dataset(),
    "epochs": lambda: MapDataset.range(9).shuffle(1).repeat(3)[1::2].to_iter_dataset(),
    "filter": lambda: MapDataset.range(40).filter(lambda x: x % 3).to_iter_dataset(),
    "nones": lambda: (
        MapDataset.range(40).filter(lambda x: x % 3).to_iter_dataset(allow_nones=True)
    ),
    "rows": lambda: MapDataset.source(np.arange(40)).shuffle(1).batch(6),
    "rows of an iterator": lambda: (
        MapDataset.source(np.arange(40)).shuffle(1).to_iter_dataset().batch(6)
    ),
    "mix": lambda: MapDataset.mix([MapDataset.range(9), MapDataset.range(50)], [1, 4]),
    "mix of iterators": lambda: grain.IterDataset.mix(
        {"a": MapDataset.range(9).to_iter_dataset(), "b": interleaved(3)}
    ),
    "concatenate": lambda: MapDataset.concatenate([MapDataset.range(5)] * 2),
    "zip": lambda: experimental.ZipMapDataset([MapDataset.range(9)] * 2),
    "index": lambda: (
        MapDataset.range(20).to_iter_dataset().map_with_index(lambda i, x: (i, x))
    ),
    "flat map": lambda: experimental.FlatMapIterDataset(
        MapDataset.range(20).to_iter_dataset(), Splits()
    ),
    "window shuffle": lambda: experimental.WindowShuffleIterDataset(
        MapDataset.range(20).to_iter_dataset(), window_size=5, seed=3
    ),
    "pack": lambda: packed(MapDataset.range(40).to_iter_dataset()),
    "interleave": lambda: interleaved(5),
    "repeat": lambda: experimental.RepeatIterDataset(
        MapDataset.range(6).to_iter_dataset(), 3
    ),
    "cache": lambda: experimental.RepeatIterDataset(
        experimental.CacheIterDataset(MapDataset.range(6).to_iter_dataset()), 3
    ),
    "limit": lambda: experimental.LimitIterDataset(
        MapDataset.range(60).to_iter_dataset(), 7
    ),
    "thread": lambda: experimental.ThreadPrefetchIterDataset(
        MapDataset.range(30).map(str).to_iter_dataset(), prefetch_buffer_size=3
    ),
    "threads": lambda: experimental.multithread_prefetch(
        MapDataset.range(30).map(str).to_iter_dataset(), 3, buffer_size=2
    ),
    "workers": lambda: (
        MapDataset.range(30).map(tokens).to_iter_dataset().batch(1)
    ).mp_prefetch(grain.MultiprocessingOptions(num_workers=2)),
    "streams": lambda: (
        (MapDataset.range(30).seed(1).random_map(lambda x, r: x + r.random()))
        .to_iter_dataset()
        .mp_prefetch(grain.MultiprocessingOptions(num_workers=0), streams=3)
    ),
}


def as_iter(dataset):
    return dataset.to_iter_dataset() if isinstance(dataset, MapDataset) else dataset


def observe(dataset):
    return observed.ObservedDatasetIterator(dataset)


@pytest.mark.parametrize("name", CHAINS)
def test_elements_and_states_do_not_change(name):
    ds = as_iter(CHAINS[name]())
    plain, seen = iter(ds), observe(ds)
    np.testing.assert_equal(seen.get_state(), plain.get_state())
    for _ in range(5):
        np.testing.assert_equal(next(seen), next(plain))
    state = plain.get_state()
    np.testing.assert_equal(seen.get_state(), state)
    rest = list(plain)
    assert rest
    np.testing.assert_equal(list(seen), rest)
    seen.set_state(state)
    np.testing.assert_equal(list(seen), rest)
    seen.close()


@pytest.mark.parametrize("name", CHAINS)
def test_chain_has_table_and_report(name):
    iterator = observe(as_iter(CHAINS[name]()))
    given = sum(1 for _ in iterator)
    nodes = summary.summarize(iterator.measurement)
    assert nodes[0].numbers.elements in range(given - 16, given + 1)
    # The wait ratios of nodes sum to 1, unless no node waited.
    total = sum(node.wait_ratio or 0 for node in nodes)
    assert total == pytest.approx(1) or total == 0
    assert len(summary.table(nodes).split("\n")) > 2 * len(nodes)
    assert str(iterator.report()).startswith("Limit: ")
    iterator.close()


def test_interleaved_parts_of_same_kind_share_a_row():
    iterator = observe(interleaved(5))
    assert len(list(iterator)) == 100
    nodes = summary.summarize(iterator.measurement)
    names = [node.name.split("(")[0] for node in nodes]
    assert names == [
        "InterleaveDatasetIterator",
        "MapMapDataset",
        "RangeMapDataset",
    ]
    assert nodes[0].inputs == [1]
    assert nodes[1].numbers.elements == 100


def test_batches_of_rows_stay_native():
    iterator = observe(CHAINS["rows of an iterator"]())
    list(iterator)
    (node,) = summary.summarize(iterator.measurement)
    assert (node.kind, node.numbers.elements) == ("batch", 7)


def test_chain_continues_after_error():
    def fail(x):
        if x == 3:
            raise KeyError("three")
        return x

    ds = MapDataset.range(6).map(fail).to_iter_dataset(NO_THREADS)
    iterator = observe(ds)
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="three"):
        next(iterator)
    assert list(iterator) == [4, 5]


def test_closed_iterator_raises():
    iterator = observe(MapDataset.range(6).to_iter_dataset())
    iterator.close()
    with pytest.raises(ValueError, match="closed iterator"):
        next(iterator)
