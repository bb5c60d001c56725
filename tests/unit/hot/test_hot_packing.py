"""Elements that fail while they are packed leave no trace in rows.

unit/dataset/test_packing.py and test_concat_split.py compare the rows of the other
elements with Grain.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from support.packing_samples import element, features, iterate, same

ODD = ({}, 5, {"a": None}, {"a": [1], "b": 1}, {"a": np.zeros(99), "b": np.zeros(99)})


@st.composite
def elements_of(draw: Any, times: int = 1) -> Any:
    """Draw features, and elements, a few with different features."""
    made = draw(features(3))
    elements = [
        element(draw, made, lambda length: length * times)
        for _ in range(draw(st.integers(0, 30)))
    ]
    odd = [element(draw, draw(features(3)), lambda length: length), *ODD]
    for _ in range(draw(st.integers(0, 3))):
        elements.insert(draw(st.integers(0, len(elements))), draw(st.sampled_from(odd)))
    return made, elements


def rows_and_failures(name: str, elements: list[Any], options: Any) -> Any:
    """Return the rows, and the numbers of the elements that failed."""
    iterator = iterate(gristmill, elements, name, options)
    rows, failed = [], set()
    while True:
        try:
            rows.append(next(iterator))
        except StopIteration:
            return rows, failed
        except Exception as error:
            found = re.search(r"processed record (\d+)", "".join(error.__notes__))
            assert found is not None
            failed.add(int(found[1]))


def assert_failures_leave_nothing(
    name: str, elements: list[Any], options: dict[str, Any]
) -> None:
    """Compare the rows with the rows of only the elements that do not fail."""
    rows, failed = rows_and_failures(name, elements, options)
    good = [element for i, element in enumerate(elements) if i not in failed]
    expected, none = rows_and_failures(name, good, options)
    assert not none
    assert same(rows, expected)


@pytest.mark.parametrize("name", ["FirstFitPackIterDataset", "BestFitPackIterDataset"])
@given(made=elements_of(), data=st.data())
@settings(max_examples=100)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_unpackable_elements_leave_no_trace(name, made, data):
    made, elements = made
    names = list(made)
    options = {
        "length_struct": {name: made[name]["length"] for name in names},
        "num_packing_bins": data.draw(st.integers(1, 70)),
        "meta_features": data.draw(st.sampled_from([(), names[:1], (*names[1:], "a")])),
        "max_sequences_per_bin": data.draw(st.none() | st.integers(1, 3)),
        "pack_alignment_struct": dict.fromkeys(names, data.draw(st.integers(1, 3))),
        "padding_struct": dict.fromkeys(names, data.draw(st.sampled_from([None, 1]))),
    }
    assert_failures_leave_nothing(name, elements, options)


@given(made=elements_of(times=3), data=st.data())
@settings(max_examples=100)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_unsplittable_elements_leave_no_trace(made, data):
    made, elements = made
    names = list(made)
    bos = names * data.draw(st.booleans())
    options = {
        "length_struct": {name: made[name]["length"] for name in names},
        "split_full_length_features": data.draw(st.booleans()),
        "bos_handling": "REPLACE_FIRST_TOKEN_WITH_BOS" if bos else "DO_NOTHING",
        "bos_features": bos,
        "bos_token_id": 1 if bos else None,
    }
    assert_failures_leave_nothing("ConcatThenSplitIterDataset", elements, options)
