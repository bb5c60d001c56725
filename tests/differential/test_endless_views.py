"""Repeated finite views of endless datasets, whose indices may exceed 64 bits."""

import importlib
import itertools
from typing import Any

import numpy as np
import pytest

import gristmill
from differential.pipelines import OURS, THEIRS, ready
from support.elements import same

MOST = 45
TABLE = np.arange(10, dtype=np.int32).reshape(5, 2)


def draw(x, rng):
    return x, int(rng.integers(1000))


def view(g, first=0, last=7, step=1):
    return g.MapDataset.range(5).repeat()[first:last:step]


def mixed(g):
    parts = [g.MapDataset.range(5).repeat(), g.MapDataset.range(10, 13).repeat()]
    return g.MapDataset.mix(parts, [1, 2])[:7].repeat(4)


def selected(g):
    class Far(g.transforms.DatasetSelectionMap):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return 0, 2**63 + i

    return g.MapDataset.select_from_datasets([view(g)], Far()).map_with_index(pair)


def pair(i, x):
    return i, x


def split(g):
    class Split(g.experimental.FlatMapTransform):
        max_fan_out = 2

        def flat_map(self, element):
            return [element] * 2

    return view(g).apply(Split()).repeat(3)


def windows(g):
    shuffled = g.experimental.WindowShuffleMapDataset(
        g.MapDataset.range(2**40), window_size=2**38, seed=2
    )
    return shuffled.repeat()[2**62 : 2**62 + 5].repeat(3)


CHAINS = {
    "repeated": lambda g: view(g).repeat(5),
    "backwards": lambda g: view(g, 20, 2, -3).repeat(5),
    "from the end": lambda g: view(g, -9, None, 2).repeat(5),
    "endlessly": lambda g: view(g, 1, 9, 2).repeat(),
    "without reseeding": lambda g: view(g).repeat(3, reseed_each_epoch=False),
    "nested": lambda g: view(g).repeat()[3:12].repeat()[:11].repeat(4),
    "random before": lambda g: (
        g.MapDataset.range(5).random_map(draw, seed=3).repeat()[:7].repeat(2)
    ),
    "random after": lambda g: view(g).random_map(draw, seed=3).repeat(5),
    "index": lambda g: (
        g.MapDataset.range(5).map_with_index(pair).repeat()[:7].repeat(5)
    ),
    "shuffle before": lambda g: g.MapDataset.range(5).shuffle(3).repeat()[:7].repeat(5),
    "shuffle of all": lambda g: g.MapDataset.range(5).repeat().shuffle(3)[:7].repeat(5),
    "shuffle after": lambda g: view(g).shuffle(3).repeat(5),
    "window": windows,
    "batch before": lambda g: g.MapDataset.range(5).batch(2).repeat()[:4].repeat(5),
    "batch of all": lambda g: g.MapDataset.range(5).repeat().batch(2)[:4].repeat(5),
    "batch after": lambda g: view(g).batch(3).repeat(5),
    "rows": lambda g: g.MapDataset.source(TABLE).repeat()[:7].repeat(5).batch(4),
    "filter": lambda g: view(g).filter(lambda x: x != 2).repeat(5),
    "flat map": split,
    "mix": mixed,
    "mix of views": lambda g: g.MapDataset.mix([view(g).repeat(3), view(g).repeat(4)]),
    "zip": lambda g: g.experimental.ZipMapDataset(
        [view(g).repeat(3), view(g, 1, 8).repeat(3)]
    ),
    "concatenate": lambda g: g.MapDataset.concatenate(
        [view(g).repeat(2), g.MapDataset.range(3)]
    ).repeat(3),
    "select": selected,
}


def outcomes(dataset: Any, indices: list[int]) -> list[Any]:
    """Return the dataset's element, or the name of its error, at each index."""
    found: list[Any] = []
    for index in indices:
        try:
            found.append(dataset[index])
        except (OverflowError, TypeError) as error:
            found.append(type(error).__name__)
    return found


@pytest.fixture(scope="module")
def libraries():
    for name in (OURS, THEIRS):
        ready(name)
    return gristmill, importlib.import_module(THEIRS)


@pytest.mark.parametrize("name", CHAINS)
def test_view_of_endless_equals_grains(libraries, name):
    ours, theirs = map(CHAINS[name], libraries)
    assert len(ours) == len(theirs)
    shown = min(MOST, len(ours))
    indices = [*range(shown), -1, -shown - 3, 2**63, 2**70, -(3**99)]
    expected = outcomes(theirs, indices)
    assert not isinstance(expected[0], str)
    assert same(outcomes(ours, indices), expected)
    assert same([*itertools.islice(ours, shown)], [*itertools.islice(theirs, shown)])


def test_view_of_endless_keeps_padding_of_ranks():
    options = gristmill.sharding.ShardOptions(shard_index=1, shard_count=2)
    part = gristmill.MapDataset.range(5).shard(options, remainder="wrap")
    view = part.repeat()[:4].repeat(3)
    # Epochs 0, 1 and 2 of the view begin at multiples of 2**63 - 1.
    starts = [epoch * (2**63 - 1) for epoch in range(3)]
    expected = [part[(start + i) % len(part)] for start in starts for i in range(4)]
    assert [*view] == expected


def test_batches_of_view_of_endless_equal_its_elements():
    ds = gristmill.MapDataset.source(TABLE).repeat()[:7].repeat(5)
    batches = [*ds.to_iter_dataset().batch(4)]
    assert np.array_equal(np.concatenate(batches), np.stack([*ds]))
