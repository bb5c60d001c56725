"""A dataset that takes elements from several in turn, a few of them at a time."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from gristmill._base.argument_checks import kind, whole_number
from gristmill._base.types import T
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import (
    DatasetIterator,
    NodeIterator,
    get_next_index,
    set_next_index,
)
from gristmill._dataset.model.known_length import UnknownLength, count_of
from gristmill._dataset.model.map_dataset import MapDataset
from gristmill._dataset.nodes.part_iterators import PartIterators
from gristmill._dataset.nodes.shard_states import ShardStates
from gristmill._engine.reading import Reading
from gristmill._hot import iterators
from gristmill.errors import StateMismatch
from gristmill.options import ReadOptions

NEXT_INDEX = "next_index_in_datasets"
# Keys of a state.  The first three have lists with an entry for each place.
PLACE_KEYS = ("iterators_in_use_indices", "iterators_in_use_states", "exhausted")
STATE_KEYS = (*PLACE_KEYS, "next_index_in_cycle", NEXT_INDEX)
Datasets = (
    Sequence[IterDataset[T] | MapDataset[T]]
    | MapDataset[IterDataset[T] | MapDataset[T]]
)


class InterleaveIterDataset(IterDataset[T]):
    """Takes one element of each dataset in turn, from a few datasets at a time.

    After a dataset has ended, the next one takes its place when it is that place's turn
    again.  The datasets are not parents of this one: a `seed` of theirs does not apply
    to random steps after this.

    Args:
        datasets: The datasets: a sequence, or a `MapDataset` whose elements are
            datasets, which are then made when they are needed.
        cycle_length: Number of open datasets; 1 reads them one after another.
        num_make_iter_threads: Threads that open datasets ahead if that is slow.
        make_iter_buffer_size: Number of opened datasets that may wait.
        iter_buffer_size: The number of elements of each `IterDataset` that a thread
            prefetches if they are slow.

    Attributes:
        datasets: The datasets.

    Raises:
        ValueError: `cycle_length` is not positive, or another number is negative.
        TypeError: A number is not whole, or `datasets` is not a sequence of
            datasets.

    Example:
        >>> MapDataset = gristmill.MapDataset
        >>> parts = [MapDataset.range(10 * i, 10 * i + i) for i in (1, 2, 3)]
        >>> ds = gristmill.experimental.InterleaveIterDataset(parts, cycle_length=2)
        >>> list(ds)
        [10, 20, 21, 30, 31, 32]
    """

    _KIND = "order"
    _may_lack_state = True  # Datasets may be made when they are needed.

    def __init__(
        self,
        datasets: Datasets[T],
        *,
        cycle_length: int,
        num_make_iter_threads: int = 1,
        make_iter_buffer_size: int = 1,
        iter_buffer_size: int = 1,
    ) -> None:
        super().__init__()
        cycle_length = whole_number("cycle_length", cycle_length)
        for name, value in (
            ("num_make_iter_threads", num_make_iter_threads),
            ("make_iter_buffer_size", make_iter_buffer_size),
            ("iter_buffer_size", iter_buffer_size),
        ):
            if whole_number(name, value) < 0:
                raise ValueError(f"{name} must be at least 0, got {value}.")
        if isinstance(datasets, IterDataset) or not hasattr(datasets, "__getitem__"):
            raise TypeError(
                "datasets must be a sequence of datasets, or a MapDataset of them, got"
                f" {kind(datasets)}. Put them in a list."
            )
        if cycle_length < 1:
            raise ValueError(f"cycle_length must be positive. Got {cycle_length}.")
        self.datasets = datasets
        self._cycle_length = cycle_length
        self._num_make_iter_threads = num_make_iter_threads
        self._make_iter_buffer_size = make_iter_buffer_size
        self._iter_buffer_size = iter_buffer_size

    def __iter__(self) -> DatasetIterator[T]:
        return InterleaveDatasetIterator(self)

    def _count_elements(self) -> float:
        if isinstance(self.datasets, MapDataset):
            raise UnknownLength("its datasets are created while iterating.")
        return sum(map(count_of, self.datasets))

    def _arguments_text(self) -> str:
        return f"([{len(self.datasets)} datasets], cycle_length={self._cycle_length})"

    @property
    def _element_spec(self) -> Any:
        first: Any = self.datasets[0]
        return first._element_spec

    def _in_epoch(self, epoch: int) -> Self:
        datasets: Any = self.datasets
        if isinstance(datasets, MapDataset):
            datasets = datasets._in_epoch(epoch)
        else:
            datasets = MapDataset.source(datasets)
        return self.with_datasets(datasets.map(functools.partial(_in_epoch, epoch)))

    def with_datasets(self, datasets: Datasets[T]) -> Self:
        """Return a copy of this dataset with other datasets.

        Args:
            datasets: The datasets to interleave, as in the constructor.

        Returns:
            The copy.
        """
        copied = copy.copy(self)
        copied.datasets = datasets
        return copied

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep some of the datasets, so that workers share them.

        Args:
            sl: The slice to keep.
            sequential_slice: Has no effect.
        """
        self.datasets = self.datasets[sl]


