"""Steps. differential/test_dataset_chains.py compares chains of them with Grain."""

import numpy as np
import pytest

from gristmill._hot import steps
from gristmill._hot.draw import OpDraws


def indices(*values):
    return np.array(values, np.int64)


def fail_on_three(x):
    if x == 3:
        raise KeyError(x)
    return x


def refused(error, index):
    raise AssertionError


def noted(error, index):
    error.add_note(f"element {index}")


def apply(kind, call, elements, at, failed=refused):
    """Return the results of one call for some elements."""
    return steps.apply([(kind, call, failed, OpDraws(42))], elements, at)


class TestBlocks:
    def test_map_keeps_absent_elements(self):
        assert apply(steps.MAP, lambda x: 10 * x, [1, None, 2], indices(0, 1, 2)) == [
            10,
            None,
            20,
        ]

    def test_map_may_return_none(self):
        found = apply(steps.MAP, lambda x: None, [1, 2], indices(0, 1))
        assert found == [None, None]

    def test_filter_uses_the_truth_of_the_result(self):
        found = apply(
            steps.FILTER, lambda x: np.bool_(x > 1), [1, None, 2], indices(0, 1, 2)
        )
        assert found == [None, None, 2]

    def test_map_with_index_passes_python_integers(self):
        found = apply(
            steps.MAP_WITH_INDEX,
            lambda i, x: (type(i), i, x),
            ["a", None, "b"],
            indices(7, 8, -2),
        )
        assert found == [(int, 7, "a"), None, (int, -2, "b")]

    def test_random_map_draws_by_index(self):
        found = apply(
            steps.RANDOM_MAP,
            lambda x, rng: (x, rng.integers(1000)),
            ["a", None, "b"],
            indices(5, 6, 5),
        )
        drawn = OpDraws(42).at(5).integers(1000)
        assert found == [("a", drawn), None, ("b", drawn)]

    def test_wide_indices_are_python_integers(self):
        at = np.array([2**64 - 1, -(2**70), 3], np.object_)
        found = apply(steps.MAP_WITH_INDEX, lambda i, x: (i, x), ["a", None, "c"], at)
        assert found == [(2**64 - 1, "a"), None, (3, "c")]
        (drawn,) = apply(
            steps.RANDOM_MAP, lambda x, rng: rng.integers(1000), [0], at[:1]
        )
        assert drawn == OpDraws(42).at(2**64 - 1).integers(1000)

    def test_generator_of_index_beyond_64_bits_raises(self):
        at = np.array([2**64], np.object_)
        with pytest.raises(OverflowError, match="must be in") as caught:
            apply(steps.RANDOM_MAP, max, [0], at, noted)
        assert caught.value.__notes__ == [f"element {2**64}"]

    @pytest.mark.parametrize(
        "wrong", [np.arange(2), np.arange(3, dtype=np.int32), [0, 1, 2]]
    )
    def test_indices_must_fit_the_elements(self, wrong):
        with pytest.raises(TypeError, match="int64 array of 3 elements"):
            apply(steps.MAP, lambda x: x, [1, 2, 3], wrong)

    def test_random_maps_need_draws(self):
        with pytest.raises(TypeError, match="draws, got None"):
            steps.apply([(steps.RANDOM_MAP, max, refused, None)], [1], indices(0))

    def test_draws_of_another_type_are_rejected(self):
        with pytest.raises(TypeError, match="OpDraws"):
            steps.apply([(steps.RANDOM_MAP, max, refused, object())], [1], indices(0))

    def test_each_element_goes_through_all_calls_in_turn(self):
        seen = []

        def note(name):
            return lambda x: seen.append((name, x)) or x

        calls = [
            (steps.MAP, note("a"), refused, None),
            (steps.FILTER, lambda x: x != 2, refused, None),
            (steps.MAP_WITH_INDEX, lambda i, x: note("b")((i, x)), refused, None),
        ]
        out = []
        found = steps.apply(calls, [1, 2, None, 3], indices(4, 5, 6, 7), out)
        assert found is out
        assert out == [(4, 1), None, None, (7, 3)]
        assert seen == [
            ("a", 1), ("b", (4, 1)), ("a", 2), ("a", 3), ("b", (7, 3))
        ]  # fmt: skip

    def test_results_are_appended_one_by_one(self):
        out, before = [], []
        call = (steps.MAP, lambda x: before.append([*out]) or x, refused, None)
        steps.apply([call], [1, 2, 3], indices(0, 1, 2), out)
        assert before == [[], [1], [1, 2]]

    def test_failed_step_is_notified(self):
        calls = [
            (steps.MAP, lambda x: x + 1, refused, None),
            (steps.MAP, fail_on_three, noted, None),
            (steps.MAP, str, refused, None),
        ]
        with pytest.raises(KeyError) as caught:
            steps.apply(calls, [1, 2], indices(8, 9))
        assert caught.value.__notes__ == ["element 9"]

    def test_scatter_puts_each_element_in_its_place(self):
        out = [None] * 4
        steps.scatter(["a", "b"], indices(3, 0), out)
        assert out == ["b", None, None, "a"]

    def test_scatter_error_names_places(self):
        with pytest.raises(TypeError, match=r"places must be .* 1 elements"):
            steps.scatter(["a"], indices(0, 1), [None] * 4)

    @pytest.mark.parametrize("place", [-1, 4])
    def test_scatter_rejects_places_outside(self, place):
        with pytest.raises(IndexError, match=f"less than 4, .* got {place}"):
            steps.scatter(["a"], indices(place), [None] * 4)

    @pytest.mark.parametrize(
        ("kind", "call"),
        [
            (steps.MAP, fail_on_three),
            (steps.FILTER, fail_on_three),
            (steps.MAP_WITH_INDEX, lambda i, x: fail_on_three(x)),
            (steps.RANDOM_MAP, lambda x, rng: fail_on_three(x)),
        ],
        ids=["map", "filter", "map_with_index", "random_map"],
    )
    def test_error_is_raised_after_notification(self, kind, call):
        elements, at = [1, None, 3, 3], indices(5, 6, 7, 8)
        with pytest.raises(KeyError) as caught:
            apply(kind, call, elements, at, noted)
        assert caught.value.__notes__ == ["element 7"]
