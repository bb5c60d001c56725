"""Iterators of chains; differential/test_dataset_chains.py compares them with Grain."""

import weakref

import pytest

from gristmill._hot import iterators
from gristmill._hot.draw import OpDraws


def fail_on_three(x):
    if x == 3:
        raise KeyError(x)
    return x


def noting(step):
    """Return a subclass of a step that adds a note to errors."""

    class Noting(step):
        def _note_failure(self, error):
            error.add_note("in a step")

        def _check_dropped(self, skipped):
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
    def test_failed_element_is_noted_and_skipped(self, kind, call):
        more = [OpDraws(1)] if kind == "RandomMapStep" else []
        step = noting(getattr(iterators, kind))(iter([1, 3, 5]), call, *more)
        assert next(step) == 1
        with pytest.raises(KeyError) as caught:
            next(step)
        assert caught.value.__notes__ == ["in a step"]
        assert list(step) == [5]

    def test_errors_of_earlier_iterators_get_no_second_note(self):
        before = noting(iterators.MapStep)(iter([3]), fail_on_three)
        step = noting(iterators.MapStep)(before, lambda x: x)
        with pytest.raises(KeyError) as caught:
            next(step)
        assert caught.value.__notes__ == ["in a step"]

    def test_map_passes_none_without_a_call(self):
        assert list(iterators.MapStep(iter([None, 1]), lambda x: x + 1)) == [None, 2]

    def test_filter_receives_none(self):
        class Filter(iterators.FilterStep):
            def _check_dropped(self, skipped):
                raise AssertionError

        assert list(Filter(iter([None, 1, 0]), lambda x: x is None)) == [None]

    def test_counter_includes_absent_elements(self):
        step = iterators.MapWithIndexStep(iter("abc"), lambda i, x: (i, x))
        step.counter = 4
        assert list(step) == [(4, "a"), (5, "b"), (6, "c")]
        assert step.counter == 7
        step = iterators.MapWithIndexStep(iter([None, "b"]), lambda i, x: (i, x))
        assert list(step) == [None, (1, "b")]

    def test_generators_are_numbered_across_processes(self):

        class Step(iterators.RandomMapStep):
            def _processes(self):
                return 2, 3

        step = Step(iter("abc"), lambda x, rng: rng.integers(10**6), OpDraws(1))
        expected = [OpDraws(1).at(index).integers(10**6) for index in (2, 5, 8)]
        assert list(step) == expected
        assert step.counter == 3

    def test_take_stops_at_the_end(self):
        iterator = iter(range(5))
        assert iterators.take(iterator, 3) == [0, 1, 2]
        assert iterators.take(iterator, 3) == [3, 4]
        assert iterators.take(iterator, 3) == []

    def test_take_raises_errors(self):
        with pytest.raises(KeyError):
            iterators.take(noting(iterators.MapStep)(iter([1, 3]), fail_on_three), 5)


def judged(passed):
    """Return the number skipped in each window of a filter with these results."""
    found = []

    class Filter(iterators.FilterStep):
        def _check_dropped(self, skipped):
            found.append(skipped)

    list(Filter(iter(passed), bool))
    return found


class TestDropping:
    def test_windows_do_not_overlap(self):
        passed = [True] * 990 + [False] * 10 + [False] * 1000 + [False] * 999
        assert judged(passed) == [10, 1000]

    def test_window_without_drops_is_not_judged(self):
        assert judged([True] * 2500) == []


def feed(blocks, keep_absent=False):
    class Feed(iterators.BlockFeeder):
        def _refill(self, first):
            self.asked = [*getattr(self, "asked", []), first]
            found = blocks.get(first, [])
            if isinstance(found, Exception):
                self.position += 1
                raise found
            return list(found)

        def _check_dropped(self, skipped):
            raise AssertionError

    return Feed(keep_absent)


