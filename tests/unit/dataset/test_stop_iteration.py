"""StopIteration and IndexError raised by user code in chains.

StopIteration of a source, or of a user's dataset, ends the chain that reads it. In a
step it is a failure like any other exception.
"""

import itertools

import numpy as np
import pytest

import gristmill as g
from gristmill import MapDataset, experimental

COUNT = 30
BAD = 11


class Source:
    """Serves numbers, but fails for one."""

    def __init__(self, error):
        self._error = error

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return look(self._error, index)


class Together(Source):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Own(MapDataset):
    """A user's dataset without parents."""

    def __init__(self, error):
        super().__init__()
        self._error = error

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return look(self._error, index)


class OwnTogether(Own):
    def _getitems(self, indices):
        return [self[index] for index in indices]


class Selection(g.transforms.DatasetSelectionMap):
    def __init__(self, error):
        self._error = error

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return 0, look(self._error, index)


def look(error, element):
    """Return an element, or raise an error in place of user code."""
    if BAD in np.ravel(element):
        raise error("user code")
    return element


def splits(error):
    class Split(g.transforms.FlatMap):
        max_fan_out = 2

        def flat_map(self, element):
            return [look(error, element)] * 2

    return Split()


class Lazy:
    """Computes splits when they are read."""

    def __init__(self, error, element):
        self._error = error
        self._element = element

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return look(self._error, self._element)


def lazy_splits(error):
    class Split(g.transforms.FlatMap):
        max_fan_out = 2

        def flat_map(self, element):
            return Lazy(error, element)

    return Split()


class Refusing:
    """An element that fails when it is packed or stacked."""

    def __init__(self, error):
        self._error = error

    def __array__(self, *args, **kwargs):
        raise self._error("user code")

    def __len__(self):
        raise self._error("user code")


def spoilt(error):
    return lambda x: {"x": Refusing(error) if x == BAD else np.array([x])}


def looking(error):
    return lambda *arguments: look(error, arguments[-1])


NUMBERS = MapDataset.range(COUNT)
# Steps of either kind of dataset.
STEPS = {
    "map": lambda ds, error: ds.map(looking(error)),
    "map_with_index": lambda ds, error: ds.map_with_index(looking(error)),
    "random_map": lambda ds, error: ds.random_map(
        lambda x, rng: look(error, x), seed=1
    ),
    "filter": lambda ds, error: ds.filter(lambda x: look(error, x) is not None),
    "flat_map": lambda ds, error: ds.apply(splits(error)),
    "block_map": lambda ds, error: ds.block_map(
        lambda xs: [look(error, x) for x in xs], 4
    ),
    "batch": lambda ds, error: ds.batch(4, batch_fn=lambda xs: look(error, xs)),
    "batch of element": lambda ds, error: ds.map(
        lambda x: Refusing(error) if x == BAD else x
    ).batch(4),
}
PACKED = {"length_struct": {"x": 4}, "num_packing_bins": 2, "shuffle_bins": False}
ITER_STEPS = STEPS | {
    "lazy flat_map": lambda ds, error: ds.apply(lazy_splits(error)),
    "bucket": lambda ds, error: ds.bucket_by_sequence_length(
        lambda x: look(error, x), [100], [3, 3]
    ),
    "batch of a bucket": lambda ds, error: ds.bucket_by_sequence_length(
        lambda x: x, [100], [3, 3], batch_fn=lambda xs: look(error, xs)
    ),
    "first fit": lambda ds, error: experimental.FirstFitPackIterDataset(
        ds.map(spoilt(error)), **PACKED
    ),
    "best fit": lambda ds, error: experimental.BestFitPackIterDataset(
        ds.map(spoilt(error)), **PACKED
    ),
    "rebatch": lambda ds, error: experimental.RebatchIterDataset(
        ds.map(spoilt(error)), 3
    ),
    "concat then split": lambda ds, error: experimental.ConcatThenSplitIterDataset(
        ds.map(spoilt(error)), length_struct={"x": 4}
    ),
}


def indexed(step):
    return lambda error: STEPS[step](NUMBERS, error).to_iter_dataset()


def iterated(step):
    return lambda error: ITER_STEPS[step](NUMBERS.to_iter_dataset(), error)


