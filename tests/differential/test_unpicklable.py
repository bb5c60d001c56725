"""An element that cannot be unpickled is one error at its turn, as in Grain."""

import itertools

import pytest

import gristmill
from differential.pipelines import OURS, THEIRS, ready
from support.unpicklable import UNPICKLABLE

pytestmark = pytest.mark.multiprocess

KINDS = [*UNPICKLABLE]


def element(index):
    """Return a number for even indices, and one of `KINDS` for odd ones."""
    number, bad = divmod(index, 2)
    return UNPICKLABLE[KINDS[number]]() if bad else number


def by_loader(library):
    legacy = ready(library)

    class Made(legacy.MapTransform):
        def map(self, index):
            return element(index)

    count = 2 * len(KINDS)
    sampler = legacy.SequentialSampler(count, legacy.NoSharding())
    return legacy.DataLoader(
        data_source=range(count), sampler=sampler, operations=[Made()], worker_count=1
    )


def steps(iterator):
    """Yield the result of each call of `next`, errors as text, up to 20."""
    for _ in range(20):
        try:
            yield next(iterator)
        except StopIteration:
            return
        except Exception as error:
            yield f"{type(error).__name__}: {error}"


def test_unpicklable_element_is_one_error():
    want = [*steps(iter(by_loader(THEIRS)))]
    assert len(want) == 2 * len(KINDS)
    assert [*steps(iter(by_loader(OURS)))] == want
    chain = gristmill.MapDataset.range(len(want)).map(element).to_iter_dataset()
    chain = chain.mp_prefetch(gristmill.MultiprocessingOptions(num_workers=1))
    assert [*steps(iter(chain))] == want


def test_state_after_unpicklable_element_resumes_after_it():
    iterator = iter(by_loader(OURS))
    found = [*itertools.islice(steps(iterator), 2)]
    state = iterator.get_state()
    found += steps(iterator)
    assert len(found) == 2 * len(KINDS)
    again = iter(by_loader(OURS))
    again.set_state(state)
    assert [*steps(again)] == found[2:]
