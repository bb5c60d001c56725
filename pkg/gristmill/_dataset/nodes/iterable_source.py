"""A dataset of the elements of an iterable."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from gristmill._base.argument_checks import check_flag
from gristmill._base.types import T
from gristmill._dataset.model import states
from gristmill._dataset.model.iter_dataset import IterDataset
from gristmill._dataset.model.iterator import CheckedIterator, DatasetIterator
from gristmill._dataset.model.names import transform_name
from gristmill._dataset.model.node import builds
from gristmill._dataset.model.states import copy_state
from gristmill._dataset.nodes.iterables import (
    OpenIterable,
    check_iterable,
    check_shares,
    open_iterable,
)
from gristmill._dataset.nodes.missing_states import (
    MISSING_STATE_KEY,
    missing_state_error,
)
from gristmill._hot import cancellation

# Required and optional keys of a state.
_REQUIRED_KEYS = {"elements_read": states.count, "ended": states.flag}
_OPTIONAL_KEYS = ("iterable", "iterator", MISSING_STATE_KEY)


@builds("IterDataset.from_iterable")
class IterableSourceDataset(IterDataset[T]):
    """The elements of an iterable; see `IterDataset.from_iterable`."""

    def __init__(
        self, iterable: Iterable[T] | Callable[..., Iterable[T]], replay: bool = False
    ) -> None:
        super().__init__()
        check_flag("replay", replay)
        check_iterable(iterable, replay)
        self._iterable = iterable
        # Whether restoring a state reads the elements before it again.
        self.replays = replay
        self._may_lack_state = not replay
        self._epoch: int | None = None
        # The number of this share, and the number of shares.
        self._share = (0, 1)

    def __iter__(self) -> DatasetIterator[T]:
        return IterableSourceIterator(self)

    def __deepcopy__(self, memo: Any) -> Self:
        # Copies for threads share the iterable, which may be large.
        return copy.copy(self)

    @property
    def name(self) -> str:
        """A name of the iterable or the function, for errors."""
        function = getattr(self._iterable, "func", self._iterable)  # Unwrap a partial.
        return getattr(function, "__name__", type(function).__name__)

    def open(self) -> OpenIterable:
        """Begin to iterate over this share."""
        arguments = (self._share, self._epoch, not self.replays)
        return open_iterable(self._iterable, *arguments)

    def check_parts(self, count: int) -> None:
        """Raise ValueError if this dataset cannot be split into `count` parts."""
        if count > 1:
            check_shares(self.name, self._iterable, self._share[1] * count)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep one share of the elements, so that workers share them.

        Args:
            sl: Its start is the number of the share, its step the number of shares.
            sequential_slice: Has no effect.
        """
        self.check_parts(sl.step)
        index, count = self._share
        self._share = (index + count * sl.start, count * sl.step)

    def _in_epoch(self, epoch: int) -> Self:
        copied = copy.copy(self)
        copied._epoch = epoch
        return copied

    def _arguments_text(self) -> str:
        if isinstance(self._iterable, Iterable):
            return f"(iterable={self.name})"
        return f"(iterable={transform_name(self._iterable)})"


class IterableSourceIterator(CheckedIterator[T]):
    """Iterates over an iterable, which is opened when an element or a state is needed.

    The state is the number of elements that were read, and the states that the
    iterable and its iterator return.
    """

    def __init__(self, node: IterableSourceDataset[T]) -> None:
        super().__init__()
        self._node = node
        # The open iterable and its iterator; None until they are needed.
        self._open_iterable: OpenIterable | None = None
        self._iterator: Iterator[T] | None = None
        self._elements_read = 0
        self._ended = False
        # The state that was set, until the next element is read. Some iterables return
        # their restored state only after that.
        self._unread_state: Any = None

    def __next__(self) -> T:
        self._assert_not_closed()
        if self._ended:
            raise StopIteration
        self._unread_state = None
        iterator = self._iterator
        if iterator is None:
            iterator = self._get_open().iterator
        try:
            element = next(iterator)
        except StopIteration:
            self._ended = True
            raise
        self._elements_read += 1
        return element

    def get_state(self) -> Any:
        """Return the number of elements read, whether they ended, and the states."""
        if self._unread_state is not None:
            return copy_state(self._unread_state)
        state: dict[str, Any] = {
            "elements_read": self._elements_read,
            "ended": self._ended,
        }
        if not self._node.replays:
            self._assert_not_closed()
            state |= self._get_open().state() or {MISSING_STATE_KEY: self._node.name}
        return state

    def _check_state(self, state: Any) -> None:
        states.check_keys(self, state, _REQUIRED_KEYS, _OPTIONAL_KEYS)
        for name, check in _REQUIRED_KEYS.items():
            check(self, state[name], name)
        if not _needs_restoring(state) or self._node.replays:
            return
        if MISSING_STATE_KEY in state:
            raise missing_state_error(self._node.name, state["elements_read"])
        if state.keys() == _REQUIRED_KEYS.keys():
            problem = "has no state of an iterable, so it was saved with replay=True"
            raise states.mismatch(self, problem)

    def _go_to(self, state: Any) -> None:
        self._assert_not_closed()
        opened = self._open_at(state) if _needs_restoring(state) else None
        self._release()
        if opened is not None:
            self._open_iterable, self._iterator = opened, opened.iterator
        self._elements_read, self._ended = state["elements_read"], bool(state["ended"])
        self._unread_state = copy_state(state)

    def _open_at(self, state: Any) -> OpenIterable:
        """Open the iterable at a position after its beginning."""
        opened = self._node.open()
        try:
            if self._node.replays:
                self._skip(opened.iterator, state["elements_read"])
            else:
                opened.restore(state)
        except KeyError as error:
            opened.close()
            problem = f"does not have the state of {self._node.name}: {error}"
            raise states.mismatch(self, problem) from error
        except BaseException:
            opened.close()
            raise
        return opened

    def _skip(self, iterator: Iterator[T], count: int) -> None:
        """Read `count` elements again; raise StateMismatch if there are fewer."""
        for elements_read in range(count):
            cancellation.check()
            try:
                next(iterator)
            except StopIteration:
                problem = (
                    f"is after element {count}, but there are only {elements_read} now"
                )
                raise states.mismatch(self, problem) from None

    def _get_open(self) -> OpenIterable:
        if self._open_iterable is None:
            self._open_iterable = self._node.open()
            self._iterator = self._open_iterable.iterator
        return self._open_iterable

    def _release(self) -> None:
        opened, self._open_iterable, self._iterator = self._open_iterable, None, None
        if opened is not None:
            opened.close()

    def __str__(self) -> str:
        return f"{type(self).__name__}{self._node._arguments_text()}"


def _needs_restoring(state: Any) -> bool:
    """Return True if a state is neither the beginning nor the end."""
    return bool(state["elements_read"]) and not state["ended"]
