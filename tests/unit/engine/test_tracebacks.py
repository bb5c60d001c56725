"""Tracebacks of errors in user code show only user frames."""

import concurrent.futures._base
import itertools
import traceback

import pytest

import gristmill as grain
from gristmill._engine import tracebacks
from gristmill._observe import observed, sampling

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


class Records:
    """Fails at record 700, read alone or in a block."""

    def __len__(self):
        return 999

    def __getitem__(self, index):
        return fail(index)

    def __getitems__(self, indices):
        return [fail(index) for index in indices]


class OneByOne(Records):
    __getitems__ = None


class Decode(grain.MapTransform):
    def map(self, x):
        return fail(x)


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


class Together(grain.transforms.BlockMap):
    block_size = 8

    def block_map(self, elements):
        return [fail(x) for x in elements]


def loader(source=range(999), *operations):
    return grain.load(source, num_epochs=1, transformations=operations, batch_size=8)


def torch_loader(dataset):
    loaders = pytest.importorskip("gristmill.torch")
    return loaders.DataLoader(dataset, batch_size=8)


def tensors_of(loader):
    return pytest.importorskip("gristmill.torch").AsIterable(loader)


def on_device(batches):
    return pytest.importorskip("gristmill.jax").prefetch_to_device(batches)


NUMBERS = grain.MapDataset.range(999)
OUTPUTS = {
    "records of a loader": lambda: loader(OneByOne()),
    "records read together": lambda: loader(Records()),
    "a step of a loader": lambda: loader(range(999), Decode()),
    "a block of a loader": lambda: loader(range(999), Together()),
    "blocks": lambda: NUMBERS.block_map(Together()).to_iter_dataset(NO_THREADS),
    "iterated blocks": lambda: NUMBERS.to_iter_dataset().block_map(Together()),
    "records of a chain": lambda: grain.MapDataset.source(Records()).batch(8),
    "a torch dataset": lambda: torch_loader(OneByOne()),
    "tensors of a loader": lambda: tensors_of(loader(OneByOne())),
    "arrays of a device": lambda: on_device(loader(OneByOne())),
    "an iterator of theirs": Own,
}


def error_of(iterator):
    with pytest.raises(KeyError) as caught:
        for _ in iterator:
            pass
    return caught.value


def own_frames(error):
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = tracebacks.find_own([frame.f_code.co_filename for frame in frames])
    return list(itertools.compress(frames, own))


def place_of(error):
    """Return the one note that names the element."""
    (place,) = [note for note in error.__notes__ if note.endswith("(index 700)")]
    return [place]


@pytest.mark.claim("Several notes say that frames were removed from a traceback")
@pytest.mark.parametrize("chain", [by_index, by_step])
def test_gristmill_frames_are_removed(chain, filtering):
    error = error_of(iter(chain()))
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert own_frames(error) == []
    assert names[-1] == "fail"
    assert error.__notes__ == [tracebacks.NOTE, *place_of(error)]


def test_tracebacks_of_untimed_calls_are_filtered(monkeypatch):
    monkeypatch.setattr(sampling, "FIRST_SAMPLE_NS", 10**15)
    ds = grain.MapDataset.range(100_000).map(lambda x: fail(x - 60_000))
    iterator = iter(ds.to_iter_dataset(NO_THREADS))
    for _ in range(50_000):
        next(iterator)
    assert iterator._watch.outputs < 2000
    error = error_of(iterator)
    assert own_frames(error) == []
    assert next(iterator) == 701


@pytest.mark.claim("Several notes say that frames were removed from a traceback")
def test_measured_chain_has_one_note():
    iterator = observed.ObservedDatasetIterator(by_index())
    error = error_of(iterator)
    assert error.__notes__ == [tracebacks.NOTE, *place_of(error)]
    assert own_frames(error) == []


def test_off_does_not_change_the_traceback(filtering):
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


def test_gristmill_error_keeps_its_raising_frame():
    iterator = iter(grain.MapDataset.range(9).to_iter_dataset())
    iterator.close()
    with pytest.raises(ValueError, match="closed iterator") as caught:
        next(iterator)
    names = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "_assert_not_closed"


def test_errors_of_user_iterators_are_not_changed():
    error = error_of(iter(Own()))
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize("name", OUTPUTS)
def test_error_of_user_code_shows_user_frames_once(name):
    error = error_of(iter(OUTPUTS[name]()))
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert own_frames(error) == []
    assert names[0] == "error_of"
    assert names[-1] == ("__next__" if "theirs" in name else "fail")
    assert error.__context__ is None


def test_error_of_torch_loader_gets_no_note():
    assert not hasattr(error_of(iter(torch_loader(OneByOne()))), "__notes__")


def test_error_of_resting_loader_shows_user_frames():
    iterator = iter(loader(range(5000), Decode()))
    iterator._watch._pause(iterator)
    error = error_of(iterator)
    assert own_frames(error) == []
    assert error.__notes__[0] == tracebacks.NOTE


def test_remove_frames_keeps_the_cause_of_the_user(filtering):
    filtering("remove_frames")

    def refuse(x):
        raise KeyError(x) from ValueError("why")

    error = error_of(iter(grain.MapDataset.range(3).map(refuse).to_iter_dataset()))
    assert isinstance(error.__cause__, tracebacks.FullTraceback)
    assert error.__cause__.__cause__.args == ("why",)


def test_futures_frames_below_gristmill_frames_are_removed():
    ours, futures = tracebacks.__file__, concurrent.futures._base.__file__
    found = tracebacks.find_own([ours, futures, "a.py", futures, "b.py", ours])
    assert found == [True, True, False, False, False, False]
