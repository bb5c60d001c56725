"""Workers start in the order in which their outputs are due."""

import os

import pytest

import gristmill

WORKERS = 2 * len(os.sched_getaffinity(0))


def worker(x):
    return os.getpid()


@pytest.mark.multiprocess
@pytest.mark.parametrize("taken", [0, 1])
def test_starts_follow_the_turn(taken):
    ds = gristmill.MapDataset.range(4 * WORKERS).to_iter_dataset()
    ds = ds.filter(lambda x: True).map(worker)
    options = gristmill.MultiprocessingOptions(num_workers=WORKERS)
    iterator = iter(ds.mp_prefetch(options))
    for _ in range(taken):
        next(iterator)
    state = iterator.get_state()
    iterator.close()
    resumed = iter(ds.mp_prefetch(options))
    resumed.set_state(state)
    found = [next(resumed) for _ in range(WORKERS)]
    resumed.close()
    assert len(set(found)) == WORKERS
    assert found == sorted(found)  # The zygote forks one after another.
