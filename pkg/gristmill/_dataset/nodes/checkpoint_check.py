"""A check for tests of user-defined datasets."""

from __future__ import annotations

from typing import Any

import numpy as np

from gristmill._dataset.model.iter_dataset import IterDataset


def assert_equal_output_after_checkpoint(ds: IterDataset[Any]) -> None:
    """Check that a dataset can be resumed at each element.

    Every state must have the structure of the first.  An iterator restored to a state
    must return this state, and the elements that followed it.

    Args:
        ds: The dataset. It should be short: for n elements, n iterators read it.

    Raises:
        AssertionError: The dataset cannot be resumed, or has no elements.

    Example:
        >>> ds = gristmill.MapDataset.range(5).shuffle(seed=1).to_iter_dataset()
        >>> gristmill.experimental.assert_equal_output_after_checkpoint(ds)
    """
    elements, states = _run(ds)
    assert elements, "Dataset did not produce any elements."
    for step, state in enumerate(states):
        iterator = iter(ds)
        iterator.set_state(state)
        np.testing.assert_equal(
            iterator.get_state(),
            state,
            f"Restored state does not match the original state at step {step}.",
        )
        np.testing.assert_equal(
            list(iterator),
            elements[step:],
            f"Restored values mismatch at step {step} for state {state}.",
        )


def _run(ds: IterDataset[Any]) -> tuple[list[Any], list[Any]]:
    """Return the elements, and the state before each."""
    elements: list[Any] = []
    states: list[Any] = []
    iterator = iter(ds)
    first = _structure(iterator.get_state())
    while True:
        state = iterator.get_state()
        structure = _structure(state)
        assert structure == first, (
            f"State spec does not match the original state spec at step"
            f" {len(elements)}. Expected: {first}, Actual: {structure}"
        )
        try:
            elements.append(next(iterator))
        except StopIteration:
            return elements, states
        states.append(state)


def _structure(state: Any) -> Any:
    """Return a state with each value replaced by its type."""
    if isinstance(state, dict):
        return {key: _structure(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [_structure(value) for value in state]
    if isinstance(state, np.ndarray):
        return (state.dtype.str, state.shape)
    return type(state).__name__
