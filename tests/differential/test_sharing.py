"""Arrays of an element from workers share memory exactly as Grain's do."""

import importlib

import numpy as np
import pandas as pd
import pytest

from differential.pipelines import OURS, THEIRS, ready

pytestmark = pytest.mark.multiprocess


def read_only(array):
    view = array[...]
    view.flags.writeable = False
    return view


# Elements made from an array, small and large.
ELEMENTS = [
    lambda x: [x, x],
    lambda x: {"all": x, "part": x[2:], "turned": x[::-1]},
    lambda x: [x[i : i + 4] for i in range(3)],
    lambda x: (x.reshape(2, -1)[:, 1:3], x.reshape(2, -1)[1:]),
    lambda x: [[x, {"again": x}], x[:0], x[:0]],
    lambda x: [read_only(x), read_only(x)[1:]],
    lambda x: [pd.Series(x, copy=False), pd.Series(x[1:], copy=False), x],
]
LENGTHS = (8, 40_000)


def elements(index):
    make, length = divmod(index, len(LENGTHS))
    return ELEMENTS[make](np.arange(float(LENGTHS[length])))


def leaves_of(element):
    if isinstance(element, dict):
        element = [*element.values()]
    if isinstance(element, list | tuple):
        return [leaf for part in element for leaf in leaves_of(part)]
    return [element]


def sharing_of(element):
    """Write to each leaf in turn; return the bytes of all leaves before and after."""
    leaves = leaves_of(element)
    found = [np.asarray(leaf).tobytes() for leaf in leaves]
    for number, leaf in enumerate(leaves):
        (leaf.iloc if isinstance(leaf, pd.Series) else leaf)[...] = -1.0 - number
        found += [np.asarray(leaf).tobytes() for leaf in leaves]
    return found


def by_loader(library):
    legacy = ready(library)

    class Made(legacy.MapTransform):
        def map(self, index):
            return elements(index)

    count = len(ELEMENTS) * len(LENGTHS)
    sampler = legacy.SequentialSampler(count, legacy.NoSharding())
    return legacy.DataLoader(
        data_source=range(count), sampler=sampler, operations=[Made()], worker_count=1
    )


def by_mp_prefetch(library):
    ready(library)
    grain = importlib.import_module(library)
    count = len(ELEMENTS) * len(LENGTHS)
    chain = grain.MapDataset.range(count).map(elements).to_iter_dataset()
    return chain.mp_prefetch(grain.MultiprocessingOptions(num_workers=1))


def test_arrays_of_an_element_share_memory_like_grains():
    theirs = [*map(sharing_of, by_mp_prefetch(THEIRS))]
    for build in (by_mp_prefetch, by_loader):
        assert [*map(sharing_of, build(OURS))] == theirs
