"""An exception in a chain names the node, the element and the worker once each."""

import re
import traceback

import numpy as np
import pytest

import gristmill as g
from gristmill import experimental, transforms

NO_THREADS = g.ReadOptions(num_threads=0)


class Bad(Exception):
    """Takes two arguments, so it cannot be recreated from its text."""

    def __init__(self, value, why):
        super().__init__(f"{why}: {value}")
        self.value = value


def fail(x, *more):
    if np.any(np.asarray(x) == 13):
        raise Bad(13, "unlucky")
    return x


def fail_with_index(i, x):
    return fail(x)


class Decode(transforms.Map):
    def map(self, x):
        return fail(x)


class Keep(transforms.Filter):
    def filter(self, x):
        return fail(x) is not None


class Split(transforms.FlatMap):
    max_fan_out = 2

    def flat_map(self, x):
        return [fail(x)]


class Source:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return fail(index)


class Own(g.MapDataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return fail(index)


class OwnInBlocks(Own):
    def _getitems(self, indices):
        return [fail(index) for index in indices]


def numbers():
    return g.MapDataset.source(list(range(20)))


def iterated(ds=None):
    return (ds or numbers()).to_iter_dataset(NO_THREADS)


def error_of(ds):
    iterator = iter(ds)
    with pytest.raises(Bad) as caught:
        for _ in iterator:
            pass
    return caught.value


def places(error):
    """Return the notes about nodes and workers, without line numbers."""
    notes = [note for note in error.__notes__ if note.startswith(("while", "in work"))]
    return [re.sub(r" @ [^)]*", "", note) for note in notes]


HERE = "record 13 (index 13)"
EIGHT = "(batch_size=8, drop_remainder=False)"
BATCH = "made the batch up to record 15"


def said(node, transform, what=HERE):
    return f"while {node}(transform={transform}) processed {what}"


CHAINS = {
    "map": (lambda: iterated(numbers().map(Decode())), said("MapMapDataset", "Decode")),
    "map of a function": (
        lambda: iterated(numbers().map(fail)),
        said("MapMapDataset", "fail"),
    ),
    "filter": (
        lambda: iterated(numbers().filter(Keep())),
        said("FilterMapDataset", "Keep"),
    ),
    "map_with_index": (
        lambda: iterated(numbers().map_with_index(fail_with_index)),
        said("MapWithIndexMapDataset", "fail_with_index"),
    ),
    "random_map": (
        lambda: iterated(numbers().random_map(fail, seed=1)),
        said("RandomMapMapDataset", "fail"),
    ),
    "the second of two maps": (
        lambda: iterated(numbers().map(str).map(int).map(fail)),
        said("MapMapDataset", "fail"),
    ),
    "flat map": (
        lambda: iterated(experimental.FlatMapMapDataset(numbers(), Split())),
        said("FlatMapMapDataset", "Split"),
    ),
    "source": (
        lambda: iterated(g.MapDataset.source(Source())),
        f"while reading {HERE}",
    ),
    "own": (lambda: iterated(Own()), "while Own read element 13"),
    "own before a map": (lambda: iterated(Own().map(str)), "while Own read element 13"),
    "map in a batch": (
        lambda: iterated(numbers().map(fail).batch(8)),
        said("MapMapDataset", "fail"),
    ),
    "a batch": (
        lambda: iterated(numbers().batch(8).map(fail)),
        said("MapMapDataset", "fail", "element 1"),
    ),
    "batch_fn": (
        lambda: iterated(numbers().batch(8, batch_fn=fail)),
        f"while BatchMapDataset{EIGHT} {BATCH} (index 15)",
    ),
    "a slice": (
        lambda: iterated(numbers()[3::2].map(fail)),
        said("MapMapDataset", "fail", "record 13 (index 5)"),
    ),
    "a second epoch": (
        lambda: iterated(
            numbers()
            .map(lambda x: x)
            .repeat(2)
            .map_with_index(lambda i, x: fail(13 if i == 33 else 0))
        ),
        said("MapWithIndexMapDataset", "<lambda>", "record 13 (index 33)"),
    ),
    "iterated map": (
        lambda: iterated().map(Decode()),
        said("MapDatasetIterator", "Decode"),
    ),
    "iterated filter": (
        lambda: iterated().filter(Keep()),
        said("FilterDatasetIterator", "Keep"),
    ),
    "a filter of arrays": (
        lambda: iterated().filter(lambda x: np.arange(2) if x == 13 else True),
        None,
    ),
    "iterated map_with_index": (
        lambda: iterated().map_with_index(fail_with_index),
        said("MapWithIndexDatasetIterator", "fail_with_index"),
    ),
    "iterated random_map": (
        lambda: iterated().random_map(fail, seed=1),
        said("RandomMapDatasetIterator", "fail"),
    ),
    "after a filter": (
        lambda: iterated().filter(lambda x: x % 2).map(fail),
        said("MapDatasetIterator", "fail"),
    ),
    "after an iterated shuffle": (
        lambda: iterated(numbers()[::-1]).map(fail),
        said("MapDatasetIterator", "fail", "record 13 (index 6)"),
    ),
    "iterated flat map": (
        lambda: experimental.FlatMapIterDataset(iterated(), Split()),
        said("FlatMapDatasetIterator", "Split"),
    ),
    "iterated batch_fn": (
        lambda: iterated().batch(8, batch_fn=fail),
        f"while BatchDatasetIterator{EIGHT} {BATCH} (index 15)",
    ),
    "after an iterated batch": (
        lambda: iterated().batch(8).map(fail),
        said("MapDatasetIterator", "fail", "the batch up to record 15 (index 15)"),
    ),
    "behind a thread": (
        lambda: experimental.ThreadPrefetchIterDataset(
            iterated().map(fail), prefetch_buffer_size=2
        ),
        said("MapDatasetIterator", "fail"),
    ),
    "a limited map": (
        lambda: experimental.LimitIterDataset(iterated(), 15).map(fail),
        said("MapDatasetIterator", "fail"),
    ),
    "an interleaved part": (
        lambda: experimental.InterleaveIterDataset(
            [iterated().map(fail)], cycle_length=1
        ),
        said("MapDatasetIterator", "fail"),
    ),
    "after an interleaving": (
        lambda: experimental.InterleaveIterDataset([iterated()], cycle_length=1).map(
            fail
        ),
        said("MapDatasetIterator", "fail", "an element"),
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_node_and_element_are_named_once(name):
    make, expected = CHAINS[name]
    if expected is None:
        with pytest.raises(ValueError, match="ambiguous") as caught:
            list(make())
        (note,) = places(caught.value)
        assert note.startswith("while FilterDatasetIterator(transform=<lambda>) proce")
        return
    error = error_of(make())
    assert places(error) == [expected]
    assert error.value == 13
    frames = traceback.extract_tb(error.__traceback__)
    assert frames[-1].name == "fail"


def test_failing_block_names_its_elements():
    ds = OwnInBlocks()
    with pytest.raises(Bad) as caught:
        ds.map(str)._getitems([12, 13])
    assert places(caught.value) == ["while OwnInBlocks read one of the elements 12, 13"]


def test_element_read_by_index_is_named():
    with pytest.raises(Bad) as caught:
        numbers()[::-1].map(fail)[6]
    assert places(caught.value) == [
        "while MapMapDataset(transform=fail) processed record 13 (index 6)"
    ]


def test_exception_raised_twice_has_each_note_once():
    error = Bad(13, "the same")

    def refuse(x):
        if x == 13:
            raise error
        return x

    for _ in range(2):
        with pytest.raises(Bad):
            list(iterated(numbers().map(refuse)))
    assert len(places(error)) == 1


def test_loop_continues_and_fails_again_after_restore():
    iterator = iter(iterated(numbers().map(fail)))
    state = iterator.get_state()
    for _ in range(2):
        found = []
        for _ in range(20):
            try:
                found.append(next(iterator))
            except Bad as error:
                found.append(places(error)[0][-len(HERE) :])
        assert found == [*range(13), HERE, *range(14, 20)]
        iterator.set_state(state)


WORKERS = {
    "map": (lambda: iterated(numbers().map(fail)), said("MapMapDataset", "fail")),
    "source": (
        lambda: iterated(g.MapDataset.source(Source())),
        f"while reading {HERE}",
    ),
    "own": (lambda: iterated(Own().map(str)), "while Own read element 13"),
    "iterated map": (
        lambda: iterated().map(fail),
        said("MapDatasetIterator", "fail", "record 13 (index 6) of stream 1"),
    ),
    "after a filter": (
        lambda: iterated().filter(Keep()).map(fail),
        said("FilterDatasetIterator", "Keep", "record 13 (index 6) of stream 1"),
    ),
    "batch_fn": (
        lambda: iterated().batch(8, batch_fn=fail),
        f"while BatchDatasetIterator{EIGHT} {BATCH} (index 7) of stream 1",
    ),
}


@pytest.mark.multiprocess
@pytest.mark.parametrize("name", WORKERS)
def test_error_in_worker_names_the_worker(name):
    make, expected = WORKERS[name]
    options = g.MultiprocessingOptions(num_workers=2)
    error = error_of(make().mp_prefetch(options))
    assert error.value == 13
    place, worker = places(error)
    assert place == expected
    assert re.fullmatch(r"in worker [01]", worker)
    frames = traceback.extract_tb(error.__traceback__)
    assert frames[-1].name == "fail"


@pytest.mark.multiprocess
@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_names_the_record(workers):
    sampler = g.IndexSampler(20, num_epochs=1)
    loader = g.DataLoader(
        data_source=list(range(20)),
        sampler=sampler,
        operations=[Decode()],
        worker_count=workers,
    )
    with pytest.raises(Bad) as caught:
        list(loader)
    assert places(caught.value)[0] == f"while Decode processed {HERE}"
    assert len(places(caught.value)) == 1 + (workers > 0)


def test_measured_chain_names_node_and_element():
    iterator = iter(
        iterated(numbers().map(fail))
        .batch(4)
        .set_options(
            experimental.DatasetOptions(
                execution_tracking_mode=experimental.ExecutionTrackingMode.STAGE_TIMING
            )
        )
    )
    with pytest.raises(Bad) as caught:
        list(iterator)
    assert places(caught.value) == [
        f"while MapMapDataset(transform=fail) processed {HERE}"
    ]
