"""Tests that records and their metadata behave like Grain's dataclasses."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from gristmill import records, samplers

grain = pytest.importorskip("grain")


@pytest.mark.parametrize("name", ["Record", "RecordMetadata"])
def test_fields_match_grain(name):
    ours, theirs = getattr(records, name), getattr(grain, name)
    spec = [(f.name, f.default) for f in dataclasses.fields(theirs)]
    assert [(f.name, f.default) for f in dataclasses.fields(ours)] == spec
    assert ours.__slots__ == theirs.__slots__
    assert ours.__match_args__ == theirs.__match_args__


@pytest.mark.parametrize("key", [None, 4])
@pytest.mark.parametrize("rng", [None, np.random.default_rng(1)])
def test_repr_matches_grain(key, rng):
    ours = records.RecordMetadata(3, key, rng)
    theirs = grain.RecordMetadata(3, key, rng)
    assert (str(ours), repr(ours)) == (str(theirs), repr(theirs))


def test_removing_the_key_copies_only_if_there_is_one():
    metadata = records.RecordMetadata(1, 2)
    assert metadata.remove_record_key() == records.RecordMetadata(1)
    without = records.RecordMetadata(1)
    assert without.remove_record_key() is without


def lazy():
    return records.seeded_metadata(index=7, record_key=3, philox_key=11)


def expected_draw():
    return np.random.Generator(np.random.Philox(key=11)).random()


def test_generator_is_made_once():
    metadata = lazy()
    assert metadata.rng is metadata.rng
    assert metadata.rng.random() == expected_draw()
    assert metadata.rng.random() != expected_draw()


@pytest.mark.parametrize(
    "through",
    [
        copy.copy,
        copy.deepcopy,
        dataclasses.replace,
        lambda metadata: pickle.loads(pickle.dumps(metadata)),
        records.RecordMetadata.remove_record_key,
    ],
)
def test_generator_survives_copies(through):
    assert through(lazy()).rng.random() == expected_draw()


def test_unread_generator_is_part_of_the_value():
    metadata = lazy()
    assert metadata != records.RecordMetadata(7, 3)
    assert metadata == records.RecordMetadata(7, 3, metadata.rng)
    assert "rng=Generator(Philox)" in repr(lazy())


def test_metadata_is_mutable():
    metadata = lazy()
    metadata.rng = None
    assert metadata == records.RecordMetadata(7, 3, None)


def test_other_attributes_are_errors():
    with pytest.raises(AttributeError, match=r"'RecordMetadata' .* 'keys'"):
        lazy().keys  # noqa: B018
    with pytest.raises(AttributeError):
        lazy().keys = 1


def test_attribute_of_uninitialized_metadata_is_an_error():
    with pytest.raises(AttributeError):
        records.RecordMetadata.__new__(records.RecordMetadata).rng  # noqa: B018


def test_samplers_return_this_class():
    assert type(samplers.SequentialSampler(3, seed=1)[0]) is records.RecordMetadata
