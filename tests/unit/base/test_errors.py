"""Every exception is also an instance of the type that Grain raises."""

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
def test_error_is_gristmill_error_and_built_in(name):
    cls = getattr(errors, name)
    assert issubclass(cls, errors.GristmillError)
    assert issubclass(cls, BUILT_IN[name])


@pytest.mark.parametrize("name", BUILT_IN)
def test_error_survives_pickling(name):
    error = pickle.loads(pickle.dumps(getattr(errors, name)("why")))
    assert (type(error).__name__, str(error)) == (name, "why")


def test_all_lists_every_error():
    assert sorted(errors.__all__) == sorted([*BUILT_IN, "GristmillError"])
