"""Finds the records of the outputs of an iterator, one output after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gristmill._dataset.model.iterator import set_next_index
from gristmill._dataset.model.observer import suppress_observation
from gristmill._dataset.parallel.output_counts import count_outputs
from gristmill._dataset.parallel.record_tracing import ChainTracer
from gristmill._dataset.parallel.single_thread import SingleThreadCopier, check_state_of
from gristmill._dataset.parallel.source_list import SourceList
from gristmill._dataset.parallel.traced_element import Ids


class StepTracer:
    """Finds the records of the outputs of a chain.

    Args:
        dataset: The last dataset of the chain.

    Attributes:
        names: The name of each source, by its number in ids.

    Raises:
        TypeError: The records of a part of the chain are not known.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        sources = SourceList(dataset)
        self.names = sources.names
        self._traced = SingleThreadCopier(ChainTracer(sources)).copy(dataset)

    def outputs_before(self, state: Any) -> int | None:
        """Return the number of outputs before a state, or None if it is not known.

        Raises:
            StateMismatch: It is not a state of this chain.
            IndexError: It is a state of a longer dataset.
        """
        check_state_of(self._dataset, state)
        return count_outputs(self._dataset, state)

    def trace(self, state: Any, first: int) -> Iterator[Sequence[Ids]]:
        """Yield the ids of each row of an output, for one output after another.

        Args:
            state: The state before the first output; None for the beginning.
            first: The number of outputs after the state to skip.

        Raises:
            StateMismatch: It is not a state of this chain.
        """
        with suppress_observation():
            iterator = iter(self._traced)
        try:
            if state is not None:
                iterator.set_state(state)
            elif first:
                try:
                    set_next_index(iterator, first)
                    first = 0
                except NotImplementedError:  # Compute the outputs before it.
                    pass
            for number, traced in enumerate(iterator):
                if number >= first:
                    yield [] if traced is None else traced.rows
        finally:
            iterator.close()
