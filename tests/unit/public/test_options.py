"""Tests that options match Grain's dataclasses and their checks."""

import dataclasses
import logging

import pytest

from gristmill import options

grain = pytest.importorskip("grain")


@pytest.mark.parametrize("name", ["ReadOptions", "MultiprocessingOptions"])
def test_fields_and_repr_match_grain(name):
    ours, theirs = getattr(options, name), getattr(grain, name)
    spec = [(f.name, f.default) for f in dataclasses.fields(theirs)]
    assert [(f.name, f.default) for f in dataclasses.fields(ours)] == spec
    assert repr(ours()) == repr(theirs())
    assert ours.__slots__ == theirs.__slots__


@pytest.mark.parametrize("name", ["num_threads", "prefetch_buffer_size"])
def test_error_of_negative_numbers_matches_grain(name):
    with pytest.raises(ValueError) as theirs:
        grain.ReadOptions(**{name: -1})
    with pytest.raises(ValueError) as ours:
        options.ReadOptions(**{name: -1})
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    ("threads", "buffer", "warns"), [(4, 3, True), (4, 4, False), (4, 0, False)]
)
def test_buffer_too_small_for_threads_is_logged(threads, buffer, warns, caplog):
    with caplog.at_level(logging.WARNING, "gristmill"):
        options.ReadOptions(threads, buffer)
    assert bool(caplog.records) == warns


def test_negative_workers_are_refused():
    with pytest.raises(ValueError, match="num_workers must be non-negative, got -1"):
        options.MultiprocessingOptions(num_workers=-1)


@pytest.mark.parametrize("value", [1.5, "1", None])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("ReadOptions", "num_threads"),
        ("ReadOptions", "prefetch_buffer_size"),
        ("MultiprocessingOptions", "num_workers"),
        ("MultiprocessingOptions", "per_worker_buffer_size"),
    ],
)
def test_non_int_is_refused(name, field, value):
    kind = type(value).__name__
    with pytest.raises(TypeError, match=f"^{field} must be an int, got {kind}."):
        getattr(options, name)(**{field: value})
