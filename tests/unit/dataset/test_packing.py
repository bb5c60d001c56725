"""First-fit and best-fit packing, compared with the real Grain."""

from __future__ import annotations

import collections
import json
import pickle
from typing import Any

import cloudpickle
import grain as real_grain
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill.errors import StateMismatch
from support.packing_samples import (
    DISTRIBUTIONS,
    assert_equal_to_grain,
    element,
    features,
    iterate,
    run,
    same,
    tokens,
)

FITS = ("FirstFitPackIterDataset", "BestFitPackIterDataset")
ONE = {"length_struct": {"x": 5}, "num_packing_bins": 2, "shuffle_bins": False}


def ones(*lengths: int) -> list[Any]:
    return [{"x": np.full(n, 1 + i)} for i, n in enumerate(lengths)]


@st.composite
def packings(draw: Any) -> Any:
    """Draw elements and the arguments of a packing dataset."""
    made = draw(features(4))
    names = list(made)
    struct = {name: made[name]["length"] for name in draw(st.permutations(names))}
    metas = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
    extra = draw(st.sampled_from([(), ("text",), ("text", "more")]))
    options: dict[str, Any] = {
        "length_struct": struct,
        "num_packing_bins": draw(st.integers(1, 5)),
        "shuffle_bins": draw(st.booleans()),
        "seed": draw(st.integers(0, 99)),
        "meta_features": (*metas, *extra),
        "max_sequences_per_bin": draw(st.none() | st.integers(1, 4)),
    }
    if draw(st.booleans()):
        options["pack_alignment_struct"] = {
            name: draw(st.integers(1, 4)) for name in names
        }
    if draw(st.booleans()):
        options["padding_struct"] = {
            name: draw(st.none() | st.just(1)) for name in names
        }
    numbers = [name for name in names if made[name]["dtype"] in ("i4", "i8", "f4")]
    if numbers and draw(st.booleans()):
        options["shuffle_bins_group_by_feature"] = draw(st.sampled_from(numbers))
    elements = []
    for index in range(draw(st.integers(0, 40))):
        elements.append(element(draw, made, lambda length: length))
        elements[-1]["text"] = f"t{index}"
        elements[-1]["more"] = {"index": index}
    return elements, options


