"""A mixture by name resumes after its weights or parts have changed."""

import itertools
import json

import gristmill
from support.twins import grain


def part(lib, i, n=1000):
    return lib.MapDataset.range(1000 * i, 1000 * i + n).to_iter_dataset()


def mix(lib, names, weights):
    parts = {name: part(lib, "abcd".index(name)) for name in names}
    return lib.IterDataset.mix(parts, dict(zip(names, weights, strict=True)))


def go_on(lib, state, names, weights, count):
    iterator = iter(mix(lib, names, weights))
    if state is not None:
        iterator.set_state(json.loads(json.dumps(state)))
    found = list(itertools.islice(iterator, count))
    return found, iterator.get_state()


STAGES = [
    ("ab", [1, 2], 10),
    ("ab", [5, 1], 12),
    ("abc", [1, 1, 1], 9),
    ("bc", [1, 3], 11),
    ("cab", [2, 2, 1], 10),
]


def run(lib, stages):
    state, given = None, []
    for names, weights, count in stages:
        found, state = go_on(lib, state, names, weights, count)
        given.append(found)
    return given, state


def test_no_element_is_lost_or_repeated():
    given, _ = run(gristmill, STAGES[:4])
    everything = sorted(itertools.chain(*given))
    for i in range(3):
        of_part = [x for x in everything if x // 1000 == i]
        assert of_part == list(range(1000 * i, 1000 * i + len(of_part)))


def test_readded_part_resumes_at_its_position():
    given, _ = run(gristmill, STAGES)
    everything = sorted(itertools.chain(*given))
    assert len(everything) == len(set(everything)) == 52
    for i in range(3):
        of_part = [x for x in everything if x // 1000 == i]
        assert of_part == list(range(1000 * i, 1000 * i + len(of_part)))


def test_new_weights_apply_immediately():
    given, _ = run(gristmill, [("ab", [1, 1], 10), ("ab", [9, 1], 100)])
    assert sum(x < 1000 for x in given[1]) == 90


def test_orders_match_grain():
    ours, my_state = run(gristmill, STAGES[:3])
    theirs, their_state = run(grain(), STAGES[:3])
    assert ours == theirs
    assert my_state == their_state


def test_states_stay_small():
    _, state = run(gristmill, STAGES)
    assert len(json.dumps(state)) < 200
