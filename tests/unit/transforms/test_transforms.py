"""Tests that transforms have Grain's methods, defaults and reprs."""

import dataclasses
import inspect
import pickle
import typing

import pytest

from gristmill import transforms

grain = pytest.importorskip("grain")

METHODS = {
    "Map": "map",
    "RandomMap": "random_map",
    "MapWithIndex": "map_with_index",
    "TfRandomMap": "np_random_map",
    "Filter": "filter",
    "FlatMap": "flat_map",
}


def grains(name):
    if name == "FlatMap":
        return grain.experimental.FlatMapTransform
    return getattr(grain.transforms, name)


@pytest.mark.parametrize("name", METHODS)
def test_abstract_method_matches_grain(name):
    ours = getattr(transforms, name)
    assert (
        ours.__abstractmethods__ == grains(name).__abstractmethods__ == {METHODS[name]}
    )
    parameters = [
        list(inspect.signature(getattr(cls, METHODS[name])).parameters)
        for cls in (ours, grains(name))
    ]
    assert parameters[0] == parameters[1]
    with pytest.raises(TypeError, match="abstract"):
        ours()


def test_annotations_are_resolved_in_the_public_module():
    for name in ("Batch", "BlockMap", "DatasetSelectionMap", *METHODS):
        assert getattr(transforms, name).__module__ == "gristmill.transforms"
        typing.get_type_hints(getattr(transforms, name))
    hints = typing.get_type_hints(transforms.Batch)
    assert hints["batch_size"] is int and list(hints) == [
        "batch_size", "drop_remainder", "batch_fn"
    ]  # fmt: skip


def test_selection_map_methods_match_grain():
    ours = transforms.DatasetSelectionMap.__abstractmethods__
    assert ours == grain.transforms.DatasetSelectionMap.__abstractmethods__


def test_batch_matches_grain_dataclass():
    ours, theirs = transforms.Batch, grain.transforms.Batch
    spec = [(f.name, f.default) for f in dataclasses.fields(theirs)]
    assert [(f.name, f.default) for f in dataclasses.fields(ours)] == spec
    assert repr(ours(3, True)) == repr(theirs(3, True))
    assert pickle.loads(pickle.dumps(ours(3))) == ours(3)
    assert hash(ours(3)) == hash(ours(3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        ours(3).batch_size = 4


def test_transformation_union_works_with_isinstance():
    members = transforms.Transformation.__args__
    assert [cls.__name__ for cls in members] == [
        cls.__name__ for cls in grain.transforms.Transformation.__args__
    ]
    assert isinstance(transforms.Batch(1), transforms.Transformation)
