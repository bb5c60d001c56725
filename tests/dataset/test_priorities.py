"""Of more workers than cores, those whose outputs are due first run first."""

import os

import pytest

import gristmill

CORES = len(os.sched_getaffinity(0))
WORKERS = 2 * CORES


def niceness(x):
    return os.nice(0)


@pytest.mark.multiprocess
@pytest.mark.parametrize("taken", [0, 1])
def test_priorities_follow_the_turn(taken):
    ds = gristmill.MapDataset.range(4 * WORKERS).to_iter_dataset()
    ds = ds.filter(lambda x: True).map(niceness)
    options = gristmill.MultiprocessingOptions(num_workers=WORKERS)
    iterator = iter(ds.mp_prefetch(options))
    for _ in range(taken):
        next(iterator)
    state = iterator.get_state()
    iterator.close()
    resumed = iter(ds.mp_prefetch(options))
    resumed.set_state(state)
    mine = os.nice(0)
    found = [next(resumed) - mine for _ in range(WORKERS)]
    resumed.close()
    assert found == [0] * CORES + [1] * CORES
