"""Tests our PackAndBatchOperation against Grain's."""

from __future__ import annotations

from typing import Any

import grain as real_grain
import grain.python as grain_python
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill
from support.elements import same


def batches(grain: Any, elements: list[Any], *args: Any) -> list[Any]:
    """Return the index, key and data of each output of the operation."""
    names = grain_python if grain is real_grain else gristmill.python
    record, metadata = names.Record, names.RecordMetadata
    operation = grain.experimental.PackAndBatchOperation(*args)
    records = (
        record(metadata(index=7 * i, record_key=i), x) for i, x in enumerate(elements)
    )
    return [
        (out.metadata.index, out.metadata.record_key, out.data)
        for out in operation(records)
    ]


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    rows=st.integers(1, 4),
    most=st.none() | st.integers(1, 3),
)
def test_batches_match_grain(lengths, rows, most):
    elements = [
        {"x": np.arange(n, dtype=np.int32), "y": [np.ones((n // 2, 2))]}
        for n in lengths
    ]
    args = ({"x": 5, "y": [4]}, rows, most)
    ours = batches(gristmill, elements, *args)
    assert same(ours, batches(real_grain, elements, *args))


def test_elements_may_be_arrays():
    elements = [np.arange(n) for n in (3, 1, 2, 2)]
    ours = batches(gristmill, elements, 4, 1)
    assert same(ours, batches(real_grain, elements, 4, 1))


def test_loader_runs_operation():
    def batches_of(grain: Any) -> list[Any]:
        source = [np.arange(1 + n % 5) for n in range(20)]
        loader = grain.DataLoader(
            data_source=source,
            sampler=grain.samplers.IndexSampler(20, num_epochs=1, seed=1, shuffle=True),
            operations=[grain.experimental.PackAndBatchOperation(6, 2)],
        )
        return list(loader)

    assert same(batches_of(gristmill), batches_of(real_grain))


@pytest.mark.claim(
    "PackAndBatchOperation fails if there are no elements; a second call "
    "continues the last batch"
)
def test_no_elements_give_no_batch():
    assert batches(gristmill, [], {"x": 5}, 2) == []


@pytest.mark.claim(
    "PackAndBatchOperation fails if there are no elements; a second call "
    "continues the last batch"
)
def test_operation_can_be_called_again():
    operation = gristmill.experimental.PackAndBatchOperation(4, 1)
    records = [
        gristmill.python.Record(gristmill.python.RecordMetadata(index=0), np.arange(3))
    ]
    for _ in range(2):
        (batch,) = operation(iter(records))
        assert batch.data[0].tolist() == [[0, 1, 2, 0]]


def test_wrong_elements_and_arguments_are_named():
    for grain in (gristmill, real_grain):
        with pytest.raises(
            ValueError,
            match=r"^Inputs to PackAndBatchOperation must be truncated to max length\.",
        ):
            batches(grain, [np.arange(5)], 4, 1)
    with pytest.raises(ValueError, match=r"structure of length_struct, .* got "):
        batches(gristmill, [{"y": np.arange(5)}], {"x": 4}, 1)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        gristmill.experimental.PackAndBatchOperation(4, 0)
    with pytest.raises(ValueError, match="must be a positive integer, but got 0"):
        gristmill.experimental.PackAndBatchOperation(4, 1, 0)
