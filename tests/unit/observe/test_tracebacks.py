"""Tracebacks of the user's own errors show the user's own frames."""

import traceback

import pytest

import gristmill as grain
from gristmill._observe import observed, sampling, tracebacks

NO_THREADS = grain.ReadOptions(num_threads=0)


@pytest.fixture
def filtering():
    yield lambda mode: grain.config.update("py_traceback_filtering", mode)
    grain.config.update("py_traceback_filtering", "auto")


def fail(x):
    if x == 700:
        raise KeyError(x)
    return x


def by_index():
    return grain.MapDataset.range(999).map(fail).to_iter_dataset(NO_THREADS).batch(4)


def by_step():
    return grain.MapDataset.range(999).to_iter_dataset(NO_THREADS).map(fail).batch(4)


def error_of(iterator):
    with pytest.raises(KeyError) as caught:
        for _ in iterator:
            pass
    return caught.value


def own_frames(error):
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [frame for frame in frames if tracebacks._is_own(frame)]


def place_of(error):
    """The one note that says which element it is about."""
    (place,) = [note for note in error.__notes__ if note.endswith("(index 700)")]
    return [place]


@pytest.mark.claim("several notes say that frames were cut from a traceback")
@pytest.mark.parametrize("chain", [by_index, by_step])
def test_no_frame_of_ours_stays(chain, filtering):
    error = error_of(iter(chain()))
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert own_frames(error) == []
    assert names[-1] == "fail"
    assert error.__notes__ == [tracebacks.NOTE, *place_of(error)]


def test_calls_that_are_not_timed_are_cut_as_well(monkeypatch):
    monkeypatch.setattr(sampling, "FIRST_NS", 10**15)
    ds = grain.MapDataset.range(100_000).map(lambda x: fail(x - 60_000))
    iterator = iter(ds.to_iter_dataset(NO_THREADS))
    for _ in range(50_000):
        next(iterator)
    assert iterator._watch._kind is None
    error = error_of(iterator)
    assert own_frames(error) == []
    assert next(iterator) == 701


@pytest.mark.claim("several notes say that frames were cut from a traceback")
def test_a_measured_chain_has_one_note():
    iterator = observed.ObservedDatasetIterator(by_index())
    error = error_of(iterator)
    assert error.__notes__ == [tracebacks.NOTE, *place_of(error)]
    assert own_frames(error) == []


def test_off_leaves_the_traceback_alone(filtering):
    filtering("off")
    error = error_of(iter(by_index()))
    assert len(own_frames(error)) > 3
    assert error.__notes__ == place_of(error)


def test_remove_frames_keeps_the_whole_as_the_cause(filtering):
    filtering("remove_frames")
    error = error_of(iter(by_index()))
    assert isinstance(error.__cause__, tracebacks.FullTraceback)
    names = [f.name for f in traceback.extract_tb(error.__cause__.__traceback__)]
    assert any("apply" in name for name in names)
    assert names[-1] == traceback.extract_tb(error.__traceback__)[-1].name
    assert own_frames(error) == []


def test_tracebackhide_marks_frames(filtering):
    filtering("tracebackhide")
    error = error_of(iter(by_index()))
    marked = [f.f_locals.get("__tracebackhide__") for f in own_frames(error)]
    assert len(marked) > 3
    assert all(marked)


def test_an_error_of_ours_keeps_the_frame_that_raised_it():
    iterator = iter(grain.MapDataset.range(9).to_iter_dataset())
    iterator.close()
    with pytest.raises(ValueError, match="closed iterator") as caught:
        next(iterator)
    names = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "_assert_not_closed"


def test_errors_of_a_users_own_iterator_are_left_alone():
    class Mine(grain.DatasetIterator):
        def __next__(self):
            raise KeyError("mine")

        def get_state(self):
            return {}

        def set_state(self, state):
            pass

    class Own(grain.IterDataset):
        def __iter__(self):
            return Mine()

    error = error_of(iter(Own()))
    assert not hasattr(error, "__notes__")
