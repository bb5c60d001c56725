"""Runs one dataset in Gristmill and in Grain, and compares everything visible."""

import contextlib
import functools
import json
from collections.abc import Callable
from typing import Any

import gristmill
from support.elements import same

MOST = 200


@functools.cache
def grain() -> Any:
    """Import Grain, whose absl flags must count as parsed."""
    from absl import flags

    flags.FLAGS.mark_as_parsed()
    import grain as real_grain

    return real_grain


def by_json(state: Any) -> Any:
    """Return a state after writing it as JSON and reading it again."""
    return json.loads(json.dumps(state))


def run(iterator: Any, most: int = MOST) -> tuple[list[Any], list[Any], Any]:
    """Return the elements, the states around them, and what ended the run.

    The last is "end", "more" if `most` elements were read before the end, or the error.
    """
    with contextlib.closing(iterator):
        return _run(iterator, most)


def _run(iterator: Any, most: int) -> tuple[list[Any], list[Any], Any]:
    elements: list[Any] = []
    states = [by_json(iterator.get_state())]
    while len(elements) < most:
        try:
            element = next(iterator)
        except StopIteration:
            return elements, [*states, by_json(iterator.get_state())], "end"
        except Exception as error:
            return elements, states, error
        elements.append(element)
        states.append(by_json(iterator.get_state()))
    return elements, states, "more"


def assert_twins(
    make: Callable[[Any], Any],
    *,
    most: int = MOST,
    states: bool = True,
    theirs_resume: bool = True,
    resumed: int = MOST,
) -> list[Any]:
    """Check that two datasets agree, also after restoring each other's states.

    Args:
        make: Makes the dataset with the given library.
        most: Maximum number of elements.
        states: Whether states must be equal.
        theirs_resume: Whether Grain must resume from Gristmill's states.
        resumed: Approximate number of states to restore.

    Returns:
        The elements.
    """
    ours, theirs = make(gristmill), make(grain())
    elements, their_states, their_end = run(iter(theirs), most)
    our_elements, our_states, our_end = run(iter(ours), most)
    assert same(our_elements, elements), (our_elements, elements)
    if isinstance(their_end, Exception):
        assert isinstance(our_end, Exception), (our_end, their_end)
    else:
        assert our_end == their_end
    if states:
        assert our_states == their_states
        assert same_spec(ours, theirs)
    for place in range(0, len(elements) + 1, len(elements) // resumed + 1):
        assert_resumes(ours, our_states[place], elements[place:], most)
        if theirs_resume:
            assert_resumes(theirs, our_states[place], elements[place:], most, False)
    return elements


def assert_resumes(
    dataset: Any, state: Any, rest: list[Any], most: int, keeps_state: bool = True
) -> None:
    """Check that a dataset resumes from a state with the expected rest.

    ``keeps_state`` requires that get_state() returns the restored state; one of Grain's
    datasets does not always do so.
    """
    iterator = iter(dataset)
    iterator.set_state(json.loads(json.dumps(state)))
    assert not keeps_state or by_json(iterator.get_state()) == state
    resumed: list[Any] = []
    # Close explicitly, because Grain's iterators cannot be collected by their own
    # thread.
    with contextlib.closing(iterator), contextlib.suppress(StopIteration, ValueError):
        for _ in range(min(most, len(rest) + 1)):
            resumed.append(next(iterator))
    assert same(resumed[: len(rest)], rest), (state, resumed, rest)


def same_spec(ours: Any, theirs: Any) -> bool:
    """Return whether both element specs are equal, or both are unavailable."""
    return str(spec_of(gristmill, ours)) == str(spec_of(grain(), theirs))


def spec_of(lib: Any, dataset: Any) -> Any:
    """Return the element spec of a dataset, or the name of the error."""
    try:
        return lib.experimental.get_element_spec(dataset)
    except (NotImplementedError, ValueError) as error:
        return type(error).__name__