@pytest.mark.parametrize("name", FITS)
@given(packing=packings(), data=st.data())
@settings(max_examples=75)
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning:grain")
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_rows_and_states_match_grain(name, packing, data):
    elements, options = packing
    assert_equal_to_grain(
        real_grain,
        elements,
        name,
        options,
        lambda count: [data.draw(st.integers(0, count - 1))],
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", FITS)
def test_text_lengths_are_packed_as_by_grain(name, distribution):
    elements = [{"x": array} for array in tokens(distribution, 300, 128)]
    options = {"length_struct": {"x": 128}, "num_packing_bins": 30}
    assert_equal_to_grain(
        real_grain, elements, name, options, lambda count: range(0, count, 7)
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda f: f.__name__)
def test_padding_is_at_most_best_fit_of_grain(distribution):
    elements = [{"x": array} for array in tokens(distribution, 600, 128, seed=3)]
    options = {"length_struct": {"x": 128}, "num_packing_bins": 20}

    def padding(grain: Any) -> int:
        rows, _ = run(iterate(grain, elements, FITS[1], options))
        return sum(int((row["x_segment_ids"] == 0).sum()) for row in rows)

    assert padding(gristmill) <= padding(real_grain)


def test_many_rows_are_packed_as_by_grain():
    elements = [{"x": array} for array in tokens(DISTRIBUTIONS[1], 1500, 64)]
    for name in FITS:
        options = {"length_struct": {"x": 64}, "num_packing_bins": 150}
        assert_equal_to_grain(
            real_grain, elements, name, options, lambda count: [count // 2]
        )


def test_nested_features_are_packed_as_by_grain():
    def nested(n: int) -> Any:
        return {
            "z": {"b": np.arange(n), "a": [np.ones((n, 2)), np.arange(n + 1)]},
            "tokens": np.arange(n),
            "unused": "text",
        }

    options = {
        "length_struct": {"z": {"b": 9, "a": [9, 10]}, "tokens": 8},
        "num_packing_bins": 2,
        "meta_features": ("z",),
        "pack_alignment_struct": {"z": {"a": [1, 1], "b": 2}, "tokens": 1},
        "padding_struct": {"z": {"a": [None, 5], "b": 7}, "tokens": None},
    }
    for name in FITS:
        elements = [nested(n) for n in (3, 5, 1, 4, 8, 2, 2)]
        assert_equal_to_grain(real_grain, elements, name, options, range)


def test_other_dicts_keep_their_type_as_in_grain():
    struct = collections.OrderedDict([("y", 5), ("x", 4)])
    elements = [{"x": np.arange(n), "y": np.arange(n)} for n in (3, 2, 4, 1)]
    options = {"length_struct": struct, "num_packing_bins": 2}
    assert_equal_to_grain(real_grain, elements, FITS[0], options, range)


def test_rows_match_the_docstring():
    rows, _ = run(iterate(gristmill, ones(3, 4, 2), FITS[0], ONE))
    assert [row["x"].tolist() for row in rows] == [[1, 1, 1, 3, 3], [2, 2, 2, 2, 0]]
    assert [row["x_positions"].tolist() for row in rows] == [
        [0, 1, 2, 0, 1],
        [0, 1, 2, 3, 0],
    ]


class Counted:
    """A source that counts how often each element is read."""

    def __init__(self, elements: list[Any]) -> None:
        self.elements = elements
        self.reads: collections.Counter[int] = collections.Counter()

    def __len__(self) -> int:
        return len(self.elements)

    def __getitem__(self, index: int) -> Any:
        self.reads[index] += 1
        found = self.elements[index]
        if isinstance(found, Exception):
            raise found
        return found


def packed(elements: Any, **options: Any) -> Any:
    parent = gristmill.MapDataset.source(elements).to_iter_dataset(
        gristmill.ReadOptions(0, 0)
    )
    return gristmill.experimental.FirstFitPackIterDataset(parent, **{**ONE, **options})


def collect(iterator: Any) -> tuple[list[Any], list[str]]:
    """Return the rows and the errors of an iterator that continues after errors."""
    rows, errors = [], []
    while True:
        try:
            rows.append(next(iterator)["x"].tolist())
        except StopIteration:
            return rows, errors
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")


def test_only_failing_element_is_dropped():
    good = ones(2, 3, 4, 5, 1, 2)
    bad = [
        {"x": np.zeros(6, int)},
        good[0],
        {"x": np.zeros(6, int)},
        KeyError("lost"),
        {"x": np.array(["a", "b"])},
        {"x": np.zeros((2, 3), int)},
        good[1],
        {"y": np.zeros(2)},
        good[2],
        {"x": [1, 2]},
        *good[3:],
    ]
    rows, errors = collect(iter(packed(Counted(bad))))
    assert rows == collect(iter(packed(good)))[0]
    kinds = [error.partition(":")[0] for error in errors]
    assert kinds == [
        *["ValueError", "ValueError", "KeyError", "ValueError"],
        *["ValueError", "KeyError", "ValueError"],
    ]


def test_failing_feature_drops_the_whole_element():
    elements = [
        {"a": np.array([1, 1]), "b": np.array([2, 2])},
        {"a": np.array([8.0, 8.0]), "b": np.array(["x", "y"])},
        {"a": np.array([3]), "b": np.array([4])},
    ]
    options = {
        "length_struct": {"a": 5, "b": 5},
        "padding_struct": {"a": 7, "b": None},
        "num_packing_bins": 1,
    }
    iterator = iterate(gristmill, elements, FITS[0], options)
    with pytest.raises(ValueError, match="invalid literal") as caught:
        next(iterator)
    note, place = caught.value.__notes__[-2:]
    assert place == "while PackingDatasetIterator processed record 1 (index 1)"
    assert note.startswith("while packing ['b'] into cells of dtype int64 and shape ()")
    row = next(iterator)
    assert row["a"].tolist() == [1, 1, 3, 7, 7]
    assert row["b"].tolist() == [2, 2, 4, 0, 0]
    assert row["a_segment_ids"].tolist() == [1, 1, 2, 0, 0]


def test_restoring_after_errors_gives_the_same_rows():
    bad = [*ones(2, 3), KeyError("lost"), *ones(5, 1), {"x": np.zeros(9)}, *ones(4, 2)]
    iterator = iter(packed(bad))
    rows, states = [], []
    while True:
        try:
            rows.append(next(iterator)["x"].tolist())
            states.append(iterator.get_state())
        except StopIteration:
            break
        except Exception:
            continue
    for at, state in enumerate(states):
        again = iter(packed(bad))
        again.set_state(state)
        assert collect(again)[0] == rows[at + 1 :]


def test_errors_begin_with_text_of_grain():
    too_long = [{"x": np.zeros(6), "y": 1}]
    struct = {"length_struct": {"x": 5, "y": 1}, "num_packing_bins": 1}
    for name in FITS:
        with pytest.raises(ValueError) as theirs:
            next(iterate(real_grain, too_long, name, struct))
        with pytest.raises(ValueError) as ours:
            next(iterate(gristmill, too_long, name, struct))
        assert str(ours.value) == (
            f"{theirs.value}. Cut longer elements in a map before packing, or raise"
            " length_struct."
        )
    for text, options in {
        r"If specified, `max_sequences_per_bin` must be a positive integer, but got"
        r" 0\.": {"max_sequences_per_bin": 0},
    }.items():
        with pytest.raises(ValueError, match=f"^{text}"):
            packed([], **options)


@pytest.mark.parametrize("name", FITS)
def test_nested_feature_must_be_meta_as_in_grain(name):
    elements = [{"x": np.ones(3), "nested": {"inner": 0}}] * 4
    struct = {
        "length_struct": {"x": 5, "nested": {"inner": 5}},
        "num_packing_bins": 2,
        "shuffle_bins": False,
    }
    texts = []
    for library in (gristmill, real_grain):
        iterate(library, elements, name, {**struct, "meta_features": ["nested"]})
        with pytest.raises(ValueError) as raised:
            next(iterate(library, elements, name, struct))
        texts.append(str(raised.value))
    assert texts[0] == (
        f"{texts[1]} Add it to meta_features, or make its leaves features of their own"
        " in a map before packing."
    )


@pytest.mark.parametrize("name", FITS)
def test_packed_batch_size_matches_grain(name):
    elements = [{"x": np.ones((n, 2), "f4"), "y": n} for n in (3, 4, 1, 5, 2)]
    struct = {"length_struct": {"x": 6, "y": 3}, "num_packing_bins": 3}
    sizes = []
    for library in (gristmill, real_grain):
        iterator = iterate(library, elements, name, struct)
        while not hasattr(iterator, "get_packed_batch_size_bytes"):
            iterator = iterator._parent
        with pytest.raises(ValueError, match="No current batch"):
            iterator.get_packed_batch_size_bytes()
        next(iterator)
        sizes.append(iterator.get_packed_batch_size_bytes())
    assert sizes[0] == sizes[1] > 0


@pytest.mark.claim("Invalid packing arguments fail at the first row, or misalign it")
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"length_struct": 5}, TypeError, "length_struct must be a dict of"),
        (
            {"length_struct": {"x": 5.0}},
            TypeError,
            r"length_struct\['x'\] must be an int",
        ),
        ({"length_struct": {"x": -1}}, ValueError, "must be at least 0, got -1"),
        (
            {"num_packing_bins": 0},
            ValueError,
            "num_packing_bins must be at least 1, got 0",
        ),
        (
            {"num_packing_bins": "2"},
            TypeError,
            "num_packing_bins must be an int, got '2'",
        ),
        ({"meta_features": "ab"}, TypeError, r"Write \('ab',\)"),
        ({"pack_alignment_struct": {"x": 0}}, ValueError, "must be at least 1, got 0"),
        ({"pack_alignment_struct": {}}, ValueError, "must have the structure of"),
        (
            {"padding_struct": {"x": 0, "y": 0}},
            ValueError,
            "must have the structure of",
        ),
        ({"padding_struct": [0]}, ValueError, "must have the structure of"),
    ],
)
def test_invalid_arguments_are_named(options, error, text):
    with pytest.raises(error, match=text):
        packed([], **options)


