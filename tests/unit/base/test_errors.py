"""Every exception is also what Grain raises in its place."""

import pickle

import pytest

from gristmill import errors

BUILT_IN = {
    "ShapeMismatch": ValueError,
    "WorkerDied": RuntimeError,
    "ArenaFull": MemoryError,
    "CorruptRecord": ValueError,
    "RemoteError": OSError,
    "StateMismatch": ValueError,
    "TooManyErrors": RuntimeError,
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_is_ours_and_the_built_in(name):
    cls = getattr(errors, name)
    assert issubclass(cls, errors.GristmillError)
    assert issubclass(cls, BUILT_IN[name])


@pytest.mark.parametrize("name", BUILT_IN)
def test_survives_the_way_from_a_worker(name):
    error = pickle.loads(pickle.dumps(getattr(errors, name)("why")))
    assert (type(error).__name__, str(error)) == (name, "why")


def test_the_module_lists_all_of_them():
    assert sorted(errors.__all__) == sorted([*BUILT_IN, "GristmillError"])
