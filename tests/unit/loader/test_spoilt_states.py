"""Tests that a loader refuses invalid states and keeps its position."""

import copy
import json

import hypothesis
import pytest
from hypothesis import strategies

import gristmill as g
from gristmill.errors import StateMismatch


class Repeat(g.transforms.FlatMap):
    max_fan_out = 3

    def flat_map(self, element):
        return [element] * int(element % 3)


def passed_on(records):
    yield from records


LOADERS = {
    "plain": ([], None),
    "streams": ([g.Batch(2)], 2),
    "flat map": ([Repeat()], None),
    "streams of a flat map": ([Repeat()], 2),
    "replayed": ([passed_on], None),
}


def loader(name):
    operations, streams = LOADERS[name]
    sampler = g.IndexSampler(20, num_epochs=1, shuffle=True, seed=1)
    return g.DataLoader(
        data_source=list(range(20)),
        sampler=sampler,
        operations=operations,
        streams=streams,
    )


def states_of(name):
    iterator = iter(loader(name))
    states = [iterator.get_state()]
    for _ in range(3):
        next(iterator)
        states.append(iterator.get_state())
    return [json.loads(state) for state in states]


def paths_of(part, path=()):
    yield path
    pairs = enumerate(part) if isinstance(part, list) else ()
    for key, inner in part.items() if isinstance(part, dict) else pairs:
        yield from paths_of(inner, (*path, key))


def replaced(state, path, value):
    if not path:
        return value
    changed = copy.copy(state)
    changed[path[0]] = replaced(state[path[0]], path[1:], value)
    return changed


NUMBERS = [0, -1, 7, 2.5, 2**70, -(2**70), float("inf"), float("nan")]
OTHERS = [None, True, "text", [], [1], [[]], {}, {"x": 1}, {"replay": 3}]
OURS = [
    {"format": 1, "streams": 10**9},
    {"format": 1, "replay": [[0, -5]]},
    {"format": []},
]


@pytest.mark.parametrize("name", LOADERS)
@hypothesis.settings(max_examples=80, deadline=None)
@hypothesis.given(data=strategies.data())
def test_mutated_state_is_refused_or_valid(name, data):
    state = data.draw(strategies.sampled_from(states_of(name)))
    value = strategies.sampled_from(NUMBERS + OTHERS + OURS)
    if data.draw(strategies.booleans()):
        state["gristmill"] = data.draw(value)
    path = data.draw(strategies.sampled_from(list(paths_of(state))))
    state = replaced(state, path, data.draw(value))
    iterator = iter(loader(name))
    next(iterator)
    before = iterator.get_state()
    try:
        iterator.set_state(json.dumps(state).encode())
    except StateMismatch:
        assert iterator.get_state() == before
    except IndexError as error:
        assert str(error).startswith("Checkpoint `next_index`")
        assert iterator.get_state() == before
    else:
        list(iterator)


def test_replay_position_far_past_end_ends_iteration(caplog):
    state = states_of("replayed")[-1]
    state["gristmill"]["replay"] = [[0, 2**62]]
    iterator = iter(loader("replayed"))
    iterator.set_state(json.dumps(state).encode())
    assert list(iterator) == []
