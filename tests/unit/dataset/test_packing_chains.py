"""Packing after and before other datasets, compared with the real Grain."""

from __future__ import annotations

from typing import Any

import grain as real_grain
import numpy as np
import pytest

import gristmill
from support.packing_samples import (
    DISTRIBUTIONS,
    assert_equal_to_grain,
    plain,
    run,
    same,
    tokens,
)

OPTIONS = {
    "FirstFitPackIterDataset": {"num_packing_bins": 5},
    "BestFitPackIterDataset": {"num_packing_bins": 5},
    "ConcatThenSplitIterDataset": {},
}
ELEMENTS = [{"x": array} for array in tokens(DISTRIBUTIONS[0], 70, 20)]
LENGTHS = {"length_struct": {"x": 20}}


def is_long(element: Any) -> bool:
    return len(element["x"]) > 9


def absent(grain: Any, elements: Any) -> Any:
    source = grain.MapDataset.source(elements).shuffle(3).repeat(2)
    return source.filter(is_long).to_iter_dataset(grain.ReadOptions(0, 0))


def filtered(grain: Any, elements: Any) -> Any:
    return plain(grain, elements).filter(is_long)


def mixed(grain: Any, elements: Any) -> Any:
    parts = [plain(grain, elements[:30]), plain(grain, elements[30:]).filter(is_long)]
    return grain.IterDataset.mix(parts, [1, 2])


def drawn(grain: Any, elements: Any) -> Any:
    return plain(grain, elements).random_map(
        lambda x, rng: {"x": x["x"][: rng.integers(1, 20)]}, seed=1
    )


@pytest.mark.parametrize("parent", [absent, filtered, mixed, drawn])
@pytest.mark.parametrize("name", OPTIONS)
def test_any_chain_is_packed_as_by_grain(name, parent):
    options = {**OPTIONS[name], **LENGTHS}
    assert_equal_to_grain(
        real_grain, ELEMENTS, name, options, lambda n: range(0, n, 3), parent
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_packed_rows_resume_as_in_grain(name):
    def chain(grain: Any) -> Any:
        rows = getattr(grain.experimental, name)(
            plain(grain, ELEMENTS), **OPTIONS[name], **LENGTHS
        )
        return rows.map(lambda row: {**row, "sum": np.sum(row["x"])}).batch(4)

    ours, theirs = iter(chain(gristmill)), iter(chain(real_grain))
    rows, states = run(ours)
    assert same((rows, states), run(theirs))
    for at in range(len(states)):
        again = iter(chain(gristmill))
        again.set_state(states[at])
        assert same(run(again)[0], rows[at:])


@pytest.mark.parametrize("name", OPTIONS)
def test_packed_rows_can_be_packed(name):
    def twice(grain: Any, elements: Any) -> Any:
        return getattr(grain.experimental, name)(
            plain(grain, elements), **OPTIONS[name], **LENGTHS
        ).map(lambda row: {"x": row["x"]})

    options = {**OPTIONS[name], "length_struct": {"x": 50}}
    assert_equal_to_grain(
        real_grain, ELEMENTS, name, options, lambda n: range(0, n, 3), twice
    )
