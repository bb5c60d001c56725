"""A cache reads its parent once."""

import gristmill
from gristmill.experimental import CacheIterDataset, RepeatIterDataset
from support.twins import assert_twins


def counted(n):
    calls = []
    ds = gristmill.MapDataset.range(n).to_iter_dataset()
    return ds.map(lambda x: calls.append(x) or x), calls


def test_caches_match_grain():
    assert_twins(
        lambda lib: lib.experimental.CacheIterDataset(
            lib.MapDataset.range(5).to_iter_dataset().filter(lambda x: x != 3)
        )
    )


def test_repeated_caches_match_grain():
    assert_twins(
        lambda lib: lib.experimental.RepeatIterDataset(
            lib.experimental.CacheIterDataset(
                lib.MapDataset.range(4).to_iter_dataset()
            ),
            3,
        )
    )


def test_later_epochs_come_from_memory():
    ds, calls = counted(4)
    assert list(RepeatIterDataset(CacheIterDataset(ds), 3)) == 3 * [0, 1, 2, 3]
    assert calls == [0, 1, 2, 3]


def test_restored_cache_reads_each_element_once():
    ds, calls = counted(4)
    repeated = RepeatIterDataset(CacheIterDataset(ds), 3)
    iterator = iter(repeated)
    for _ in range(6):
        next(iterator)
    state = iterator.get_state()
    calls.clear()
    resumed = iter(repeated)
    resumed.set_state(state)
    assert resumed.get_state() == state
    assert list(resumed) == [2, 3, 0, 1, 2, 3]
    assert calls == [0, 1, 2, 3]


def test_failed_elements_are_skipped_on_restore():
    def fail_at_two(x):
        if x == 2:
            raise RuntimeError(x)
        return x

    ds = CacheIterDataset(
        gristmill.MapDataset.range(5).to_iter_dataset().map(fail_at_two)
    )
    iterator = iter(RepeatIterDataset(ds, 2))
    found = []
    for _ in range(7):
        try:
            found.append(next(iterator))
        except RuntimeError as error:
            found.append(str(error))
    assert found == [0, 1, "2", 3, 4, 0, 1]
    resumed = iter(RepeatIterDataset(ds, 2))
    resumed.set_state(iterator.get_state())
    assert list(resumed) == [3, 4]
