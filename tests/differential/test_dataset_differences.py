"""Intended differences from Grain's datasets, shown in both libraries."""

import importlib
import itertools

import numpy as np
import pytest

from differential.pipelines import OURS, THEIRS, ready


def namespace(library):
    """Import a library's top-level module, ready to use."""
    ready(library)
    return importlib.import_module(library)


def failing(bad):
    """Return a function that raises KeyError for one number and returns all others."""

    def function(x):
        if x == bad:
            raise KeyError(x)
        return x

    return function


def outcomes(iterator, most):
    """Return the elements of an iterator and the names of the errors it raises."""
    found = []
    for _ in range(most):
        try:
            found.append(next(iterator))
        except Exception as error:
            found.append(type(error).__name__)
    return found


def after_an_exception(library, threads):
    g = namespace(library)
    ds = g.MapDataset.range(4).map(failing(1))
    iterator = iter(ds.to_iter_dataset(g.ReadOptions(threads, 4)))
    found = outcomes(iterator, 2)
    state = iterator.get_state()["next_index"]
    return [*found, *outcomes(iterator, 3)], state


@pytest.mark.claim(
    "After an exception, the position is one too low (with threads), or the "
    "same element is tried forever (without)"
)
@pytest.mark.parametrize("threads", [0, 2])
def test_failing_element_counts_as_consumed(threads):
    theirs = {
        0: ([0, *["KeyError"] * 4], 1),
        2: ([0, "KeyError", 2, 3, "IndexError"], 1),
    }
    assert after_an_exception(THEIRS, threads) == theirs[threads]
    ours = [0, "KeyError", 2, 3, "StopIteration"]
    assert after_an_exception(OURS, threads) == (ours, 2)


@pytest.mark.claim("An exception in one dataset ends IterDataset.mix")
def test_mixture_continues_after_an_error_of_a_part():
    def mixed(library):
        g = namespace(library)
        parts = [g.MapDataset.range(3), g.MapDataset.range(10, 13)]
        one, two = (part.to_iter_dataset() for part in parts)
        return outcomes(iter(g.IterDataset.mix([one.map(failing(1)), two])), 7)

    assert mixed(THEIRS) == [0, 10, "KeyError", *["StopIteration"] * 4]
    assert mixed(OURS) == [0, 10, "KeyError", 11, 2, 12, "StopIteration"]


@pytest.mark.claim("MapDataset.source(dict) uses indices as keys of the dict")
def test_dict_of_arrays_has_rows():
    table = {"x": np.arange(4)}
    with pytest.raises(KeyError):
        namespace(THEIRS).MapDataset.source(table)[1]
    assert namespace(OURS).MapDataset.source(table)[1] == {"x": 1}


def of_slices(library, chain):
    """Return the first elements read by two threads in contiguous slices."""
    g = namespace(library)
    ds = chain(g.MapDataset.range(8)).to_iter_dataset()
    ds = g.experimental.multithread_prefetch(ds, 2, 1, sequential_slice=True)
    return [np.ravel(x).tolist() for x in itertools.islice(ds, 30)]


@pytest.mark.claim(
    "sequential_slice=True does not update the lengths of slices, repeats and "
    "batches, which repeats elements or returns empty batches"
)
def test_contiguous_slices_have_their_own_lengths():
    def part(ds):
        return ds[2:6]

    def repeated(ds):
        return ds.repeat(2)

    def batched(ds):
        return ds.batch(3)

    assert len(of_slices(THEIRS, part)) > 4
    assert of_slices(OURS, part) == [[2], [4], [3], [5]]
    assert len(of_slices(THEIRS, repeated)) > 16
    assert of_slices(OURS, repeated) == [[0], [4], [1], [5], [2], [6], [3], [7]] * 2
    with pytest.raises(ValueError, match="Cannot batch 0 values"):
        of_slices(THEIRS, batched)
    assert of_slices(OURS, batched) == [[0, 1, 2], [4, 5, 6], [3], [7]]


@pytest.mark.claim("Negative or missing weights fail at some element, or never")
def test_mixture_checks_its_weights():
    def mixed(library):
        g = namespace(library)
        parts = [g.MapDataset.range(3).to_iter_dataset()] * 2
        return g.IterDataset.mix(parts, [1, -1])

    assert mixed(THEIRS) is not None
    with pytest.raises(ValueError, match="Weights must be positive"):
        mixed(OURS)


@pytest.mark.claim(
    "is_dataloader_pipeline returns whether an iterator is a DataLoader's"
)
def test_only_grain_marks_iterators_of_a_loader():
    g = namespace(THEIRS)
    loader = g.load(g.MapDataset.range(3), num_epochs=1)
    assert iter(loader)._iterator._ctx.is_dataloader_pipeline
    g = namespace(OURS)
    chain = iter(g.MapDataset.range(3).to_iter_dataset())
    assert not chain._ctx.is_dataloader_pipeline
    assert not hasattr(iter(g.load(g.MapDataset.range(3), num_epochs=1)), "_ctx")
