"""Steps; differential/test_dataset_chains.py compares chains of them with Grain."""

import weakref

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
    """What one call makes of some elements."""
    return steps.apply([(kind, call, failed, OpDraws(42))], elements, at)


class TestBlocks:
    def test_map_leaves_absent_elements_absent(self):
        assert apply(steps.MAP, lambda x: 10 * x, [1, None, 2], indices(0, 1, 2)) == [
            10,
            None,
            20,
        ]

    def test_a_map_may_return_none(self):
        found = apply(steps.MAP, lambda x: None, [1, 2], indices(0, 1))
        assert found == [None, None]

    def test_filter_asks_for_the_truth_of_the_result(self):
        found = apply(
            steps.FILTER, lambda x: np.bool_(x > 1), [1, None, 2], indices(0, 1, 2)
        )
        assert found == [None, None, 2]

    def test_map_with_index_gives_python_integers(self):
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

    def test_generator_of_index_beyond_64_bits_is_refused(self):
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
        with pytest.raises(TypeError, match="needs draws"):
            steps.apply([(steps.RANDOM_MAP, max, refused, None)], [1], indices(0))

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

    def test_results_come_one_by_one(self):
        out, before = [], []
        call = (steps.MAP, lambda x: before.append([*out]) or x, refused, None)
        steps.apply([call], [1, 2, 3], indices(0, 1, 2), out)
        assert before == [[], [1], [1, 2]]

    def test_the_step_that_failed_is_told(self):
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

    @pytest.mark.parametrize("place", [-1, 4])
    def test_scatter_refuses_places_outside(self, place):
        with pytest.raises(IndexError, match=f"place {place} is not in a list of 4"):
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
    def test_an_error_passes_through_once_its_index_was_told(self, kind, call):
        elements, at = [1, None, 3, 3], indices(5, 6, 7, 8)
        with pytest.raises(KeyError) as caught:
            apply(kind, call, elements, at, noted)
        assert caught.value.__notes__ == ["element 7"]


def noting(step):
    """A class of steps that notes what fails."""

    class Noting(step):
        def _failed(self, error):
            error.add_note("in a step")

        def _judge(self, skipped):
            raise AssertionError

        def _processes(self):
            return 0, 1

    return Noting


class TestIterators:
    @pytest.mark.parametrize(
        ("kind", "call"),
        [
            ("MapStep", fail_on_three),
            ("FilterStep", fail_on_three),
            ("MapWithIndexStep", lambda i, x: fail_on_three(x)),
            ("RandomMapStep", lambda x, rng: fail_on_three(x)),
        ],
    )
    def test_a_failed_element_is_told_of_and_passed_over(self, kind, call):
        more = [OpDraws(1)] if kind == "RandomMapStep" else []
        step = noting(getattr(steps, kind))(iter([1, 3, 5]), call, *more)
        assert next(step) == 1
        with pytest.raises(KeyError) as caught:
            next(step)
        assert caught.value.__notes__ == ["in a step"]
        assert list(step) == [5]

    def test_what_an_iterator_before_a_step_raises_is_not_the_steps(self):
        before = noting(steps.MapStep)(iter([3]), fail_on_three)
        step = noting(steps.MapStep)(before, lambda x: x)
        with pytest.raises(KeyError) as caught:
            next(step)
        assert caught.value.__notes__ == ["in a step"]

    def test_none_passes_maps_uncalled(self):
        assert list(steps.MapStep(iter([None, 1]), lambda x: x + 1)) == [None, 2]

    def test_a_filter_sees_none(self):
        class Filter(steps.FilterStep):
            def _judge(self, skipped):
                raise AssertionError

        assert list(Filter(iter([None, 1, 0]), lambda x: x is None)) == [None]

    def test_counters_count_absent_elements(self):
        step = steps.MapWithIndexStep(iter("abc"), lambda i, x: (i, x))
        step.counter = 4
        assert list(step) == [(4, "a"), (5, "b"), (6, "c")]
        assert step.counter == 7
        step = steps.MapWithIndexStep(iter([None, "b"]), lambda i, x: (i, x))
        assert list(step) == [None, (1, "b")]

    def test_generators_are_numbered_over_all_processes(self):

        class Step(steps.RandomMapStep):
            def _processes(self):
                return 2, 3

        step = Step(iter("abc"), lambda x, rng: rng.integers(10**6), OpDraws(1))
        expected = [OpDraws(1).at(index).integers(10**6) for index in (2, 5, 8)]
        assert list(step) == expected
        assert step.counter == 3

    def test_take_stops_at_the_end(self):
        iterator = iter(range(5))
        assert steps.take(iterator, 3) == [0, 1, 2]
        assert steps.take(iterator, 3) == [3, 4]
        assert steps.take(iterator, 3) == []

    def test_take_passes_errors_on(self):
        with pytest.raises(KeyError):
            steps.take(noting(steps.MapStep)(iter([1, 3]), fail_on_three), 5)