def mixed(error):
    parts = [NUMBERS.to_iter_dataset().map(looking(error)), NUMBERS.to_iter_dataset()]
    return g.IterDataset.mix(parts)


def zipped(error):
    parts = [NUMBERS.to_iter_dataset(), NUMBERS.to_iter_dataset().map(looking(error))]
    return g.IterDataset.zip(parts)


def elastic(error):
    ds = NUMBERS.to_iter_dataset().map(lambda x: Refusing(error) if x == BAD else x)
    return experimental.ElasticIterator(ds, 4, g.sharding.ShardOptions(0, 1))


def interleaved(error):
    """Interleave datasets from a factory that fails for one of them."""
    made = MapDataset.range(COUNT).map(
        lambda x: MapDataset.range(look(error, x), x + 3).to_iter_dataset()
    )
    return experimental.InterleaveIterDataset(made, cycle_length=3)


class OwnIter(g.IterDataset):
    """A user's dataset that cannot be iterated over."""

    def __init__(self, error):
        super().__init__()
        self._error = error

    def __iter__(self):
        raise self._error("user code")


CHAINS = (
    {f"indexed {step}": indexed(step) for step in STEPS}
    | {f"iterated {step}": iterated(step) for step in ITER_STEPS}
    | {
        f"{step} ahead": lambda error, step=step: (
            experimental.ThreadPrefetchIterDataset(
                iterated(step)(error), prefetch_buffer_size=3
            )
        )
        for step in ("map", "batch")
    }
    | {
        "map in a mixture": mixed,
        "map in a zip": zipped,
        "factory": interleaved,
        "elastic": elastic,
    }
)


def trace(iterator, most=4 * COUNT):
    """Return the elements or error types of an iterator, and the state after each."""
    found, states = [], []
    for _ in range(most):
        try:
            found.append(plain(next(iterator)))
        except StopIteration:
            assert next(iterator, None) is None
            return found, states
        except Exception as error:
            found.append(type(error))
        states.append(iterator.get_state())
    raise AssertionError(f"no end: {found}")


def plain(element):
    if isinstance(element, dict):
        return {key: plain(value) for key, value in element.items()}
    if isinstance(element, tuple):
        return tuple(map(plain, element))
    return np.asarray(element).tolist()


@pytest.mark.parametrize("name", CHAINS)
def test_stopping_step_fails_like_any_step(name):
    stopping = trace(iter(CHAINS[name](StopIteration)))
    failing = trace(iter(CHAINS[name](ValueError)))
    assert ValueError in failing[0]
    renamed = [RuntimeError if x is ValueError else x for x in failing[0]]
    assert stopping == (renamed, failing[1])


@pytest.mark.parametrize("error", [StopIteration, IndexError])
@pytest.mark.parametrize("step", STEPS)
def test_loop_over_failing_indexed_step_raises(error, step):
    raised = RuntimeError if error is StopIteration else error
    with pytest.raises(raised):
        for _ in STEPS[step](NUMBERS, error):
            pass


@pytest.mark.parametrize("step", ["map", "random_map", "filter", "batch"])
@pytest.mark.parametrize("kind", ["indexed", "iterated"])
def test_stopping_step_is_named_with_its_element(kind, step):
    with pytest.raises(RuntimeError, match="raised StopIteration") as caught:
        list(CHAINS[f"{kind} {step}"](StopIteration))
    assert isinstance(caught.value.__cause__, StopIteration)
    assert any(f"record {BAD} (index {BAD})" in x for x in caught.value.__notes__)


SOURCES = {
    "source": lambda error: MapDataset.source(Source(error)),
    "source of blocks": lambda error: MapDataset.source(Together(error)),
    "dataset": Own,
    "dataset of blocks": OwnTogether,
    "selection": lambda error: MapDataset.select_from_datasets(
        [NUMBERS], Selection(error)
    ),
    "parent of steps": lambda error: MapDataset.source(Source(error)).map(lambda x: x),
}


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("name", SOURCES)
def test_stopping_source_is_the_end(name, threads):
    ds = SOURCES[name](StopIteration)
    chain = ds.to_iter_dataset(g.ReadOptions(threads, 2 * threads)).batch(4)
    iterator = iter(chain)
    iterator.start_prefetch()
    expected = [[*range(BAD)][i : i + 4] for i in range(0, BAD, 4)]
    found, states = trace(iterator)
    assert found == expected
    assert [state["next_index"] for state in states] == [4, 8, BAD]
    iterator.set_state(states[-2])
    assert trace(iterator)[0] == expected[-1:]