class TestFeed:
    def test_skips_absent_elements_and_counts_them(self):
        source = feed({0: [1, None], 2: [None, 4]})
        assert list(source) == [1, 4]
        assert source.position == 4
        assert source.asked == [0, 2, 4]

    def test_can_keep_absent_elements(self):
        assert list(feed({0: [1, None]}, keep_absent=True)) == [1, None]

    def test_continues_after_refill_errors(self):
        source = feed({0: [1], 1: KeyError("x"), 2: [3]})
        assert next(source) == 1
        with pytest.raises(KeyError):
            next(source)
        assert source.position == 2
        assert list(source) == [3]

    def test_keeps_no_returned_element(self):
        class Element:
            pass

        source = feed({})
        source.__class__._refill = lambda self, first: [Element(), Element()]
        ref = weakref.ref(next(source))
        assert ref() is None

    def test_seek_drops_buffered_elements(self):
        source = feed({0: [1, 2, 3], 7: [8]})
        assert next(source) == 1
        assert source.count_buffered() == 2
        source.seek(7)
        assert source.count_buffered() == 0
        assert list(source) == [8]


class TestMixing:
    def mix(self, parts, turns):
        class Mix(iterators.MixStep):
            def _look_up_turns(self, first):
                return turns[first : first + 2]

        return Mix(parts)

    def test_ends_when_the_part_of_the_turn_ends(self):
        mix = self.mix([iter("abc"), iter("x")], [0, 1, 0, 1, 0])
        assert list(mix) == ["a", "x", "b"]
        assert mix.stopped
        assert mix.index == 4
        assert list(mix) == []

    def test_failed_element_uses_its_turn(self):
        failing = noting(iterators.MapStep)(iter([3, 4]), fail_on_three)
        mix = self.mix([iter("abc"), failing], [0, 1, 0, 1, 0])
        assert next(mix) == "a"
        with pytest.raises(KeyError) as caught:
            next(mix)
        assert caught.value.__notes__ == [
            "in a step",
            "Exception caught while processing dataset @ input_index=1",
        ]
        assert [next(mix), next(mix), next(mix)] == ["b", 4, "c"]

    def test_resumes_at_any_turn(self):
        mix = self.mix([iter("abc"), iter("xyz")], [0, 1, 0, 1, 1])
        mix.index = 3
        assert [next(mix), next(mix)] == ["x", "y"]


class Queue(iterators.RoundRobin):
    """Puts the iterators of a list into free places."""

    def __init__(self, places, waiting):
        super().__init__(places)
        self.waiting = list(waiting)
        self.log = []

    def _vacate(self, place):
        self.log.append(("vacate", place))
        self.places[place] = None

    def _occupy(self, place):
        if not self.waiting:
            return False
        self.log.append(("occupy", place))
        self.places[place] = iter(self.waiting.pop(0))
        return True


def test_each_place_has_its_turn():
    assert list(Queue(2, ["ab", "xyz", "12"])) == list("axbyz12")


def test_places_are_vacated_and_occupied_when_it_is_their_turn():
    iterator = Queue(2, ["a", "xy", "1"])
    assert [next(iterator) for _ in range(4)] == list("axy1")
    assert iterator.log == [
        ("occupy", 0),
        ("occupy", 1),
        ("vacate", 0),
        ("occupy", 0),
    ]


def test_turn_can_be_read_and_set():
    iterator = Queue(3, ["ab", "cd", "ef"])
    assert next(iterator) == "a"
    assert iterator.turn == 1
    iterator.turn = 2
    assert [next(iterator), iterator.turn] == ["c", 0]


def test_no_places_have_no_elements():
    assert list(Queue(0, ["ab"])) == []


def test_ended_iterator_stays_ended():
    iterator = Queue(2, ["a"])
    assert list(iterator) == ["a"]
    turn = iterator.turn
    assert list(iterator) == []
    assert iterator.turn == turn


def test_error_uses_its_turn():
    def fail():
        yield "a"
        raise RuntimeError

    iterator = Queue(2, [fail(), "xyz"])
    assert [next(iterator), next(iterator)] == ["a", "x"]
    with pytest.raises(RuntimeError):
        next(iterator)
    assert list(iterator) == ["y", "z"]