def judged(passed):
    """How many were skipped in each window of a filter that passes as told."""
    found = []

    class Filter(steps.FilterStep):
        def _judge(self, skipped):
            found.append(skipped)

    list(Filter(iter(passed), bool))
    return found


class TestDropping:
    def test_windows_do_not_overlap(self):
        passed = [True] * 990 + [False] * 10 + [False] * 1000 + [False] * 999
        assert judged(passed) == [10, 1000]

    def test_a_window_without_drops_is_not_judged(self):
        assert judged([True] * 2500) == []


def feed(blocks, keep_absent=False):
    class Feed(steps.Feed):
        def _refill(self, first):
            self.asked = [*getattr(self, "asked", []), first]
            found = blocks.get(first, [])
            if isinstance(found, Exception):
                self.given += 1
                raise found
            return list(found)

        def _judge(self, skipped):
            raise AssertionError

    return Feed(keep_absent)


class TestFeed:
    def test_skips_absent_elements_and_counts_them(self):
        source = feed({0: [1, None], 2: [None, 4]})
        assert list(source) == [1, 4]
        assert source.given == 4
        assert source.asked == [0, 2, 4]

    def test_may_keep_absent_elements(self):
        assert list(feed({0: [1, None]}, keep_absent=True)) == [1, None]

    def test_goes_on_behind_what_refilling_raises(self):
        source = feed({0: [1], 1: KeyError("x"), 2: [3]})
        assert next(source) == 1
        with pytest.raises(KeyError):
            next(source)
        assert source.given == 2
        assert list(source) == [3]

    def test_keeps_no_element_that_was_given_out(self):
        class Element:
            pass

        source = feed({})
        source.__class__._refill = lambda self, first: [Element(), Element()]
        ref = weakref.ref(next(source))
        assert ref() is None

    def test_seeking_forgets_what_is_ahead(self):
        source = feed({0: [1, 2, 3], 7: [8]})
        assert next(source) == 1
        assert source.ahead() == 2
        source.seek(7)
        assert source.ahead() == 0
        assert list(source) == [8]


class TestMixing:
    def mix(self, parts, turns):
        class Mix(steps.MixStep):
            def _look_up_turns(self, first):
                return turns[first : first + 2]

        return Mix(parts)

    def test_ends_with_the_part_whose_turn_it_is(self):
        mix = self.mix([iter("abc"), iter("x")], [0, 1, 0, 1, 0])
        assert list(mix) == ["a", "x", "b"]
        assert mix.stopped
        assert mix.index == 4
        assert list(mix) == []

    def test_a_failed_element_has_had_its_turn(self):
        failing = noting(steps.MapStep)(iter([3, 4]), fail_on_three)
        mix = self.mix([iter("abc"), failing], [0, 1, 0, 1, 0])
        assert next(mix) == "a"
        with pytest.raises(KeyError) as caught:
            next(mix)
        assert caught.value.__notes__ == [
            "in a step",
            "Exception caught while processing dataset @ input_index=1",
        ]
        assert [next(mix), next(mix), next(mix)] == ["b", 4, "c"]

    def test_goes_on_at_any_turn(self):
        mix = self.mix([iter("abc"), iter("xyz")], [0, 1, 0, 1, 1])
        mix.index = 3
        assert [next(mix), next(mix)] == ["x", "y"]
