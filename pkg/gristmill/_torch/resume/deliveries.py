"""Which batches a loader has given, where they are not given in order.

A state is that of the index sampler before the oldest batch that is under way, and the
numbers of those behind it that were given already.
"""

from __future__ import annotations

import collections

from gristmill._torch import layout
from gristmill._torch.layout import State


class Deliveries:
    """The batches of an epoch that are under way, and those that overtook them.

    Args:
        workers: How many there are; each answers in the order in which it was asked.
        start: Where the index sampler stands, see `positions`.
    """

    def __init__(self, workers: int, start: State) -> None:
        self._latest = start
        # By the batch's number: where the index sampler stood before it.
        self._under_way: dict[int, State] = {}
        self._asked: list[collections.deque[int]] = [
            collections.deque() for _ in range(workers)
        ]
        self._given: set[int] = set()

    def asked(self, worker: int, after: State) -> None:
        """Note that a worker was asked for a batch, and where the sampler is then."""
        number = after[layout.SAMPLER_YIELDED] - 1
        self._under_way[number] = self._latest
        self._asked[worker].append(number)
        self._latest = after

    def given(self, worker: int) -> State:
        """Note that a worker's oldest batch is given; the state after that."""
        number = self._asked[worker].popleft()
        del self._under_way[number]
        self._given.add(number)
        main = next(iter(self._under_way.values()), self._latest)
        first = main[layout.SAMPLER_YIELDED]
        self._given = {number for number in self._given if number >= first}
        ahead = {number - first for number in self._given}
        ahead.update(main.get(layout.GIVEN_AHEAD, ()))
        return {**main, layout.GIVEN_AHEAD: sorted(ahead)} if ahead else main