class InterleaveDatasetIterator(ShardStates, iterators.RoundRobin, NodeIterator[T]):
    """Iterates over several datasets in turn.

    The compiled `RoundRobin` defines `__next__`, `places`, the open iterators, and
    `turn`, the place of the next element.  It calls `_vacate` and `_occupy`.
    """

    def __init__(self, node: InterleaveIterDataset[T]) -> None:
        count = len(node.datasets)
        self._count = count
        self._cycle_length = min(node._cycle_length, count)
        iterators.RoundRobin.__init__(self, self._cycle_length)
        self._iterators = PartIterators(node.datasets, node._iter_buffer_size)
        self._reading = Reading(
            self._iterators,
            ReadOptions(node._num_make_iter_threads, node._make_iter_buffer_size),
            lambda first, count: range(first, first + count),
            count,
            look_ahead=True,
        )
        # The first dataset that was not opened yet, and the number of datasets, which
        # may turn out to be less than `_count`.
        self._next_number = 0
        self._stop = count
        # For each place: the number of its dataset, and its last state if it has ended.
        self._numbers = list(range(self._cycle_length))
        self._end_states: list[Any] = [None] * self._cycle_length
        # True if iteration has begun, so that datasets are opened ahead of time.
        self._has_started = False
        # States of datasets that are not open yet, by number; None if one has ended.
        # Usually empty.
        self._future_states: dict[int, Any] = {}
        # Iterators that have checked a state and will be set to it, by place.
        self._checked_iterators: dict[int, DatasetIterator[T]] = {}
        NodeIterator.__init__(self, node)

    def get_state(self) -> Any:
        """Return the states of the open datasets; open the first ones if necessary."""
        self._open_first()
        positions = [
            end_state if iterator is None else iterator.get_state()
            for iterator, end_state in zip(self.places, self._end_states, strict=True)
        ]
        return {
            "next_index_in_cycle": self.turn,
            "next_index_in_datasets": self._next_number,
            "iterators_in_use_indices": list(self._numbers),
            "iterators_in_use_states": positions,
            "exhausted": [int(end_state is not None) for end_state in self._end_states],
            "future_states": dict(self._future_states),
        }

    def _check_state(self, state: Any) -> None:
        states.check_keys(self, state, STATE_KEYS, ["future_states"])
        numbers = state["iterators_in_use_indices"]
        cycle = self._cycle_length
        if isinstance(numbers, (list, tuple)) and len(numbers) != cycle:
            raise StateMismatch(
                f"{self}: the state has {len(numbers)} open datasets, expected {cycle}."
                " Restore it with the cycle_length and the datasets that it was saved"
                " with."
            )
        for name in PLACE_KEYS:
            states.check_list(self, state[name], name, cycle)
        for name, max_value in (
            ("next_index_in_cycle", cycle - 1),
            (NEXT_INDEX, self._count),
        ):
            states.count(self, state[name], name)
            if state[name] > max(max_value, 0):
                problem = f"has {name} {state[name]}, expected at most"
                raise states.mismatch(self, f"{problem} {max(max_value, 0)}")
        future_states = state.get("future_states")
        if future_states and not isinstance(future_states, Mapping):
            raise states.mismatch(
                self, f"has future_states {future_states!r:.100}, expected a dict"
            )
        for number in future_states or ():
            if not str(number).isdecimal():
                problem = f"has future_states of {number!r}, expected dataset numbers"
                raise states.mismatch(self, problem)
        self._check_places(state)

    def _check_places(self, state: Any) -> None:
        """Check the states of the open datasets, with new iterators for `_go_to`."""
        self._checked_iterators.clear()
        for place, (number, position, ended) in _iterate_places(state):
            states.flag(self, ended, "exhausted")
            states.count(self, number, "iterators_in_use_indices")
            if position is None or ended:  # None: no dataset was open there.
                continue
            if number >= self._count:
                problem = f"has dataset {number}, expected less than {self._count}"
                raise states.mismatch(self, problem)
            part = self._make_iterator(number)
            states.check_state(part, position)
            self._checked_iterators[place] = part

    def _go_to(self, state: Any) -> None:
        self._assert_not_closed()
        self._reading.forget()
        self._close_places()
        for place, (number, position, ended) in _iterate_places(state):
            self._end_states[place] = position if ended else None
            if position is not None and not ended:
                self._restore(place, number, position)
        self._checked_iterators.clear()
        self._numbers = list(state["iterators_in_use_indices"])
        self._next_number = state["next_index_in_datasets"]
        self._stop = self._count
        self.turn = state["next_index_in_cycle"]
        # JSON turns the numbers into text.
        future_states = state.get("future_states") or {}
        self._future_states = {int(n): state for n, state in future_states.items()}

    def start_prefetch(self) -> None:
        """Open the first datasets, and start computing their elements."""
        self._assert_not_closed()
        self._open_first()
        for iterator in self.places:
            if iterator is not None:
                iterator.start_prefetch()

    def _release(self) -> None:
        self._reading.close()
        self._close_places()

    def _abandon(self) -> None:
        self._reading.close()
        for iterator in list(self.places):  # A copy: its owner may change the list.
            if iterator is not None:
                iterator._abandon()

    def _close_places(self) -> None:
        for place, iterator in enumerate(self.places):
            self.places[place] = None
            if iterator is not None:
                iterator.close()

    def _vacate(self, place: int) -> None:
        """Remove an iterator that has ended from its place."""
        self._end_states[place] = self.places[place].get_state()
        self.places[place] = None

    def _occupy(self, place: int) -> bool:
        """Open the next dataset in a place; return False after the last one.

        From now on, datasets are opened ahead of time if that is slow.
        """
        self._assert_not_closed()
        self._has_started = True
        return self._open_next(place)

    def _open_first(self) -> None:
        """Open datasets in the places that have not had one yet."""
        for place, (iterator, end_state) in enumerate(
            zip(self.places, self._end_states, strict=True)
        ):
            is_vacant = iterator is None and end_state is None
            if is_vacant and not self._open_next(place):
                break

    def _open_next(self, place: int) -> bool:
        """Open the next dataset in a place; return False if there is none."""
        while self._next_number < self._stop:
            number = self._next_number
            self._next_number += 1
            # Threads of `_reading` use it, too.  They start at the first element, after
            # which it is always the same object, the one that the chain shares.
            self._iterators.chain_context = self._ctx
            make = self._take_iterator if self._has_started else self._iterators.make
            try:
                iterator = make(number)
            except StopIteration:
                self._next_number = self._stop = number
                return False
            if iterator is None:  # The dataset is absent.
                continue
            if number in self._future_states:
                position = self._future_states.pop(number)
                if position is None:
                    iterator.close()
                    continue
                iterator.set_state(position)
            self.places[place] = iterator
            self._numbers[place] = number
            self._end_states[place] = None
            return True
        return False

    def _take_iterator(self, number: int) -> DatasetIterator[T] | None:
        """Return the iterator of a dataset, created ahead of time if that is slow."""
        read = self._reading.read(number, [number])
        if read is None:
            return self._iterators.make_and_start(number)
        if read.failure is not None:
            raise read.failure
        iterator: DatasetIterator[T] | None = read.elements[0]
        return iterator

    def _restore(self, place: int, number: int, position: Any) -> None:
        """Set the iterator of a dataset to a position, and put it in a place."""
        iterator = self._checked_iterators.pop(place, None) or self._make_iterator(
            number
        )
        iterator.set_state(position)
        self.places[place] = iterator

    def _make_iterator(self, number: int) -> DatasetIterator[T]:
        """Make an iterator of a dataset, which must not be absent."""
        self._iterators.chain_context = self._ctx
        iterator = self._iterators.make(number)
        if iterator is None:
            raise StateMismatch(
                f"{self}: dataset {number} of the state is absent. Restore it with the"
                " datasets that it was saved with."
            )
        return iterator

    def _get_next_index(self) -> int:
        self._check_single("get_next_index")
        iterator = self.places[0]
        return 0 if iterator is None else get_next_index(iterator)

    def _set_next_index(self, index: int) -> None:
        self._check_single("set_next_index")
        self._open_first()
        if self.places[0] is None:  # The dataset has ended: open it again at its end.
            self._restore(0, 0, self._end_states[0])
            self._end_states[0] = None
        set_next_index(self.places[0], index)

    def _check_single(self, function: str) -> None:
        if self._count != 1:
            raise NotImplementedError(
                f"{function} is not supported for InterleaveDatasetIterator with more"
                f" than one dataset. There are {self._count}."
            )


def _in_epoch(epoch: int, dataset: Any) -> Any:
    return dataset._in_epoch(epoch)


def _iterate_places(state: Any) -> Iterator[tuple[int, tuple[Any, Any, Any]]]:
    """Yield (place, (dataset number, state, whether the dataset ended)) of a state."""
    return enumerate(zip(*(state[name] for name in PLACE_KEYS), strict=True))
