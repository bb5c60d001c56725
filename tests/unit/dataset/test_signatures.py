"""Experimental names have the parameters of Grain."""

import inspect

import pytest

import gristmill
from support.twins import grain


def names():
    return sorted(gristmill.experimental.__all__)


def parameters(function):
    return [
        (parameter.name, parameter.kind)
        for parameter in inspect.signature(function).parameters.values()
        if not parameter.name.startswith("_")
    ]


@pytest.mark.parametrize("name", [name for name in names() if name != "index_shuffle"])
def test_parameters_match_grain(name):
    theirs = getattr(grain().experimental, name)
    assert parameters(getattr(gristmill.experimental, name)) == parameters(theirs)


def test_index_shuffle_accepts_keywords():
    call = {"index": 3, "max_index": 9, "seed": 1, "rounds": 4}
    ours = gristmill.experimental.index_shuffle(**call)
    assert ours == grain().experimental.index_shuffle(**call)
