"""Taking turns; unit/dataset/test_interleave.py has what Grain makes of it."""

import pytest

from gristmill._hot.steps import Turns


class Queue(Turns):
    """Puts the iterators of a list in places that become free."""

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


def test_the_turn_can_be_seen_and_set():
    iterator = Queue(3, ["ab", "cd", "ef"])
    assert next(iterator) == "a"
    assert iterator.turn == 1
    iterator.turn = 2
    assert [next(iterator), iterator.turn] == ["c", 0]


def test_no_places_have_no_elements():
    assert list(Queue(0, ["ab"])) == []


def test_the_end_is_the_end():
    iterator = Queue(2, ["a"])
    assert list(iterator) == ["a"]
    turn = iterator.turn
    assert list(iterator) == []
    assert iterator.turn == turn


def test_an_error_costs_its_turn():
    def fail():
        yield "a"
        raise RuntimeError

    iterator = Queue(2, [fail(), "xyz"])
    assert [next(iterator), next(iterator)] == ["a", "x"]
    with pytest.raises(RuntimeError):
        next(iterator)
    assert list(iterator) == ["y", "z"]
