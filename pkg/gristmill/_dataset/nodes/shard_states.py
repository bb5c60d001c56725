"""Saves the position of each interleaved dataset, to change the number of hosts.

Hosts that share the datasets of an interleaving save the position of each dataset.
Another number of hosts can then divide these datasets differently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from gristmill._dataset.model import states


class ShardStates:
    """Methods of an interleaving's iterator for the position of each dataset."""

    def get_shard_states(self: Any) -> list[dict[str, Any]]:
        """Return ``{"exhausted": 0 or 1, "state": state}`` of each dataset."""
        return _shards_of(self.get_state(), self._count, self._start_state)

    def set_shard_states(self: Any, shard_states: Any) -> None:
        """Continue at positions of the datasets that `get_shard_states` returned.

        The first datasets that have elements left are open, from the first place on.

        Raises:
            StateMismatch: They are not positions of these datasets.
        """
        states.check_list(self, shard_states, "shard states", self._count)
        for shard in shard_states:
            states.check_keys(self, shard, ["exhausted", "state"])
        self.set_state(_state_of(shard_states, self._cycle_length))

    def _start_state(self: Any, number: int) -> Any:
        """Return the state of a dataset's iterator before the first element."""
        self._iterators.chain_context = self._ctx
        iterator = self._iterators.make(number)
        if iterator is None:
            return None
        with contextlib.closing(iterator):
            return iterator.get_state()


def _shards_of(
    state: Any, count: int, start_state: Callable[[int], Any]
) -> list[dict[str, Any]]:
    """Return the position of each dataset at a state of an interleaving's iterator.

    `start_state` returns the state of a dataset before its first element, or None if
    the dataset is absent.
    """
    future_states = state["future_states"]
    shards = []
    for number in range(count):
        # A dataset that was opened has ended, unless a place below has it.
        position = future_states.get(number)
        ended = number < state["next_index_in_datasets"] or (
            number in future_states and position is None
        )
        if position is None:
            position = start_state(number)
        shards.append({"exhausted": int(ended or position is None), "state": position})
    in_use = zip(
        state["iterators_in_use_indices"],
        state["iterators_in_use_states"],
        state["exhausted"],
        strict=True,
    )
    for number, position, ended in in_use:
        if position is not None:
            shards[number] = {"exhausted": ended, "state": position}
    return shards


def _state_of(shards: Sequence[Any], cycle_length: int) -> Any:
    """Return the state of an interleaving's iterator at positions of its datasets."""
    unfinished = [n for n, shard in enumerate(shards) if not shard["exhausted"]]
    ended = [n for n, shard in enumerate(shards) if shard["exhausted"]]
    opened = unfinished[:cycle_length]
    next_number = max(opened, default=-1) + 1
    # A state has an entry for each place: ended datasets fill the rest.
    in_places = [*opened, *ended][:cycle_length]
    future_states = {n: shards[n]["state"] for n in unfinished[cycle_length:]}
    # Otherwise these datasets would start again.
    future_states |= {n: None for n in ended if n >= next_number}
    return {
        "next_index_in_cycle": 0,
        "next_index_in_datasets": next_number,
        "iterators_in_use_indices": in_places,
        "iterators_in_use_states": [shards[n]["state"] for n in in_places],
        "exhausted": [int(n not in opened) for n in in_places],
        "future_states": future_states,
    }
