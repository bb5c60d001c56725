"""Random chains of datasets give the same output as in Grain."""

import contextlib
import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from differential.chains import build, describe, describe_map
from differential.descriptions import Drawn
from support.elements import same

TAKEN = 60


@pytest.fixture(scope="module", autouse=True)
def grain_flags():
    from absl import flags

    flags.FLAGS.mark_as_parsed()


def grain() -> Any:
    import grain as real_grain

    return real_grain


@st.composite
def chains(draw, *extras):
    return describe(Drawn(draw), extras=extras)


@st.composite
def map_chains(draw):
    return describe_map(Drawn(draw))


# Gristmill's errors that subclass one of Grain's.
WIDER = {"ShapeMismatch": "ValueError"}


def outcome(function: Any, *args: Any) -> Any:
    """Return the result of a call, or the kind of exception that it raises."""
    try:
        return "value", function(*args)
    except Exception as error:
        return "error", kind_of(error)


def kind_of(error: Exception) -> str:
    name = type(error).__name__
    return WIDER.get(name, name)


def assert_same_outcome(ours: Any, theirs: Any, where: Any) -> None:
    assert ours[0] == theirs[0], (where, ours, theirs)
    assert same(ours[1], theirs[1]), (where, ours, theirs)


def built_alike(chain: Any) -> tuple[Any, Any] | None:
    """Build the chain in both libraries; return None if both refuse it equally."""
    theirs = outcome(build, grain(), chain)
    ours = outcome(build, gristmill, chain)
    assert ours[0] == theirs[0], (ours, theirs)
    if theirs[0] == "error":
        assert ours == theirs
        return None
    return ours[1], theirs[1]


@given(map_chains(), st.data())
@settings(max_examples=150)
def test_indexed_chains_are_grains(chain, data):
    built = built_alike(chain)
    if built is None:
        return
    ours, theirs = built
    assert len(ours) == len(theirs)
    length = min(len(theirs), TAKEN)
    if not length:
        # The type of the exception for an absent element may differ.
        assert outcome(ours.__getitem__, 0)[0] == "error"
        return
    indices = data.draw(st.lists(st.integers(-length - 2, 3 * length + 2), max_size=12))
    for index in [0, length - 1, *indices]:
        assert_same_outcome(
            outcome(ours.__getitem__, index), outcome(theirs.__getitem__, index), index
        )
    ends = st.none() | st.integers(-length - 1, length + 1)
    piece = slice(
        data.draw(ends), data.draw(ends), data.draw(st.sampled_from([None, 3, -1]))
    )
    assert len(ours[piece]) == len(theirs[piece])
    for index in range(min(len(theirs[piece]), 5)):
        assert_same_outcome(
            outcome(ours[piece].__getitem__, index),
            outcome(theirs[piece].__getitem__, index),
            (piece, index),
        )
    mine = outcome(lambda: ours._getitems(indices))
    if mine[0] == "value":
        assert same(list(mine[1]), [theirs[index] for index in indices])


def run(iterator: Any, count: int = TAKEN) -> tuple[list[Any], list[Any], Any]:
    """Return the elements, the states around them, and how the run ended."""
    elements, states = [], [copy.deepcopy(iterator.get_state())]
    for _ in range(count):
        try:
            elements.append(next(iterator))
        except StopIteration:
            return elements, states, "end"
        except Exception as error:
            return elements, states, kind_of(error)
        states.append(copy.deepcopy(iterator.get_state()))
    return elements, states, "more"


def plain(state: Any) -> Any:
    """Return a state after a round trip through JSON."""
    return json.loads(json.dumps(state))


@given(chains("view"), st.data())
@settings(max_examples=175)
def test_iterated_chains_are_grains(chain, data):
    compare_iterated(chain, data)


@given(chains("stopping"), st.data())
@settings(max_examples=150)
def test_chains_of_sources_that_stop_are_grains(chain, data):
    compare_iterated(chain, data)


def compare_iterated(chain, data):
    built = built_alike(chain)
    if built is None:
        return
    ours, theirs = built
    # Close explicitly: collected in its own thread, Grain's iterator cannot join it.
    with contextlib.closing(iter(theirs)) as iterator:
        elements, states, end = run(iterator)
    my_elements, my_states, my_end = run(iter(ours))
    assert my_end == end
    for place, (mine, expected) in enumerate(
        itertools.zip_longest(my_elements, elements)
    ):
        assert same(mine, expected), (place, mine, expected)
    assert my_states == states
    place = data.draw(st.integers(0, len(elements)))
    with contextlib.closing(iter(theirs)) as iterator:
        if outcome(iterator.set_state, copy.deepcopy(states[place]))[0] == "error":
            return  # Grain recomputes an element, which fails again.
    # Only Gristmill resumes here: some of Grain's iterators lose their position.
    with contextlib.closing(iter(ours)) as resumed:
        resumed.set_state(plain(states[place]))
        assert plain(resumed.get_state()) == plain(states[place])
        rest, rest_states, rest_end = run(resumed, len(elements) - place)
        assert same(rest, elements[place:])
        assert plain(rest_states) == plain(states[place:])
        assert rest_end == "more"
        if end != "more":
            assert run(resumed, 1)[2] == end
