"""Threads compute parts of a dataset and keep its order."""

import threading

import numpy as np
import pytest

import gristmill
from gristmill.experimental import (
    DatasetOptions,
    TFRecordIterDataset,
    WithOptionsIterDataset,
    ZipIterDataset,
    multithread_prefetch,
)
from support.twins import assert_twins, grain


def draw(x, rng):
    return (x, rng.integers(1000))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("sequential", [False, True])
def test_threads_match_grain(threads, sequential):
    def make(lib):
        ds = lib.MapDataset.range(11).shuffle(seed=1).to_iter_dataset()
        ds = ds.random_map(draw, seed=3).batch(2)
        return lib.experimental.multithread_prefetch(ds, threads, 2, sequential)

    assert_twins(make)


@pytest.mark.parametrize(
    "chain",
    [
        lambda lib, ds: lib.experimental.InterleaveIterDataset(
            [ds(), lib.MapDataset.range(50, 53), ds().filter(lambda x: x % 2)],
            cycle_length=2,
        ),
        lambda lib, ds: lib.experimental.WindowShuffleIterDataset(
            ds(), window_size=3, seed=1
        ),
        lambda lib, ds: lib.experimental.ZipIterDataset([ds(), ds()], strict=True),
        lambda lib, ds: lib.experimental.RebatchIterDataset(ds().batch(2), 3),
        lambda lib, ds: lib.IterDataset.mix([ds(), ds()], [1, 2]),
    ],
)
def test_nodes_before_threads_match_grain(chain):
    def make(lib):
        ds = chain(lib, lambda: lib.MapDataset.range(14).to_iter_dataset())
        return lib.experimental.multithread_prefetch(ds, 2, 1)

    assert_twins(make)


@pytest.mark.claim(
    "If a chain contains a dataset twice, mp_prefetch and "
    "multithread_prefetch slice it twice and lose elements"
)
def test_dataset_used_twice_is_sliced_once():
    """Grain slices it twice, and loses three quarters of its elements."""
    ds = gristmill.MapDataset.range(8).to_iter_dataset()
    zipped = ZipIterDataset([ds, ds])
    assert list(multithread_prefetch(zipped, 2, 1)) == [(i, i) for i in range(8)]


def test_one_to_one_chains_ignore_thread_count():
    ds = gristmill.MapDataset.range(10).to_iter_dataset().random_map(draw, seed=3)
    for threads in (1, 2, 4):
        assert list(multithread_prefetch(ds, threads, 1)) == list(ds)


def test_zero_threads_return_the_dataset_itself():
    ds = gristmill.MapDataset.range(3).to_iter_dataset()
    assert multithread_prefetch(ds, 0, 1) is ds


def test_threads_share_sources_but_not_transforms():
    class Slow(gristmill.transforms.Map):
        def __init__(self):
            self.threads = set()

        def map(self, x):
            self.threads.add(threading.current_thread())
            threading.Event().wait(0.001)
            return (x, len(self.threads))

    rows = np.arange(60)
    ds = gristmill.MapDataset.source(rows).to_iter_dataset().map(Slow())
    found = multithread_prefetch(ds, 3, 2)
    parts = found._parent.datasets
    assert all(part._parent._parent._parent._parent._source is rows for part in parts)
    # Each copy is called by one thread only.
    assert list(found) == [(x, 1) for x in range(60)]


def test_options_of_parts_apply():
    ds = gristmill.MapDataset.range(4000).to_iter_dataset().filter(lambda x: False)
    ds = WithOptionsIterDataset(ds, DatasetOptions(filter_raise_threshold_ratio=0.5))
    with pytest.raises(ValueError, match=r"skipped 100.00 %"):
        list(multithread_prefetch(ds, 2, 1))


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_unsliceable_source_is_rejected(library, tmp_path):
    ds = library().experimental.TFRecordIterDataset(str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"Cannot slice `IterDataset` source."):
        library().experimental.multithread_prefetch(ds, 2, 1)


def test_one_thread_accepts_any_source(tmp_path):
    file = tmp_path / "empty"
    file.write_bytes(b"")
    assert list(multithread_prefetch(TFRecordIterDataset(file), 1, 1)) == []


@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds[2:8],
        lambda ds: ds[1::3],
        lambda ds: ds[2:8].shuffle(seed=1),
        lambda ds: ds.shuffle(seed=1)[2:8].map(lambda x: x),
    ],
)
def test_threads_over_a_slice_yield_its_elements(chain):
    ds = chain(gristmill.MapDataset.range(10))
    for threads in (2, 3):
        pieces = multithread_prefetch(
            ds.to_iter_dataset(), threads, buffer_size=1, sequential_slice=True
        )
        assert sorted(pieces) == sorted(ds)