@pytest.mark.parametrize("error", [IndexError, KeyError])
@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("name", SOURCES)
def test_other_error_of_a_source_is_not_the_end(name, threads, error):
    ds = SOURCES[name](error).to_iter_dataset(g.ReadOptions(threads, 2 * threads))
    found, _ = trace(iter(ds))
    assert found == [*range(BAD), error, *range(BAD + 1, COUNT)]


@pytest.mark.parametrize("name", SOURCES)
def test_indexing_a_stopping_source_raises(name):
    with pytest.raises(StopIteration):
        SOURCES[name](StopIteration)[BAD]


def test_stopping_source_of_datasets_is_the_end():
    class Parts(Source):
        def __getitem__(self, index):
            return MapDataset.range(super().__getitem__(index), index + 2)

    parts = Parts(StopIteration)
    ds = experimental.InterleaveIterDataset(parts, cycle_length=2)
    expected = [
        MapDataset.range(index, index + 2).to_iter_dataset() for index in range(BAD)
    ]
    assert list(ds) == list(
        experimental.InterleaveIterDataset(expected, cycle_length=2)
    )


def test_dataset_whose_iter_stops_is_an_error():
    parts = [NUMBERS.to_iter_dataset(), OwnIter(StopIteration)]
    ds = experimental.InterleaveIterDataset(parts, cycle_length=1)
    with pytest.raises(RuntimeError, match="dataset 1 raised StopIteration"):
        list(ds)


def in_threads(ds):
    return experimental.multithread_prefetch(ds, 2, 2)


def in_workers(ds):
    return ds.mp_prefetch(g.MultiprocessingOptions(num_workers=2))


@pytest.mark.parametrize(
    "prefetch", [in_threads, pytest.param(in_workers, marks=pytest.mark.multiprocess)]
)
@pytest.mark.parametrize("filtered", [False, True], ids=["arithmetic", "filtered"])
def test_stopping_source_ends_its_part(prefetch, filtered):
    ds = MapDataset.source(Source(StopIteration)).to_iter_dataset()
    if filtered:
        ds = ds.filter(lambda x: True)
    parts = [[*range(0, COUNT, 2)], [*range(1, BAD, 2)]]
    batches = [[part[i : i + 4] for i in range(0, len(part), 4)] for part in parts]
    turns = itertools.chain(*itertools.zip_longest(*batches))
    iterator = iter(prefetch(ds.batch(4)))
    assert trace(iterator)[0] == [batch for batch in turns if batch is not None]
    iterator.close()


@pytest.mark.parametrize(
    "prefetch", [in_threads, pytest.param(in_workers, marks=pytest.mark.multiprocess)]
)
@pytest.mark.parametrize("name", ["indexed map", "iterated filter", "iterated batch"])
def test_stopping_step_fails_in_parts(prefetch, name):
    iterators = [iter(prefetch(CHAINS[name](e))) for e in (StopIteration, ValueError)]
    (stopping, _), (failing, _) = map(trace, iterators)
    assert ValueError in failing
    assert stopping == [RuntimeError if x is ValueError else x for x in failing]
    for iterator in iterators:
        iterator.close()


@pytest.mark.multiprocess
def test_source_of_claimed_length_ends_in_workers():
    class Claimed(Source):
        def __len__(self):
            return 10**10

        def __getitem__(self, index):
            assert index < 4096, "nobody needs this element"
            return super().__getitem__(min(index, BAD))

    ds = MapDataset.source(Claimed(StopIteration)).to_iter_dataset()
    iterator = iter(in_workers(ds))
    assert sorted(trace(iterator)[0]) == [*range(BAD)]
    iterator.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("name", [*CHAINS, *SOURCES])
def test_exits_of_user_code_reach_the_caller(name, error):
    chain = CHAINS[name](error) if name in CHAINS else SOURCES[name](error)
    with pytest.raises(error):
        for _ in chain:
            pass
