"""The check finds datasets that cannot be resumed."""

import pytest

import gristmill
from gristmill.experimental import assert_equal_output_after_checkpoint
from support.twins import grain


def make(lib, get_state, set_state):
    class Iterator(lib.DatasetIterator):
        def __init__(self):
            super().__init__()
            self.at = 0

        def __next__(self):
            if self.at == 3:
                raise StopIteration
            self.at += 1
            return self.at

    Iterator.get_state, Iterator.set_state = get_state, set_state
    Iterator.__abstractmethods__ = frozenset()

    class Numbers(lib.IterDataset):
        def __iter__(self):
            return Iterator()

    return Numbers()


def get(self):
    return {"at": self.at}


def put(self, state):
    self.at = state["at"]


def get_growing(self):
    return {"at": list(range(self.at))}


def put_length(self, state):
    self.at = len(state["at"])


def put_nothing(self, state):
    pass


def get_constant(self):
    return {"at": 0}


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
@pytest.mark.parametrize(
    ("get_state", "set_state", "words"),
    [
        (get_growing, put_length, "State spec does not match"),
        (get, put_nothing, "Restored state does not match"),
        (get_constant, put, "Restored values mismatch"),
    ],
)
def test_faults_are_found(library, get_state, set_state, words):
    ds = make(library(), get_state, set_state)
    with pytest.raises(AssertionError, match=words):
        library().experimental.assert_equal_output_after_checkpoint(ds)


def test_resumable_datasets_pass():
    assert_equal_output_after_checkpoint(make(gristmill, get, put))


@pytest.mark.parametrize("library", [lambda: gristmill, grain])
def test_empty_dataset_is_an_error(library):
    nothing = library().MapDataset.range(0).to_iter_dataset()
    with pytest.raises(AssertionError, match="did not produce any elements"):
        library().experimental.assert_equal_output_after_checkpoint(nothing)