def test_missing_group_feature_is_named():
    options = {"shuffle_bins": True, "shuffle_bins_group_by_feature": "y"}
    with pytest.raises(KeyError, match=r"packed rows, \['x', .* got 'y'"):
        next(iter(packed(ones(2), **options)))


def test_state_of_other_data_is_rejected_repeatedly():
    iterator = iter(packed(ones(3, 4)))
    state = {"parent": {"next_index": 0}, "next_row": 2, "counter": 2}
    iterator.set_state(state)
    for _ in range(2):
        with pytest.raises(StateMismatch, match=r"needs row 2 .* has only 2 rows"):
            next(iterator)
    assert iterator.get_state() == state


@pytest.mark.claim("Resume")
def test_states_are_small_and_reading_restarts_at_the_batch():
    source = Counted([{"x": array} for array in tokens(DISTRIBUTIONS[0], 900, 2000)])
    options = {"length_struct": {"x": 2048}, "num_packing_bins": 64}
    iterator = iter(packed(source, **options))
    for _ in range(100):
        next(iterator)
    state = iterator.get_state()
    assert len(json.dumps(state)) <= 100
    source.reads.clear()
    again = iter(packed(source, **options))
    again.set_state(state)
    assert not source.reads
    assert same(next(again), next(iterator))
    assert min(source.reads) == state["parent"]["next_index"] > 0


def test_empty_dataset_packs_to_no_rows():
    iterator = iter(packed([]))
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(iterator)
    assert iterator.get_state() == {
        "parent": {"next_index": 0},
        "next_row": 0,
        "counter": 0,
    }


def test_rows_belong_to_the_user():
    iterator = iter(packed(ones(5, 5, 5, 5)))
    first = next(iterator)
    first["x"][:] = 0
    assert [row["x"].tolist() for row in iterator] == [[2] * 5, [3] * 5, [4] * 5]


def test_datasets_are_pickled():
    options = {"length_struct": {"x": 5, "n": {"y": 5}}, "meta_features": ("n",)}
    elements = [{"x": np.arange(2), "n": {"y": np.arange(3)}}] * 3
    dataset = packed(elements, **options)
    for module in (pickle, cloudpickle):
        again = module.loads(module.dumps(dataset))
        assert same(list(again), list(dataset))


def test_names_match_grain():
    dataset = packed([])
    assert f"{dataset}" == "FirstFitPackIterDataset"
    assert str(iter(dataset)) == "PackingDatasetIterator"
